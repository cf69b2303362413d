"""The score beside an answer: what is drawn for it, how it runs, and what its caller is told.

The score may fail, the answer never does: nothing here raises into the answer's way.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from service.embedding.port import FAILED
from service.errors import EigencalError, NoUsableAnswers, Unscorable
from service.ids import new_id
from service.llm.port import (
    Api,
    Draw,
    GenerationRequest,
    Priority,
    PromptShape,
    Sampling,
    WirePrompt,
    is_blank,
)
from service.llm.wire import FAILED as GIVEN_UP
from service.llm.wire import NONSENSE, Choice, whole_choice
from service.scoring.score import Score, ScoreCommand, ScoreWarning, Serving, mark, warning
from service.scoring.scorer import MIN_SAMPLES, Drawn, Scorer

T = TypeVar("T")
Status = Literal["scored", "pending", "not_scored", "failed"]

ID_HEADER = "X-Score-ID"
# Fields of a score that the chat has of its own: the answer that is judged is the chat's.
NOT_REPEATED = ("id", "answer")
MAX_DETACHED = 256  # scores that nobody waits for: as many requests' answers are held in memory
BUSY = Unscorable("overloaded", "Too many scores are made that nobody waits for: this one is left out.")
STOPPED = Unscorable("overloaded", "The service was stopped before the score was made.")
# What is raised is made anew: one exception raised again and again would keep every traceback.
NO_LOGPROB = (
    "no_log_probability",
    "The LLM server tells no log-probability of the whole answer, and `effort` none judges by that alone.",
)
OTHER_TEXT = (
    "logprobs_of_other_text",
    "The log-probabilities of the LLM server belong to another text, and `effort` none judges by them alone.",
)
CUT = ("cut", "The answer was cut by its limit of tokens: its log-probability is not of a whole one.")
NO_TEXT = ("no_text", "The answer holds no text, or only reasoning: there is nothing to judge.")


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """The score of an answer, or why there is none: it is still made, cannot be, or has failed.

    `owner`: the mark of the key under which it may be fetched. `withheld`: the model's own text where its
    caller had an abstaining one sent in its stead. `marks`: whether to mark its claims. `failure`: for the
    log alone.
    """

    id: str
    owner: str
    status: Status = "pending"
    score: Score | None = None
    warning: ScoreWarning | None = None
    withheld: str | None = None
    marks: bool = False
    failure: Exception | None = None

    def scored(self, score: Score) -> "Uncertainty":
        """Return it with its score, which takes the id that the caller knows already."""
        return replace(self, status="scored", score=score.model_copy(update={"id": self.id}))

    def failed(self, error: Exception) -> "Uncertainty":
        """Return it without one: not to be had for this answer, or failed."""
        if isinstance(error, Unscorable):
            return replace(self, status="not_scored", warning=warning(error.code, error.message))
        if isinstance(error, EigencalError):
            why = warning(error.code, error.full_detail)
        else:
            why = warning("internal", "Something went wrong in the service; its log has the details.")
        status: Status = "not_scored" if isinstance(error, NoUsableAnswers) else "failed"
        return replace(self, status=status, warning=why, failure=error)

    def document(self) -> dict[str, Any]:
        """Return it as JSON. No field of it is named `error`: clients would raise."""
        document: dict[str, Any] = {"id": self.id, "status": self.status}
        if self.score is not None:
            fields = self.score.document()
            # Of the chat's own answer, as everything here: a /score has this of the answer drawn.
            fields["probability_correct"] = self.score.decisive
            document |= {name: value for name, value in fields.items() if name not in NOT_REPEATED}
            if self.marks and self.score.claims is not None:
                document["marks"] = [mark(claim).model_dump() for claim in self.score.claims]
        if self.warning is not None:
            document["warning"] = {"code": self.warning.code, "message": self.warning.message}
        if self.withheld is not None:
            document["withheld"] = self.withheld
        return document

    def headers(self) -> dict[str, str]:
        """Return the headers of an answer that has its score, or of one that may be asked for it later."""
        return {ID_HEADER: self.id} | ({} if self.score is None else self.score.headers())


@dataclass(frozen=True, slots=True)
class Plan:
    """What to draw; `own_counts`: one answer less, since the caller's own is drawn like them.

    `needs_logprobs`: it is to have its log-probabilities, and its call does not ask for them. `limit`: the
    most tokens of an answer by the settings. `marks`: whether to mark the answer's claims. `instead`: what is
    drawn where this draws none, though nobody asked for that, and the answer cannot be judged alone.
    """

    command: ScoreCommand
    own_counts: bool
    limit: int
    needs_logprobs: bool = False
    marks: bool = False
    instead: "Plan | None" = None

    def with_own(self, drawn: Drawn, own: Draw, model: str) -> Drawn:
        """Return the answers that the score rests on: the caller's own goes first where it is one of them.

        Where none is drawn, it is judged by its own log-probability. Raises Unscorable where it has none.
        """
        if self.command.draws_none:
            return self._alone(drawn, own, model)
        drawn = self._as_limited(drawn)
        others = drawn.generation
        same_model = model == others.model and not others.omitted
        # Without a log-probability it would cost the others theirs.
        alike = own.total_logprob is not None or any(one.total_logprob is None for one in others.draws)
        if not (self.own_counts and same_model and alike):
            return drawn
        every = replace(others, draws=(own, *others.draws), requested=others.requested + 1)
        command = replace(drawn.command, candidate_is_drawn=True)
        return replace(drawn, generation=every, command=command)

    def _alone(self, drawn: Drawn, own: Draw, model: str) -> Drawn:
        if own.total_logprob is None:
            raise Unscorable(*(OTHER_TEXT if own.logprobs_of_other_text else NO_LOGPROB))
        if own.truncated:
            raise Unscorable(*CUT)
        undrawn = replace(drawn.generation, model=model)
        # For its limit, as if it were drawn.
        command = self._as_limited(replace(drawn, generation=replace(undrawn, draws=(own,)))).command
        command = replace(command, candidate_logprob=own.total_logprob)
        return replace(drawn, generation=undrawn, command=command)

    def _as_limited(self, drawn: Drawn) -> Drawn:
        """Return the draws with the limit of tokens that fits them.

        Draws under a larger limit than the settings' count as drawn under the settings' if none is longer,
        and draws under the caller's smaller limit if that cut none.
        """
        request, generation = drawn.command.generation, drawn.generation
        assert request is not None
        counted = [draw.num_tokens for draw in generation.draws if draw.num_tokens is not None]
        every = len(counted) == len(generation.draws) + generation.num_empty
        # Where they were not counted one by one: all of them together are not shorter than the longest.
        longest = max(counted) if every else generation.usage.completion_tokens
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
    api: Api,
    serving: Serving,
    asked: ScoreCommand,
    num_samples: int,
    recommended: Callable[[ScoreCommand], int | None],
    priority: Priority,
    *,
    marks: bool,
) -> Plan:
    """Return what to draw beside a call of this body. Raises Unscorable.

    `asked`: what is asked of the score. `recommended`: how many answers the calibration recommends.
    """
    sampling = serving.messages_sampling if api == "chat" else serving.sampling
    model = body.get("model")
    request = GenerationRequest(
        num_samples=num_samples,
        sampling=sampling,
        wire=wire_prompt(body, api),
        model=model if isinstance(model, str) and model else None,
        priority=priority,
        fallback_max_tokens=smaller_limit(body, sampling),
    )
    command = replace(asked, generation=request, as_recommended=False)
    number = recommended(command) if asked.as_recommended else None
    limited = replace(sampling, max_tokens=token_limit(body, sampling))
    unasked = body.get("logprobs") is None or body["logprobs"] is False

    def drawing(number: int) -> Plan:
        # Two are drawn in any case: they alone may be a score, should the caller's own be of another model.
        own_counts = number > MIN_SAMPLES and drawn_alike(body, sampling)
        drawn = replace(request, num_samples=number - own_counts, sampling=limited)
        needs_logprobs = unasked and (own_counts or number == 0)
        of_request = replace(command, generation=drawn)
        return Plan(of_request, own_counts, sampling.max_tokens, needs_logprobs, marks)

    if number == 0:
        return replace(drawing(0), instead=drawing(num_samples))
    return drawing(num_samples if number is None else number)


# What is drawn beside a call, and whether its own answer is drawn alike.

# The caller's own sampling, which the calibrated one stands in for. What a parameter is without effect as.
NEUTRAL: dict[str, Any] = {
    "n": 1,
    "best_of": 1,
    "seed": None,
    "min_p": 0,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "repetition_penalty": 1,
    "logit_bias": {},
    "use_beam_search": False,
    "min_tokens": 0,
    "ignore_eos": False,
}
SAMPLED = frozenset({"temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "stop"})
# What changes nothing of what is said: how it is told, and to whom it is reckoned.
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
# Members that say nothing where they have these values.
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
# Members that say nothing without tools.
ABOUT_TOOLS = frozenset({"tool_choice", "function_call", "parallel_tool_calls"})


def wire_prompt(body: Mapping[str, Any], api: Api) -> WirePrompt:
    """Return what to draw with: all of a call that decides what is said, but for its sampling.

    Plain text turns, or a text to complete, have no marks. Raises Unscorable.
    """
    own = "messages" if api == "chat" else "prompt"
    fields = {name: value for name, value in body.items() if name == own or not _is_empty(value)}
    aside = {own} | ASIDE | SAMPLED | NEUTRAL.keys()
    if not {"tools", "functions"} & fields.keys():
        aside |= ABOUT_TOOLS
    marks = {name: value for name, value in fields.items() if name not in aside and SILENT.get(name) != value}
    if api == "chat":
        turns = fields.get("messages")
        beside = _unlike_plain(turns)
        # No chat that a calibration knows: servers go on with that turn, or begin another.
        if turns and turns[-1].get("role") == "assistant":
            beside["last_turn"] = "assistant"
        return WirePrompt(api, {"messages": turns, **marks}, marks | beside)
    prompt, beside = _one_prompt(fields)
    return WirePrompt(api, {"prompt": prompt, **marks}, marks | beside)


def _is_empty(value: object) -> bool:
    """Return True for a value that means the same as a missing member, LiteLLM's {"refusal": None} too."""
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    return value in (None, "", [])


def drawn_alike(body: Mapping[str, Any], sampling: Sampling) -> bool:
    """Tell whether the call's own answer is drawn as those beside it: it says so of every parameter."""
    most = _own_limit(body)
    asked = (body.get("temperature"), body.get("top_p"), body.get("top_k"), most, _stops(body.get("stop")))
    wanted = (
        sampling.temperature,
        sampling.top_p,
        sampling.top_k,
        sampling.max_tokens,
        sorted(sampling.stop),
    )
    neutral = all(body.get(name) in (None, value) for name, value in NEUTRAL.items())
    return asked == wanted and neutral and sampling.seed is None


def token_limit(body: Mapping[str, Any], sampling: Sampling) -> int:
    """Return the most tokens of an answer beside the call: its own limit, where that is larger."""
    most = _own_limit(body)
    return max(most, sampling.max_tokens) if type(most) is int else sampling.max_tokens


def smaller_limit(body: Mapping[str, Any], sampling: Sampling) -> int | None:
    """Return the call's own limit if it is smaller than the settings': the context may hold no more."""
    most = _own_limit(body)
    return most if type(most) is int and 0 < most < sampling.max_tokens else None


def _own_limit(body: Mapping[str, Any]) -> Any:
    return body.get("max_completion_tokens") or body.get("max_tokens")


def _stops(stop: object) -> object:
    if isinstance(stop, list) and all(isinstance(one, str) for one in stop):
        return sorted(stop)
    return [] if stop is None else [stop]


def _unlike_plain(turns: object) -> dict[str, Any]:
    """Return what of the turns is no plain text: by kind, as their texts are no part of a prompt's shape."""
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise Unscorable("unreadable_request", "The call's `messages` are no list of turns.")
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


def _one_prompt(fields: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the text to complete, and its marks: tokens are no text. Raises Unscorable for several."""
    if fields.get("echo"):
        raise Unscorable(
            "echo", "With `echo` the answer repeats its prompt: there is none to judge by itself."
        )
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        [prompt] = prompt
    if isinstance(prompt, str):
        return prompt, {}
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return prompt, {"prompt": "tokens"}
    raise Unscorable("many_prompts", "A score is of one prompt: the call has another number, or none.")


def is_first(choice: object) -> bool:
    """Tell whether it is the choice that is judged; servers that give one choice leave its index out."""
    return isinstance(choice, dict) and not choice.get("index")


def choices_of(payload: Mapping[str, Any]) -> list[Any]:
    """Return the choices of an answer, or of a chunk of one."""
    choices = payload.get("choices")
    return choices if isinstance(choices, list) else []


def first_choice(payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the choice that is judged; None for none."""
    return next((choice for choice in choices_of(payload) if is_first(choice)), None)


def has_others(payload: Mapping[str, Any]) -> bool:
    """Tell whether an answer, or a chunk of one, holds further choices than the one that is judged."""
    choices = choices_of(payload)
    return len(choices) > 1 or any(isinstance(one, dict) and not is_first(one) for one in choices)


def judged_choice(payload: Mapping[str, Any]) -> Choice | None:
    """Return the choice that is judged of an answer that was not streamed; None where it holds none."""
    choice = first_choice(payload)
    try:
        return None if choice is None else whole_choice(choice)
    except NONSENSE:
        return None


def refuse_textless(choice: Choice | None) -> Choice:
    """Return a choice that holds a text of the model's to judge, maybe an empty one. Raises Unscorable."""
    if choice is None:
        raise Unscorable("no_answer", "The answer holds no choice.")
    if choice.beside & {"tool_calls", "function_call"}:
        raise Unscorable("tool_call", "The answer calls a tool: it has no text to judge.")
    if "refusal" in choice.beside and not choice.text:
        raise Unscorable("refusal", "The model refused to answer: there is no answer to judge.")
    if "audio" in choice.beside and not choice.text:
        raise Unscorable("no_text", "The answer is no text.")
    if choice.finish_reason in GIVEN_UP:
        raise Unscorable("given_up", "The LLM server gave the answer up.")
    return choice


def with_places_in(text: str, judged: str, score: Score) -> Score:
    """Return the score with the places of its claims in this text, of which the judged one is a part."""
    begin = text.rfind(judged)  # what goes before may say the same: reasoning
    if begin < 1 or score.claims is None:
        return score
    claims = [
        one.model_copy(update={"start": one.start + begin, "end": one.end + begin}) for one in score.claims
    ]
    return score.model_copy(update={"claims": claims})


class ChatScorer:
    """Begins scores, and holds those that go on after their answer.

    `shape` reads a choice as an answer drawn here would be read. `report` hears of each score that is made,
    has failed, or goes on after its answer. `tasks`: those that have not ended.
    """

    def __init__(self, scorer: Scorer, shape: PromptShape, report: Callable[[Uncertainty], None]) -> None:
        self.scorer = scorer
        self.shape = shape
        self.report = report
        self.detached: set[asyncio.Task[Any]] = set()
        self.tasks: set[asyncio.Task[Any]] = set()

    @property
    def has_room(self) -> bool:
        """Tell whether one more may go on after its answer."""
        return len(self.detached) < MAX_DETACHED

    async def stop(self) -> None:
        """End all that is under way; idempotent."""
        tasks = set(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, plan: Plan | Unscorable, owner: str) -> "RunningScore":
        """Return the score of an answer that is still to come; where there can be none, it will say why."""
        marks = isinstance(plan, Plan) and plan.marks
        return RunningScore(self, plan, Uncertainty(new_id("scr"), owner, marks=marks))

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
            task.exception()  # looked at, or asyncio complains of one that its caller did not stay for


class RunningScore:
    """One score: `start` draws, `judge` takes the answer, `wait` returns what came of it.

    Whoever began it ends it by `discard`; where it went on by itself that does nothing.
    """

    def __init__(self, scorer: ChatScorer, plan: Plan | Unscorable, uncertainty: Uncertainty) -> None:
        self._scorer = scorer
        self._plan = plan
        self.uncertainty = uncertainty  # as last reported
        self.judged_text: str | None = None  # the answer's text that was judged; None for none
        self._draws: asyncio.Task[Drawn] | None = None
        self._judged: asyncio.Task[Uncertainty] | None = None
        self._is_detached = False

    @property
    def needs_logprobs(self) -> bool:
        """Tell whether the answer should come with log-probabilities for which its call does not ask."""
        return isinstance(self._plan, Plan) and self._plan.needs_logprobs

    def start(self) -> None:
        """Begin to draw, unless that has begun."""
        if self._draws is None and isinstance(self._plan, Plan):
            self._draws = self._drawing(self._plan)

    def _drawing(self, plan: Plan) -> "asyncio.Task[Drawn]":
        # What a stream's first token took is no wait of the score's.
        command = replace(plan.command, arrived=time.perf_counter())
        return self._scorer.run(self._scorer.scorer.draw(command))

    def judge(self, choice: Choice | None, model: str) -> None:
        """Take the first choice of the answer, None for none; `model` has made it."""
        self.start()
        self._judged = self._scorer.run(self._finish(choice, model))

    async def wait(self, max_s: float | None) -> Uncertainty:
        """Return what came of it; after `max_s` it goes on by itself, and is `pending`. None: at once.

        The answer has been taken.
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

    async def discard(self, why: Exception | None = None) -> None:
        """End it. `why`: told to whoever asks for its id, where that has been given out."""
        if self._is_detached:
            return
        cancelled = self._cancel()
        if why is not None and self._judged is None:
            self._report(self.uncertainty.failed(why))
        # Until they have let go of the LLM.
        await asyncio.gather(*cancelled, return_exceptions=True)

    def _cancel(self) -> list[asyncio.Task[Any]]:
        running = [task for task in (self._judged, self._draws) if task is not None and not task.done()]
        for task in running:
            task.cancel()
        return running

    async def _finish(self, choice: Choice | None, model: str) -> Uncertainty:
        try:
            return self._report(self.uncertainty.scored(await self._score(choice, model)))
        except asyncio.CancelledError:
            if self._is_detached:  # the service stops; whoever has the id would find it pending for ever
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
        choice = refuse_textless(answer)
        [own] = await self._scorer.shape.read_beside_loop([choice.draw()])
        if is_blank(own.text) and self._scorer.scorer.empty_answers == FAILED:
            raise Unscorable(*NO_TEXT)
        self.judged_text = own.text
        if plan.instead is not None and (own.total_logprob is None or own.truncated):
            # Known only now, when the answer is there: its score comes later than those drawn beside it.
            plan = plan.instead
            self._draws.cancel()
            self._draws = self._drawing(plan)
        drawn = plan.with_own(await self._draws, own, model)
        known = [(text, value) for text, value in choice.tokens if value is not None]
        is_known = len(known) == len(choice.tokens) and not own.logprobs_of_other_text
        tokens = tuple(known) if is_known else ()
        drawn = replace(drawn, command=replace(drawn.command, candidate_tokens=tokens))
        score = await self._scorer.scorer.finish(drawn, own.text)
        return with_places_in(choice.text, own.text, score)

    def _report(self, uncertainty: Uncertainty) -> Uncertainty:
        self.uncertainty = uncertainty
        self._scorer.report(uncertainty)
        return uncertainty
