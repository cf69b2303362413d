"""Getting to know an LLM: a first calibration, fitted on bundled questions (**ours**, method, section 9).

The questions are easy ones of our own and hard ones of TriviaQA (Apache 2.0); see `questions.txt`.
A service that meets an LLM for the first time asks them in a job, with the lowest priority.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from service.calibration.calibration import Fingerprint
from service.calibration.rows import DevRow
from service.calibration.store import SqlCalibrations
from service.errors import EigencalError, LLMError
from service.jobs.model import Job, JobOptions
from service.jobs.runner import DurableJobs
from service.llm.client import LLM
from service.llm.prompt import GenerationRequest, Message, Priority
from service.scoring.choice import CalibrationChoice
from service.scoring.score import Serving

logger = logging.getLogger(__name__)
QUESTIONS = Path(__file__).with_name("questions.jsonl")
VERSION = 1  # of the questions; an LLM that is known is not asked new ones
OPEN_S, QUIET_S = 2.0, 15.0  # between two looks, while a job runs and otherwise
RETRY_S = 3600.0  # between two tries after a failed job, or after the LLM has refused a prompt


@cache
def bundled_rows(*, as_messages: bool = False) -> tuple[DevRow, ...]:
    """Return the bundled questions as rows without answers: prompts, or conversations of one turn."""
    rows = list[DevRow]()
    for line, text in enumerate(QUESTIONS.read_text("utf-8").splitlines(), start=1):
        row = json.loads(text)
        prompt, references = row["prompt"], tuple(row["reference"])
        if as_messages:
            rows.append(DevRow(line, None, references, messages=(Message("user", prompt),)))
        else:
            rows.append(DevRow(line, None, references, prompt=prompt))
    return tuple(rows)


class GetToKnow:
    """Starts a job for each way of asking that has no calibration yet: prompts, and conversations.

    own: the fingerprints of prompts and of conversations, empty while the embedder is unknown. choice: gets
    the progress, for the warnings of scores.
    """

    def __init__(
        self,
        jobs: DurableJobs,
        calibrations: SqlCalibrations,
        llm: LLM,
        serving: Serving,
        own: Callable[[], Sequence[Fingerprint]],
        choice: CalibrationChoice,
    ) -> None:
        self._jobs = jobs
        self._calibrations = calibrations
        self._llm = llm
        self._serving = serving
        self._own = own
        self._choice = choice
        self._job_of = dict[str, str]()  # id of the job by fingerprint key
        self._retry_at = 0.0
        self._refused_until = 0.0
        self._setup_key, _ = jobs.store.setup.keys()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to look for LLMs that are not known yet."""
        self._task = asyncio.create_task(self._looking(), name="get-to-know")

    async def stop(self) -> None:
        """Stop looking; jobs go on. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _looking(self) -> None:
        while True:
            is_open = False
            try:
                is_open = await self.look()
            except EigencalError as error:
                logger.debug("the LLM is not known yet: %s", error.full_detail)
            except Exception:
                logger.exception("getting to know the LLM failed")
            await asyncio.sleep(OPEN_S if is_open else QUIET_S)

    async def look(self) -> bool:
        """Start the jobs that are missing; return True while one is open. Raises EigencalError."""
        progress, is_open = list[str](), False
        for as_messages in (False, True):
            request = self._request(as_messages=as_messages)
            if not self._llm.identity(request).answered:
                # Conversations may be drawn in another way. They are asked when somebody has had one.
                if as_messages or time.monotonic() < self._refused_until:
                    continue
                try:
                    await self._llm.generate(request)
                except LLMError as error:
                    logger.info("the LLM refuses the first bundled question: %s", error.detail)
                    self._refused_until = time.monotonic() + RETRY_S
                    continue
            found = self._own()
            if len(found) < 2 or self._calibrations.active(key := found[as_messages].key()) is not None:
                continue
            job = await self._job(key, found[as_messages].model, as_messages=as_messages)
            if job is not None:
                is_open = is_open or job.state in ("queued", "running")
                progress.append(told(job))
        self._choice.progress = " ".join(dict.fromkeys(progress))
        return is_open

    def _request(self, *, as_messages: bool = False) -> GenerationRequest:
        row = bundled_rows(as_messages=as_messages)[0]
        return self._serving.request(
            prompt=row.prompt, messages=row.messages, num_samples=1, priority=Priority.JOB
        )

    async def _job(self, key: str, model: str, *, as_messages: bool) -> Job | None:
        """Return the job for a fingerprint, posted once by all replicas; None if it is known already."""
        if key not in self._job_of:
            if await self._calibrations.bundled(key) is not None:
                return None
            job, is_new = await self._jobs.submit(
                bundled_rows(as_messages=as_messages),
                JobOptions(name=f"what we know of {model}"[:200], bundled=True),
                idempotency_key=f"get-to-know {VERSION} {key} {self._setup_key}",
            )
            self._job_of[key] = job.id
            if is_new:
                logger.info("getting to know the LLM %s: job %s", model, job.id)
        known = await self._jobs.store.get(self._job_of[key])
        if known is not None and known.state == "failed" and time.monotonic() > self._retry_at:
            self._retry_at = time.monotonic() + RETRY_S
            return await self._jobs.queued(await self._jobs.store.retry(known.id))
        return known


def told(job: Job) -> str:
    """Return the progress of getting to know an LLM as a sentence."""
    if job.state in ("queued", "running"):
        so_far = f" ({job.stage}, {job.done} of {job.total})" if job.stage else ""
        return f"The service is getting to know this LLM: job {job.id}{so_far}."
    if job.error is not None:
        return f"Getting to know this LLM failed (job {job.id}): {job.error.detail}"
    if job.state == "cancelled":
        return f"Getting to know this LLM was cancelled (job {job.id}). Calibrate on questions of your own."
    return f"The bundled calibration is not in use (job {job.id}): {job.decision}"
