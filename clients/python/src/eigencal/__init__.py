"""Eigencal's Python client: how uncertain is an LLM about a prompt, and is its answer right.

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
from eigencal._requests import (
    CalibrateOptions,
    ChatMessage,
    Correction,
    CorrectOptions,
    EvaluateOptions,
    ScoreOptions,
)
from eigencal._results import BatchItem, ChatChunk, ChatCompletion, Job, Model, NewKey
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
    "ChatChunk",
    "ChatCompletion",
    "ChatMessage",
    "ChatOptions",
    "Claim",
    "Client",
    "ConflictError",
    "CorrectOptions",
    "Correction",
    "EigencalError",
    "EvaluateOptions",
    "InvalidSetupError",
    "Job",
    "JobEndedError",
    "KeptScore",
    "Model",
    "NewKey",
    "NotFoundError",
    "PermissionDeniedError",
    "RateLimitError",
    "Rows",
    "Score",
    "ScoreOptions",
    "ServerError",
    "UnexpectedResponseError",
    "UnprocessableEntityError",
    "__version__",
]
