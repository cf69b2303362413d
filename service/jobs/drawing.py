"""The sampling stage: draw the answers that a row lacks, keep them as soon as they are there."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import partial

from service.calibration.calibration import Fingerprint, service_fingerprint
from service.calibration.rows import DevRow
from service.embedding.port import Embedder, EmbedderIdentity, usable
from service.errors import Conflict, LLMError
from service.jobs.store import RunningJob, SqlJobs
from service.jobs.waiting import REFUSALS, LiveFirst, Notify, Patience, embedder_identity
from service.llm.port import Generation, GenerationRequest, LanguageModel, Priority
from service.scoring.score import Serving

DRAWN_AGAIN = 2  # times the answers asked for: so many are drawn at most where some hold no text


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

    async def draw(self, job_id: str, line: int, *, final: bool = False) -> str | None:
        """Draw what a row lacks, and keep it; return why not where the LLM server refuses the row.

        final: a refusal is stored. Raises JobEndedError, and the EigencalError that the job fails with.
        """
        job, stored = await self.jobs.running(job_id), await self.jobs.row(job_id, line)
        try:
            await self._draw(job, stored, partial(self.jobs.note, job_id))
        except LLMError as error:
            if error.extra.get("llm_status") not in REFUSALS:
                raise
            if final:
                await self.jobs.refuse(job_id, line, error.full_detail)
            return error.full_detail
        return None

    async def _draw(self, job: RunningJob, stored: DevRow, notify: Notify) -> None:
        wanted, bound = job.options.num_samples or self.serving.num_samples, job.fingerprint
        draws = stored.draws[:wanted]
        left = DRAWN_AGAIN * wanted - len(draws)
        complete = stored.complete
        while not complete:
            request = row_request(self.serving, stored, min(wanted - len(draws), left))
            got = await self.patience.keep_trying(partial(self._ask, request), notify)
            embedder = await embedder_identity(self.embedder, self.patience, notify)
            drawn_with = self.fingerprint(stored, embedder, got)
            # Bound before the first answer is kept; answers of another set-up are refused after that.
            bound = bound or await self.jobs.bind(job.id, drawn_with)
            check_same(bound, drawn_with)
            draws = (*draws, *usable(got.draws, self.embedder.empty_answers))[:wanted]
            left -= len(got.draws)
            complete = len(draws) == wanted or left <= 0
            await self.jobs.keep_draws(job.id, stored.line, draws, complete=complete)

    async def _ask(self, request: GenerationRequest) -> Generation:
        async with self.live_first.turn():
            return await self.llm.generate(request)
