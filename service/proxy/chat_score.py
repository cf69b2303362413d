"""The score of a chat answer: its sampling plan, its background tasks and the document that its caller gets.

A failed score never fails the answer: errors become a status and a warning of the score.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from service.errors import EigencalError, EmbedderUnavailable, NoUsableAnswers, Unscorable
from service.ids import new_id
from service.llm.prompt import GenerationRequest, Priority, WirePrompt
from service.llm.samples import Draw, is_blank
from service.llm.wire import FAILED as GIVEN_UP
from service.llm.wire import NONSENSE, Choice, whole_choice
from service.scoring.score import Score, ScoreCommand, ScoreWarning, Serving, mark, warning
from service.scoring.scorer import Samples, Scorer

T = TypeVar("T")
Status = Literal["scored", "pending", "not_scored", "failed"]

ID_HEADER = "X-Score-ID"
# Fields of a score that the chat response already has.
NOT_REPEATED = ("id", "answer")
MAX_DETACHED = 256  # scores that nobody waits for; the answers of each stay in memory
BUSY = Unscorable("overloaded", "Too many scores are running in the background: this one is left out.")
STOPPED = Unscorable("overloaded", "The service was stopped before the score was made.")
# Arguments of exceptions, not exceptions: an exception that is raised repeatedly keeps every traceback.
NO_LOGPROB = (
    "no_log_probability",
    "The LLM server returned no log-probability of the whole answer, which a score without samples needs.",
)
OTHER_TEXT = (
    "no_log_probability",
    "The log-probabilities from the LLM server belong to another text. A score without samples needs them.",
)
CUT = ("incomplete", "The answer was cut by its token limit, so its log-probability covers only a part.")
NO_TEXT = ("no_text", "The answer has no text, or only reasoning: there is nothing to judge.")


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """The score of an answer, or the reason why there is none: pending, not possible, or failed.

    `owner`: hash of the API key that may fetch the score. `withheld`: the model's text, if the caller asked
    for abstaining and got the abstention text instead. `marks`: whether to mark the claims. `response_id`:
    the LLM server's id of the answer; "" if unknown. `failure`: the exception, used only for logging.
    """

    id: str
    owner: str
    status: Status = "pending"
    score: Score | None = None
    warning: ScoreWarning | None = None
    withheld: str | None = None
    marks: bool = False
    response_id: str = ""
    failure: Exception | None = None

    def failed(self, error: Exception) -> "Uncertainty":
        """Return a copy with status "not_scored" or "failed" and a warning that gives the reason."""
        if isinstance(error, Unscorable):
            return replace(self, status="not_scored", warning=warning(error.code, error.message))
        if isinstance(error, EigencalError):
            reason = warning(error.code, error.full_detail)
        else:
            reason = warning("internal", "Something went wrong in the service; its log has the details.")
        status: Status = "not_scored" if isinstance(error, NoUsableAnswers) else "failed"
        return replace(self, status=status, warning=reason, failure=error)

    def document(self) -> dict[str, Any]:
        """Return a JSON object. It has no field `error`, because clients would raise on it."""
        document: dict[str, Any] = {"id": self.id, "status": self.status}
        if self.score is not None:
            fields = self.score.document()
            # P(correct) of the chat's answer; in POST /score, the field is about a sample.
            fields["probability_correct"] = self.score.decisive
            document |= {name: value for name, value in fields.items() if name not in NOT_REPEATED}
            if self.marks and self.score.claims is not None:
                document["marks"] = [mark(claim).model_dump() for claim in self.score.claims]
        if self.warning is not None:
            document["warning"] = {"code": self.warning.code, "message": self.warning.message}
        if self.withheld is not None:
            document["withheld"] = self.withheld
        return document


@dataclass(frozen=True, slots=True)
class Plan:
    """The samples to draw for the score of an answer.

    `limit`: the settings' token limit of an answer. `needs_logprobs`: the score needs the log-probabilities
    of the caller's answer, and the call does not ask for them. `marks`: whether to mark the answer's claims.
    `fallback`: the plan that replaces one without samples if `auto` chose it and the answer has no usable
    log-probability.
    """

    command: ScoreCommand
    limit: int
    needs_logprobs: bool = False
    marks: bool = False
    fallback: "Plan | None" = None

    def with_caller_answer(self, drawn: Samples, answer: Draw, model: str) -> Samples:
        """Return the samples that the score is based on.

        Without samples, the caller's answer is judged by its own log-probability. Raises Unscorable if it has
        none, or was cut.
        """
        if not self.command.draws_none:
            return self._as_limited(drawn)
        if answer.total_logprob is None:
            raise Unscorable(*(OTHER_TEXT if answer.logprobs_of_other_text else NO_LOGPROB))
        if answer.truncated:
            raise Unscorable(*CUT)
        undrawn = replace(drawn.generation, model=model)
        # The answer determines the token limit, as if it were a sample.
        command = self._as_limited(replace(drawn, generation=replace(undrawn, draws=(answer,)))).command
        command = replace(command, candidate_logprob=answer.total_logprob)
        return replace(drawn, generation=undrawn, command=command)

    def _as_limited(self, drawn: Samples) -> Samples:
        """Return the samples with the token limit that they are compatible with.

        Samples drawn under a larger limit count as drawn under the settings' limit if none is longer than it.
        Samples drawn under the caller's smaller limit do so too if that limit cut none.
        """
        request, generation = drawn.command.generation, drawn.generation
        assert request is not None
        counted = [draw.num_tokens for draw in generation.draws if draw.num_tokens is not None]
        all_counted = len(counted) == len(generation.draws) + generation.num_empty
        # If a count is missing, the sum over all samples is an upper bound of the longest.
        longest = max(counted) if all_counted else generation.usage.completion_tokens
        if generation.max_tokens is not None and any(draw.truncated for draw in generation.draws):
            limit = generation.max_tokens
        elif 0 < longest <= self.limit:
            limit = self.limit
        else:
            return drawn
        sampling = replace(request.sampling, max_tokens=limit)
        return replace(drawn, command=replace(drawn.command, generation=replace(request, sampling=sampling)))


def plan_for(
    body: Mapping[str, Any],
    serving: Serving,
    options: ScoreCommand,
    num_samples: int,
    recommended: Callable[[ScoreCommand], int | None],
    priority: Priority,
    *,
    marks: bool,
) -> Plan:
    """Return the plan for scoring the answer to a chat with this body. Raises Unscorable.

    `options`: a command with the caller's options, without a request. `recommended`: returns the number of
    samples that the calibration recommends, or None; may raise EmbedderUnavailable.
    """
    sampling = serving.messages_sampling
    model, limit = body.get("model"), _call_limit(body)
    if type(limit) is not int:
        limit = sampling.max_tokens
    request = GenerationRequest(
        num_samples=num_samples,
        sampling=sampling,
        wire=wire_prompt(body),
        model=model if isinstance(model, str) and model else None,
        priority=priority,
        # The context may have no room for more than the call's limit.
        fallback_max_tokens=limit if 0 < limit < sampling.max_tokens else None,
    )
    command = replace(options, generation=request, as_recommended=False)
    number = None
    if options.as_recommended:
        with suppress(EmbedderUnavailable):  # the score will report it
            number = recommended(command)
    limited = replace(sampling, max_tokens=max(limit, sampling.max_tokens))
    unasked = body.get("logprobs") is None or body["logprobs"] is False

    def drawing(number: int) -> Plan:
        drawn = replace(request, num_samples=number, sampling=limited)
        of_request = replace(command, generation=drawn)
        return Plan(of_request, sampling.max_tokens, unasked and number == 0, marks)

    if number == 0:
        return replace(drawing(0), fallback=drawing(num_samples))
    return drawing(num_samples if number is None else number)


# The prompt of the samples.

# Sampling parameters of the call. Samples use the calibrated sampling.
SAMPLED = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "n",
        "best_of",
        "seed",
        "min_p",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "logit_bias",
        "use_beam_search",
        "min_tokens",
        "ignore_eos",
    }
)
# Parameters that do not change the answer, only its format or accounting.
ASIDE = frozenset(
    {
        "model",
        "stream",
        "stream_options",
        "logprobs",
        "top_logprobs",
        "prompt_logprobs",
        "echo",
        "user",
        "metadata",
        "store",
        "service_tier",
        "priority",
        "request_id",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
    }
)
PLAIN_ROLES = frozenset({"system", "user", "assistant"})
PLAIN_TURN = frozenset({"role", "content"})
# Members that have no effect at these values.
SILENT: dict[str, Any] = {
    "response_format": {"type": "text"},
    "modalities": ["text"],
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "include_stop_str_in_output": False,
    "add_generation_prompt": True,
    "continue_final_message": False,
    "add_special_tokens": False,
    "detokenize": True,
    "include_reasoning": True,
    "return_token_ids": False,
    "parallel_tool_calls": True,
}
# Members that have no effect without tools.
ABOUT_TOOLS = frozenset({"tool_choice", "function_call", "parallel_tool_calls"})


def wire_prompt(body: Mapping[str, Any]) -> WirePrompt:
    """Return the members of a chat that determine the answer, except for sampling parameters.

    A prompt of turns of plain text has no marks. Raises Unscorable.
    """
    fields = {name: value for name, value in body.items() if name == "messages" or not _is_empty(value)}
    aside = {"messages"} | ASIDE | SAMPLED
    if not {"tools", "functions"} & fields.keys():
        aside |= ABOUT_TOOLS
    marks = {name: value for name, value in fields.items() if name not in aside and SILENT.get(name) != value}
    turns = fields.get("messages")
    prompt_marks = _marks_of_turns(turns)
    # Calibrations have no such chats. Some servers continue the last turn, others begin a new one.
    if turns and turns[-1].get("role") == "assistant":
        prompt_marks["last_turn"] = "assistant"
    return WirePrompt({"messages": turns, **marks}, marks | prompt_marks)


def _is_empty(value: object) -> bool:
    """Return True for a value equivalent to a missing member, such as LiteLLM's {"refusal": None}."""
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    return value in (None, "", [])


def _call_limit(body: Mapping[str, Any]) -> Any:
    return body.get("max_completion_tokens") or body.get("max_tokens")


def _marks_of_turns(turns: object) -> dict[str, Any]:
    """Return the kinds of members and parts in the turns that are not plain text. Raises Unscorable.

    Their contents are left out: they are not part of a prompt's shape.
    """
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise Unscorable("unreadable_request", "The call's `messages` is not a list of turns.")
    strange = {name for turn in turns for name, value in turn.items() if not _is_empty(value)} - PLAIN_TURN
    for turn in turns:
        content = turn.get("content")
        strange |= {str(turn.get("role"))} - PLAIN_ROLES
        if isinstance(content, list):
            strange |= {_kind(part) for part in content} - {"text"}
        elif not isinstance(content, str | None):
            strange.add("unknown")
    return {"turns": sorted(strange)} if strange else {}


def _kind(part: object) -> str:
    if not isinstance(part, dict) or (part.get("type") == "text" and not isinstance(part.get("text"), str)):
        return "unknown"
    return str(part.get("type"))


def is_first(choice: object) -> bool:
    """Return True for the choice that is judged. Servers that return one choice may omit its index."""
    return isinstance(choice, dict) and not choice.get("index")


def choices_of(payload: Mapping[str, Any]) -> list[Any]:
    """Return the choices of an answer or of a chunk."""
    choices = payload.get("choices")
    return choices if isinstance(choices, list) else []


def first_choice(payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the choice that is judged, or None."""
    return next(filter(is_first, choices_of(payload)), None)


def judged_choice(payload: Mapping[str, Any]) -> Choice | None:
    """Return the choice that is judged of a complete answer, or None."""
    choice = first_choice(payload)
    try:
        return None if choice is None else whole_choice(choice)
    except NONSENSE:
        return None


def require_text(choice: Choice | None) -> Choice:
    """Return the choice. Raises Unscorable if it has no text or was aborted. Empty text is allowed."""
    if choice is None:
        raise Unscorable("incomplete", "The answer has no choice.")
    if choice.other_fields & {"tool_calls", "function_call"}:
        raise Unscorable("no_text", "The answer calls a tool: it has no text to judge.")
    if "refusal" in choice.other_fields and not choice.text:
        raise Unscorable("no_text", "The model refused to answer: there is no answer to judge.")
    if "audio" in choice.other_fields and not choice.text:
        raise Unscorable("no_text", "The answer is audio, not text.")
    if choice.finish_reason in GIVEN_UP:
        raise Unscorable("incomplete", "The LLM server aborted the answer.")
    return choice


def with_places_in(text: str, judged: str, score: Score) -> Score:
    """Return the score with the places of its claims in `text`, which contains the judged text."""
    begin = text.rfind(judged)  # the last: reasoning before it may contain the same words
    if begin < 1 or score.claims is None:
        return score
    claims = [
        claim.model_copy(update={"start": claim.start + begin, "end": claim.end + begin})
        for claim in score.claims
    ]
    return score.model_copy(update={"claims": claims})


class ChatScorer:
    """Starts scores and keeps the tasks of those that continue after the answer was sent.

    `report` is called with each score that is done, has
    failed, or continues in the background. `tasks`: all running tasks. `detached`: those that nobody waits
    for.
    """

    def __init__(self, scorer: Scorer, report: Callable[[Uncertainty], None]) -> None:
        self.scorer = scorer
        self.report = report
        self.detached: set[asyncio.Task[Any]] = set()
        self.tasks: set[asyncio.Task[Any]] = set()

    @property
    def has_room(self) -> bool:
        """Return True if one more score may continue in the background."""
        return len(self.detached) < MAX_DETACHED

    async def stop(self) -> None:
        """Cancel all running tasks; idempotent."""
        tasks = set(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def run(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run a coroutine in a task that `stop` ends."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        self.detached.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio logs it when nobody awaits the task


class RunningScore:
    """One score: `start` draws the samples, `judge` takes the answer, `wait` returns the outcome.

    An Unscorable plan becomes the warning. `owner`: see `Uncertainty`.
    The creator must call `discard` at the end. It does nothing to a score that continues in the background.
    """

    def __init__(self, scorer: ChatScorer, plan: Plan | Unscorable, owner: str) -> None:
        self._scorer = scorer
        self._plan = plan
        marks = isinstance(plan, Plan) and plan.marks
        self.uncertainty = Uncertainty(new_id("scr"), owner, marks=marks)  # as last reported
        self.judged_text: str | None = None
        self.choice_text: str | None = None  # with its reasoning; claims have their places in it
        self._draws: asyncio.Task[Samples] | None = None
        self._judged: asyncio.Task[Uncertainty] | None = None
        self._is_detached = False

    @property
    def needs_logprobs(self) -> bool:
        """Return True if the score needs log-probabilities that the call does not ask for."""
        return isinstance(self._plan, Plan) and self._plan.needs_logprobs

    def start(self) -> None:
        """Start to draw the samples; idempotent."""
        if self._draws is None and isinstance(self._plan, Plan):
            self._draws = self._drawing(self._plan)

    def _drawing(self, plan: Plan) -> "asyncio.Task[Samples]":
        # The score's time does not include the wait for a stream's first token.
        command = replace(plan.command, arrived=time.perf_counter())
        return self._scorer.run(self._scorer.scorer.draw(command))

    def judge(self, choice: Choice | None, model: str, response_id: str) -> None:
        """Start to judge the first choice of the answer, or None.

        `model`: the model that wrote it. `response_id`: see `Uncertainty`.
        """
        self.uncertainty = replace(self.uncertainty, response_id=response_id)
        self.start()
        self._judged = self._scorer.run(self._finish(choice, model))

    async def wait(self, max_s: float | None) -> Uncertainty:
        """Return the outcome, or status "pending" after `max_s` seconds; the score then continues.

        `max_s` None: do not wait. Call `judge` first.
        """
        assert self._judged is not None
        if max_s is not None:
            await asyncio.wait({self._judged}, timeout=max_s)
        if self._judged.done() and not self._judged.cancelled():
            return self._judged.result()
        if not self._scorer.has_room:
            self._cancel()
            return self._report(self.uncertainty.failed(BUSY))
        self._is_detached = True
        self._scorer.detached.add(self._judged)
        return self._report(self.uncertainty)

    async def discard(self, reason: Exception | None = None) -> None:
        """Cancel the score. `reason`: reported under its id, which the caller may have already."""
        if self._is_detached:
            return
        cancelled = self._cancel()
        if reason is not None and self._judged is None:
            self._report(self.uncertainty.failed(reason))
        # Wait until the tasks have released the LLM.
        await asyncio.gather(*cancelled, return_exceptions=True)

    def _cancel(self) -> list[asyncio.Task[Any]]:
        running = [task for task in (self._judged, self._draws) if task is not None and not task.done()]
        for task in running:
            task.cancel()
        return running

    async def _finish(self, choice: Choice | None, model: str) -> Uncertainty:
        try:
            score = await self._score(choice, model)
            score = score.model_copy(update={"id": self.uncertainty.id})  # which the caller already has
            return self._report(replace(self.uncertainty, status="scored", score=score))
        except asyncio.CancelledError:
            if self._is_detached:  # the service stops; else the score would stay pending for ever
                self._report(self.uncertainty.failed(STOPPED))
            raise
        except Exception as error:
            if self._draws is not None:
                self._draws.cancel()
            return self._report(self.uncertainty.failed(error))

    async def _score(self, answer: Choice | None, model: str) -> Score:
        plan = self._plan
        if isinstance(plan, Unscorable):
            raise Unscorable(plan.code, plan.message)
        assert self._draws is not None
        choice = require_text(answer)
        draw = choice.draw().answer()
        if is_blank(draw.text):
            raise Unscorable(*NO_TEXT)
        self.judged_text, self.choice_text = draw.text, choice.text
        if plan.fallback is not None and (draw.total_logprob is None or draw.truncated):
            # This is known only once the answer is there, so these samples are drawn after it.
            plan = plan.fallback
            self._draws.cancel()
            self._draws = self._drawing(plan)
        drawn = plan.with_caller_answer(await self._draws, draw, model)
        with_logprob = [(text, value) for text, value in choice.tokens if value is not None]
        is_complete = len(with_logprob) == len(choice.tokens) and not draw.logprobs_of_other_text
        tokens = tuple(with_logprob) if is_complete else ()
        drawn = replace(drawn, command=replace(drawn.command, candidate_tokens=tokens))
        score = await self._scorer.scorer.finish(drawn, draw.text)
        return with_places_in(choice.text, draw.text, score)

    def _report(self, uncertainty: Uncertainty) -> Uncertainty:
        self.uncertainty = uncertainty
        self._scorer.report(uncertainty)
        return uncertainty
