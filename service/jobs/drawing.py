"""The sampling stage: draw the answers that a row lacks, keep them as soon as they are there."""

import logging
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypedDict

from service.calibration.calibration import Fingerprint, service_fingerprint
from service.calibration.rows import DevRow, StoredRow
from service.embedding.port import Embedder, EmbedderIdentity, usable
from service.errors import Conflict, LLMError
from service.jobs.store import RunningJob, SqlJobs
from service.jobs.waiting import LiveFirst, Notify, Patience, embedder_identity, refuses
from service.llm.port import Generation, GenerationRequest, LanguageModel, Priority
from service.scoring.score import Serving

logger = logging.getLogger(__name__)

DRAWN_AGAIN = 2  # times the answers asked for: so many are drawn at most where some hold no text


class Refusal(TypedDict):
    """The LLM server refused a row. `any_answered`: whether it has ever answered one of its job."""

    reason: str
    any_answered: bool


def row_request(serving: Serving, row: DevRow, num_samples: int) -> GenerationRequest:
    """Return the request for so many answers to a row; live scoring goes before it."""
    prompt = (row.prompt or "") if row.messages is None else None
    return serving.request(
        prompt=prompt, messages=row.messages, num_samples=num_samples, priority=Priority.JOB
    )


def check_same(bound: Fingerprint, now: Fingerprint) -> None:
    """Raise Conflict when answers would come from another set-up than those already drawn."""
    differs = bound.differs(now)
    if "model" in differs:
        raise Conflict(
            "Answers of one calibration must all come from one model, but these come from two: first "
            f"{bound.model!r} answered, then {now.model!r}."
        )
    if differs:
        raise Conflict(
            "Answers of one calibration must all be drawn alike, but these parts differ between its rows, or "
            f"have changed since it began: {', '.join(differs)}."
        )


@dataclass(eq=False)
class Drawer:
    """Draws answers for one row after another; live scoring goes first."""

    llm: LanguageModel
    embedder: Embedder
    jobs: SqlJobs
    serving: Serving
    live_first: LiveFirst = field(default_factory=LiveFirst)
    patience: Patience = field(default_factory=Patience)

    def fingerprint(
        self, row: DevRow, embedder: EmbedderIdentity, drawn: Generation | None = None
    ) -> Fingerprint:
        """Return what answers to this row were drawn with; without them, what they would be now."""
        request = row_request(self.serving, row, 1)
        identity = self.llm.identity(request)
        return service_fingerprint(identity.of(drawn) if drawn else identity, request.sampling, embedder)

    def generation_key(self, row: DevRow) -> Hashable:
        """Return the same value for rows that are drawn alike; it is known before the model is."""
        request = row_request(self.serving, row, 1)
        return replace(self.llm.identity(request), model=""), request.sampling

    async def learn_model(self, row: DevRow, notify: Notify) -> None:
        """Make the model that answers known, which takes one answer where none has been drawn yet."""
        request = row_request(self.serving, row, 1)
        if not self.llm.identity(request).answered:
            await self.patience.keep_trying(lambda: self.llm.generate(request), notify)

    async def draw(self, job_id: str, line: int, *, final: bool = False) -> Refusal | None:
        """Draw what a row lacks, and keep it; return why not where the LLM server refuses this very row.

        A server that refuses everything is waited for: a control request, for one answer to a row that was
        answered before, tells. Before the first answer nothing tells, and the caller decides.
        final: a refusal is stored. Raises JobEndedError, and the EigencalError that the job fails with.
        """
        notify = partial(self.jobs.note, job_id)
        while True:
            job, stored = await self.jobs.running(job_id), await self.jobs.row(job_id, line)
            try:
                await self._draw(job, stored, notify)
            except LLMError as error:
                if not refuses(error):
                    raise
                control = await self.jobs.answered_row(job_id)
                if control is not None and not await self._answers(control.row, notify):
                    continue
                if control is not None and final:
                    logger.warning("the LLM server refused the row on line %d for good", line)
                    await self.jobs.refuse(job_id, line, error.full_detail)
                return {"reason": error.full_detail, "any_answered": control is not None}
            else:
                return None

    async def _answers(self, row: DevRow, notify: Notify) -> bool:
        """Return whether the server answers a row as it did before; where it does not, wait until it does."""
        request = row_request(self.serving, row, 1)
        try:
            await self._ask(request, notify)
        except LLMError as error:
            if not refuses(error):
                raise
            await self._ask(request, notify, refusals_pass=True)
            return False
        return True

    async def _ask(
        self, request: GenerationRequest, notify: Notify, *, refusals_pass: bool = False
    ) -> Generation:
        """Return answers, at least one, once it is our turn and the server is there."""

        async def in_turn() -> Generation:
            async with self.live_first.turn():
                return await self.llm.generate(request)

        return await self.patience.keep_trying(in_turn, notify, refusals_pass=refusals_pass)

    async def _draw(self, job: RunningJob, stored: StoredRow, notify: Notify) -> None:
        wanted, bound = job.options.num_samples or self.serving.num_samples, job.fingerprint
        draws = stored.draws[:wanted]
        left = DRAWN_AGAIN * wanted - len(draws)
        complete = stored.complete
        while not complete:
            request = row_request(self.serving, stored.row, min(wanted - len(draws), left))
            got = await self._ask(request, notify)
            embedder = await embedder_identity(self.embedder, self.patience, notify)
            drawn_with = self.fingerprint(stored.row, embedder, got)
            # Bound before the first answer is kept; answers of another set-up are refused after that.
            bound = bound or await self.jobs.bind(job.id, drawn_with)
            check_same(bound, drawn_with)
            draws = (*draws, *usable(got.draws, self.embedder.empty_answers))[:wanted]
            left -= len(got.draws)
            complete = len(draws) == wanted or left <= 0
            await self.jobs.keep_draws(job.id, stored.row.line, draws, complete=complete)
