"""What a caller is told of the score beside its answer."""

from dataclasses import dataclass, replace
from typing import Literal

from service.domain.chat.prompt import Unscorable
from service.domain.errors import EigencalError, NoUsableAnswers
from service.domain.ids import new_id
from service.domain.scoring.model import Score, ScoreWarning

Status = Literal["scored", "pending", "not_scored", "failed"]


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """The score of an answer, or why there is none: it is still made, cannot be, or has failed.

    `owner`: the mark of the key under which it may be fetched. `withheld`: the model's own text where its
    caller had an abstaining one sent in its stead. `failure`: for the log alone.
    """

    id: str
    owner: str
    status: Status = "pending"
    score: Score | None = None
    warning: ScoreWarning | None = None
    withheld: str | None = None
    failure: Exception | None = None

    def scored(self, score: Score) -> "Uncertainty":
        """Return it with its score, which takes the id that the caller knows already."""
        return replace(self, status="scored", score=replace(score, id=self.id))

    def failed(self, error: Exception) -> "Uncertainty":
        """Return it without one: not to be had for this answer, or failed."""
        if isinstance(error, Unscorable):
            return self.not_scored(error.code, error.message)
        if isinstance(error, NoUsableAnswers):
            return replace(self.not_scored(error.code, error.detail), failure=error)
        told = ScoreWarning("internal", "Something went wrong in the service; its log has the details.")
        if isinstance(error, EigencalError):
            told = ScoreWarning(error.code, error.detail)
        return replace(self, status="failed", warning=told, failure=error)

    def not_scored(self, code: str, message: str) -> "Uncertainty":
        """Return it with the reason why this answer has no score."""
        return replace(self, status="not_scored", warning=ScoreWarning(code, message))


def new_uncertainty(owner: str) -> Uncertainty:
    """Return that of an answer which is still to come, under a new id."""
    return Uncertainty(new_id("scr"), owner)
