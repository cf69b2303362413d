"""Python client of Eigencal, which scores how uncertain an LLM is about a prompt.

from eigencal import Client

with Client("http://127.0.0.1:8000") as client:
    score = client.score("How many legs does a spider have?")
    print(score.answer, score.probability_correct, score.lambda_max)
"""

from eigencal._base_client import Rows
from eigencal._client import AsyncClient, Client
from eigencal._exceptions import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    ConflictError,
    EigencalError,
    InvalidSetupError,
    JobEndedError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitError,
    ServerError,
    UnexpectedResponseError,
    UnprocessableEntityError,
)
from eigencal._progress import Progress, ProgressCallback
from eigencal._requests import (
    CalibrateOptions,
    CandidateToken,
    ChatMessage,
    Correction,
    CorrectOptions,
    SamplingOptions,
    ScoreOptions,
)
from eigencal._results import (
    BatchItem,
    ChatChunk,
    ChatCompletion,
    Choice,
    ChunkChoice,
    Job,
    Message,
    Model,
    NewKey,
)
from eigencal._version import __version__
from eigencal.resources.chat import ChatOptions
from eigencal.types import Calibration, Claim, KeptScore, Score

__all__ = [
    "APIConnectionError",
    "APIStatusError",
    "APITimeoutError",
    "AsyncClient",
    "AuthenticationError",
    "BadRequestError",
    "BatchItem",
    "CalibrateOptions",
    "Calibration",
    "CandidateToken",
    "ChatChunk",
    "ChatCompletion",
    "ChatMessage",
    "ChatOptions",
    "Choice",
    "ChunkChoice",
    "Claim",
    "Client",
    "ConflictError",
    "CorrectOptions",
    "Correction",
    "EigencalError",
    "InvalidSetupError",
    "Job",
    "JobEndedError",
    "KeptScore",
    "Message",
    "Model",
    "NewKey",
    "NotFoundError",
    "PermissionDeniedError",
    "Progress",
    "ProgressCallback",
    "RateLimitError",
    "Rows",
    "SamplingOptions",
    "Score",
    "ScoreOptions",
    "ServerError",
    "UnexpectedResponseError",
    "UnprocessableEntityError",
    "__version__",
]
