"""What is asked of a score, and what of a decision."""

from dataclasses import dataclass

from service.llm.port import GenerationRequest


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
    `candidate`: a text to judge by the answers; it is none of them. `target`: what a decision is to keep.
    `asked`: the text that supplied samples answer, None where it is not known.
    """

    generation: GenerationRequest | None = None
    samples: tuple[str, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    source_label: str = ""
    calibration: str = "active"
    candidate: str | None = None
    target: Target | None = None
    asked: str | None = None
    arrived: float | None = None  # time.perf_counter() when the request came in

    @property
    def question(self) -> str | None:
        """Return the text of what is asked, as `question_text` has it."""
        return self.asked if self.generation is None else self.generation.question

    @property
    def num_samples(self) -> int:
        """Return how many answers are asked for."""
        return len(self.samples or ()) if self.generation is None else self.generation.num_samples
