"""A line of a batch."""

from typing import Annotated

from pydantic import Field

from eigencal._models.result import Result
from eigencal._models.score import Score
from eigencal._models.service import Problem


class BatchItem(Result):
    """What became of one item of a batch: a score, or why there is none. Exactly one of the two is set."""

    index: Annotated[int, Field(strict=True, ge=0)]
    """Which item, from 0, counted over everything that was handed to `score_batch`."""
    result: Score | None = None
    """Its score."""
    error: Problem | None = None
    """Why it has none; `error.retryable` says whether it may have one later."""

    @property
    def ok(self) -> bool:
        """Whether it was scored."""
        return self.result is not None

    def unwrap(self) -> Score:
        """Return the score.

        Raises:
            ApiError: there is none; the error's class is that of its code, as for `Client.score`.
        """
        if self.result is not None:
            return self.result
        # Here, since errors are made from models.
        from eigencal._problems import error_of_problem

        raise error_of_problem(self.error)
