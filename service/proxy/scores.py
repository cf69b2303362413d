"""The scores of chats' answers. A failed score never fails an answer: the score's document has the reason."""

import asyncio
import json
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from service.errors import EigencalError, NoUsableAnswers, Overloaded, Unscorable
from service.http.problems import report as report_error
from service.llm.samples import Draw
from service.proxy.call import Call
from service.scoring.score import Score, mark
from service.scoring.scorer import Samples
from service.scoring.service import ScoringService

T = TypeVar("T")
# Fields of a score that the chat response already has.
NOT_REPEATED = ("id", "answer")
MAX_PENDING = 256  # scores that nobody waits for; the answers of each stay in memory
# Arguments of exceptions, not exceptions: an exception that is raised repeatedly keeps every traceback.
BUSY = ("overloaded", "Too many scores are running in the background: this one is left out.")
STOPPED = ("overloaded", "The service was stopped before the score was made.")
NO_LOGPROB = (
    "no_log_probability",
    "The LLM server returned no log-probability of the whole answer, which a score without samples needs.",
)
OTHER_TEXT = (
    "no_log_probability",
    "The log-probabilities from the LLM server belong to another text. A score without samples needs them.",
)
CUT = ("incomplete", "The answer was cut by its token limit, so its log-probability covers only a part.")


class AnswerScores:
    """Draws for the answers of calls, scores the answers, and reports each score to `service`.

    `tasks`: all running scores and draws.
    """

    def __init__(self, service: ScoringService) -> None:
        self.tasks = set[asyncio.Task[Any]]()
        self._service = service
        self._num_pending = 0

    async def stop(self) -> None:
        """Cancel all running tasks; idempotent."""
        tasks = set(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def require_room(self) -> None:
        """Raise Unscorable if no more scores may continue in the background."""
        if self._num_pending >= MAX_PENDING:
            raise Unscorable(*BUSY)

    def draw(self, call: Call) -> None:
        """Start to draw the samples, unless they may be unnecessary; idempotent."""
        if call.command is not None and call.drawing is None and not call.is_judged_alone:
            # The score's time does not include the wait for a stream's first token.
            command = replace(call.command, arrived=time.perf_counter())
            call.drawing = self._run(self._service.scorer.draw(command))

    def judge(self, call: Call) -> "asyncio.Task[None]":
        """Start to score the answer, which has ended."""
        call.scoring = self._run(self._score(call))
        return call.scoring

    async def leave(self, call: Call) -> None:
        """Cancel a score that nobody waits for, and wait until it has released the LLM."""
        tasks = [task for task in (call.scoring, call.drawing) if task is not None and not call.is_pending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def document(self, call: Call) -> dict[str, Any]:
        """Return the score as a JSON object. A score that is not ready goes on in the background."""
        assert call.scoring is not None
        if call.scoring.cancelled():
            self.report(call, Unscorable(*STOPPED))
        elif not call.scoring.done() and self._num_pending < MAX_PENDING:
            call.is_pending = True
            self._num_pending += 1
            self.report(call)
        elif not call.scoring.done():
            call.scoring.cancel()
            self.report(call, Unscorable(*BUSY))
        return call.document

    def report(self, call: Call, failure: Exception | None = None) -> None:
        """Count and store what has become of a score: it is made, has failed, or is pending."""
        metrics, document = self._service.metrics, dict[str, Any](id=call.id, status="pending")
        if failure is not None:
            document |= _reason(failure)
        elif call.score is not None:
            document |= {"status": "scored", **_fields(call.score, with_marks=call.options.mark)}
            metrics.scored(call.score, call.answer.id)
        if call.is_pending and document["status"] != "pending":
            self._num_pending -= 1
            metrics.was_pending(call.score)
        code = document.get("warning", {}).get("code")
        if code == Overloaded.code:
            metrics.was_shed()
        if failure is not None and not isinstance(failure, Unscorable):
            metrics.failed(code, call.answer.id)
            report_error(failure, None, f"the score {call.id} of an answer")
        call.document = document
        self._service.kept.save(call.id, call.owner, json.dumps(document))

    def _run(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _score(self, call: Call) -> None:
        try:
            call.score = await self._scored(call)
            self.report(call)
        except asyncio.CancelledError:
            if call.is_pending:  # the service stops; else the score would stay pending for ever
                self.report(call, Unscorable(*STOPPED))
            raise
        except Exception as error:
            if call.drawing is not None:
                call.drawing.cancel()
            self.report(call, error)

    async def _scored(self, call: Call) -> Score:
        if call.failure is not None:
            raise call.failure
        candidate = call.answer.candidate()
        call.judged = candidate.text
        score = await self._service.scorer.finish(await self._samples(call, candidate), candidate.text)
        changed: dict[str, Any] = {"id": call.id}  # which the caller already has
        begin = call.answer.text.rfind(candidate.text)  # the last: reasoning may contain the same words
        if score.claims is not None and begin > 0:
            changed["claims"] = [
                claim.model_copy(update={"start": claim.start + begin, "end": claim.end + begin})
                for claim in score.claims
            ]
        return score.model_copy(update=changed)

    async def _samples(self, call: Call, candidate: Draw) -> Samples:
        """Return the samples, or none if the answer is judged by its own log-probability.

        Raises Unscorable if it has none, or was cut, and no samples are allowed.
        """
        command, logprob = call.command, candidate.total_logprob
        assert command is not None
        answers: tuple[Draw, ...] = (candidate,)
        if call.is_judged_alone and logprob is not None and not candidate.truncated:
            alone = replace(command, num_samples=0, candidate_logprob=logprob, arrived=time.perf_counter())
            drawn = await self._service.scorer.draw(alone)
            drawn = replace(drawn, generation=replace(drawn.generation, model=call.answer.model))
        elif command.draws_none:
            missing = OTHER_TEXT if candidate.logprobs_of_other_text else NO_LOGPROB
            raise Unscorable(*(missing if logprob is None else CUT))
        else:
            call.is_judged_alone = False
            self.draw(call)
            assert call.drawing is not None
            drawn = await call.drawing
            answers = drawn.generation.draws
        drawn = _under_limit(drawn, answers, self._service.serving.messages_sampling.max_tokens)
        tokens = () if candidate.logprobs_of_other_text else call.answer.tokens
        return replace(drawn, command=replace(drawn.command, candidate_tokens=tokens))


def _under_limit(drawn: Samples, answers: Sequence[Draw], limit: int) -> Samples:
    """Return the samples with the token limit that the answers are compatible with.

    `limit`: of the settings. Answers drawn under a larger limit count as drawn under it if none is longer.
    Answers drawn under the call's smaller limit do so too, if that limit cut none.
    """
    command, generation = drawn.command, drawn.generation
    counted = [answer.num_tokens for answer in answers if answer.num_tokens is not None]
    all_counted = len(counted) == len(answers) + generation.num_empty
    # If a count is missing, the sum over all samples is an upper bound of the longest.
    longest = max(counted) if all_counted else generation.usage.completion_tokens
    if generation.max_tokens is not None and any(answer.truncated for answer in answers):
        limit = generation.max_tokens
    elif not 0 < longest <= limit:
        return drawn
    sampling = replace(command.sampling, max_tokens=limit)
    return replace(drawn, command=replace(command, sampling=sampling))


def _fields(score: Score, *, with_marks: bool) -> dict[str, Any]:
    """Return the fields of a score that the answer does not have."""
    fields = {name: value for name, value in score.document().items() if name not in NOT_REPEATED}
    # P(correct) of the chat's answer; in POST /score, the field is about a sample.
    fields["probability_correct"] = score.decisive
    if with_marks and score.claims is not None:
        fields["marks"] = [mark(claim).model_dump() for claim in score.claims]
    return fields


def _reason(failure: Exception) -> dict[str, Any]:
    """Return the status and the warning. No field is named `error`, because clients would raise on it."""
    status = "not_scored" if isinstance(failure, Unscorable | NoUsableAnswers) else "failed"
    code, message = "internal", "Something went wrong in the service; its log has the details."
    if isinstance(failure, Unscorable):
        code, message = failure.code, failure.message
    elif isinstance(failure, EigencalError):
        code, message = failure.code, failure.full_detail
    return {"status": status, "warning": {"code": code, "message": message}}
