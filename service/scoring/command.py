"""What is asked of a score: by its request, and where that says nothing, by the settings."""

from dataclasses import dataclass
from typing import Literal

from service.llm.port import GenerationRequest, Message, Priority, Sampling
from service.spectral.selective import CONFIDENCE

DEFAULT_TARGET_ERROR = 0.2
MAX_ITEMS = 256  # of a batch, and answers to a prompt
DrawnEffort = Literal["low", "medium", "high"]
Effort = Literal["none", DrawnEffort, "auto"]
# Answers drawn. "auto": as many as the calibration's report recommends, else as here.
EFFORTS: dict[Effort, int] = {"none": 0, "low": 3, "medium": 8, "high": 20, "auto": 3}


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked of a decision.

    `error`: the share of wrong ones allowed among the answers let through, in (0, 1). `confidence`: with
    which probability it is kept, in (0, 1). `by_default`: nobody named one, so there is a decision only
    where a calibration can make it.
    """

    error: float
    confidence: float
    by_default: bool = False


@dataclass(frozen=True, slots=True)
class ScoreCommand:
    """What to score: a prompt for the LLM (`generation`), or `samples` that the caller has drawn.

    `logprobs`: of each whole sample, in nats; None: not known.
    `calibration`: "active", "none", or the id of a stored one.
    `candidate`: a text to judge by the answers; it is none of them. `candidate_logprob`: of the whole of it,
    in nats; where no answer is drawn, it is judged by that alone. `target`: what a decision is to keep.
    `as_recommended`: draw as many answers as the calibration's report recommends, if it does.
    `claims`: whether the answer is scored claim by claim, too; None: where it is long.
    `asked`: the text that supplied samples answer, None where it is not known.
    """

    generation: GenerationRequest | None = None
    samples: tuple[str, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    source_label: str = ""
    calibration: str = "active"
    candidate: str | None = None
    candidate_logprob: float | None = None
    as_recommended: bool = False
    target: Target | None = None
    claims: bool | None = None
    asked: str | None = None
    arrived: float | None = None  # time.perf_counter() when the request came in

    @property
    def draws_none(self) -> bool:
        """Tell whether no answer is to be drawn: the candidate is judged by its own log-probability."""
        return self.generation is not None and self.generation.num_samples == 0

    @property
    def question(self) -> str | None:
        """Return the text of what is asked, as `question_text` has it."""
        return self.asked if self.generation is None else self.generation.question

    @property
    def num_samples(self) -> int:
        """Return how many answers are asked for."""
        return len(self.samples or ()) if self.generation is None else self.generation.num_samples


@dataclass(frozen=True, slots=True)
class Serving:
    """How answers are drawn for a request that says nothing; a conversation with `messages_sampling`.

    `target_error`: the error that decisions keep; None: DEFAULT_TARGET_ERROR, where a calibration can decide.
    """

    num_samples: int
    sampling: Sampling
    messages_sampling: Sampling
    target_error: float | None = None

    def target(self, error: float | None = None, confidence: float | None = None) -> Target:
        """Return what a decision keeps: as a request names it, else as the settings do, else by default."""
        named = self.target_error if error is None else error
        return Target(
            DEFAULT_TARGET_ERROR if named is None else named,
            CONFIDENCE if confidence is None else confidence,
            by_default=named is None and confidence is None,
        )

    def request(
        self,
        *,
        prompt: str | None = None,
        messages: tuple[Message, ...] | None = None,
        num_samples: int | None = None,
        priority: Priority = Priority.LIVE,
    ) -> GenerationRequest:
        """Return the request of a caller that names only what to answer; exactly one of the first two."""
        return GenerationRequest(
            num_samples=self.num_samples if num_samples is None else num_samples,
            sampling=self.sampling if messages is None else self.messages_sampling,
            prompt=prompt,
            messages=messages,
            priority=priority,
        )
