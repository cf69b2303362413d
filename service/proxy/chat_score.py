"""What a caller is told of the score beside its answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from service.errors import EigencalError, NoUsableAnswers
from service.ids import new_id
from service.llm.port import FAILED, Draw, GenerationRequest, is_blank
from service.proxy.prompt import Api, Unscorable, drawn_alike, token_limit, wire_prompt
from service.scoring.score import Drawn, Score, ScoreCommand, ScoreWarning, Target
from service.scoring.scorer import MIN_SAMPLES, Scorer
from service.scoring.serving import Serving

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


# What is drawn beside a call, and how its own answer counts among what is drawn.


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller asks of the score beside its answer."""

    num_samples: int
    target: Target
    calibration: str = "active"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to draw; `own_counts`: one answer less, since the caller's own is drawn like them.

    `takes_evidence`: it counts only with its log-probabilities, or it would cost the others theirs.
    `needs_logprobs`: its call does not ask for them. `limit`: the most tokens of an answer by the settings.
    """

    command: ScoreCommand
    own_counts: bool
    limit: int
    takes_evidence: bool = False
    needs_logprobs: bool = False

    def with_own(self, drawn: Drawn, own: Draw, model: str) -> Drawn:
        """Return the answers that the score rests on: the caller's own goes first where it is one of them."""
        drawn = self._as_limited(drawn)
        theirs = drawn.generation
        alike = model == theirs.model and not theirs.omitted
        told = own.total_logprob is not None or not self.takes_evidence
        if not (self.own_counts and alike and told):
            return drawn
        all_of_them = replace(theirs, draws=(own, *theirs.draws), requested=theirs.requested + 1)
        return replace(drawn, generation=all_of_them)

    def _as_limited(self, drawn: Drawn) -> Drawn:
        """Return answers drawn under a larger limit as drawn under the settings', where none is longer."""
        request, came = drawn.command.generation, drawn.generation
        assert request is not None
        told = [draw.num_tokens for draw in came.draws if draw.num_tokens is not None]
        every = len(told) == len(came.draws) + came.num_empty
        longest = max(told) if every else came.usage.completion_tokens  # all of them together are not shorter
        if not 0 < longest <= self.limit:
            return drawn
        sampling = replace(request.sampling, max_tokens=self.limit)
        return replace(drawn, command=replace(drawn.command, generation=replace(request, sampling=sampling)))


def plan_for(
    body: Mapping[str, Any],
    api: Api,
    serving: Serving,
    options: Options,
    takes_evidence: Callable[[ScoreCommand], bool],
) -> Plan:
    """Return what to draw beside a call of this body. Raises Unscorable.

    `takes_evidence`: whether a calibration may serve it that uses log-probabilities.
    """
    sampling = serving.messages_sampling if api == "chat" else serving.sampling
    wanted = options.num_samples
    # Two are drawn in any case: they alone may be a score, should the caller's own turn out to be another's.
    own_counts = wanted > MIN_SAMPLES and drawn_alike(body, sampling)
    model = body.get("model")
    request = GenerationRequest(
        num_samples=wanted - own_counts,
        sampling=replace(sampling, max_tokens=token_limit(body, sampling)),
        wire=wire_prompt(body, api),
        model=model if isinstance(model, str) and model else None,
    )
    command = ScoreCommand(
        request, calibration=options.calibration, target=options.target, arrived=time.perf_counter()
    )
    evidence = own_counts and takes_evidence(command)
    return Plan(command, own_counts, sampling.max_tokens, evidence, evidence and "logprobs" not in body)


# The caller's own answer, taken together from a whole reply or from the chunks of a stream.

# Of a stream's delta: texts that come in pieces. Others are only noted to be there.
_TEXT = "content"
_CALLS = ("tool_calls", "function_call")
_GIVEN_UP = frozenset({"abort", "error"})


class OwnAnswer:
    """The first choice of an answer, put together from chunks as they come; nonsense is passed over."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.model = ""
        self._texts: list[str] = []
        self._logprobs: dict[str, list[Any]] = {}
        self._beside: dict[str, Any] = {}
        self._chat = False
        self._begun = False

    def take(self, chunk: Mapping[str, Any]) -> bool:
        """Take a chunk; tell whether the first choice is finished by it."""
        if isinstance(chunk.get("model"), str):
            self.model = self.model or chunk["model"]
        choices = chunk.get("choices")
        mine = [choice for choice in choices if _is_first(choice)] if isinstance(choices, list) else []
        for choice in mine:
            self._take(choice)
        return any(isinstance(choice.get("finish_reason"), str) for choice in mine)

    @property
    def has_said(self) -> bool:
        """Tell whether anything was drawn yet: servers send the role before the first token."""
        return any(self._texts) or bool(self._beside.keys() - {"role"})

    def choice(self) -> dict[str, Any]:
        """Return the choice as an answer that is not streamed would hold it; raises Unscorable for none."""
        if not self._begun:
            raise Unscorable("no_answer", "The answer holds no choice.")
        text = "".join(self._texts)
        said = {"message": {**self._beside, _TEXT: text}} if self._chat else {"text": text}
        return {"finish_reason": self.finish_reason, "logprobs": self._logprobs or None, **said}

    def _take(self, choice: Mapping[str, Any]) -> None:
        self._begun = True
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._chat = True
            # A role is no text; all else of value says that something was drawn beside the text.
            self._beside |= {name: value for name, value in delta.items() if value and name != _TEXT}
        piece = delta.get(_TEXT) if isinstance(delta, dict) else choice.get("text")
        if isinstance(piece, str):
            self._texts.append(piece)
        self._take_logprobs(choice.get("logprobs"), told=bool(piece))
        if isinstance(choice.get("finish_reason"), str):
            self.finish_reason = choice["finish_reason"]

    def _take_logprobs(self, logprobs: object, *, told: bool) -> None:
        found = logprobs if isinstance(logprobs, dict) else {}
        lists = {
            name: values
            for name in ("content", "token_logprobs")
            if isinstance(values := found.get(name), list)
        }
        for name, values in lists.items():
            self._logprobs.setdefault(name, []).extend(values)
        if told and not any(lists.values()):
            # Text whose tokens have none: a sum without them would be too high. None stands for one.
            self._logprobs.setdefault("content" if self._chat else "token_logprobs", []).append(None)


def first_choice(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first choice of an answer that was not streamed; raises Unscorable for none."""
    choices = payload.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise Unscorable("no_answer", "The answer holds no choice.")
    found: dict[str, Any] = choices[0]
    return found


def refuse_textless(choice: Mapping[str, Any]) -> None:
    """Raise Unscorable for a choice that holds no text of the model's to judge; an empty one may be such."""
    message = choice.get("message")
    message = message if isinstance(message, dict) else {}
    if any(message.get(name) for name in _CALLS):
        raise Unscorable("tool_call", "The answer calls a tool: it has no text to judge.")
    if message.get("refusal") and not message.get(_TEXT):
        raise Unscorable("refusal", "The model refused to answer: there is no answer to judge.")
    if message.get("audio") and not message.get(_TEXT):
        raise Unscorable("no_text", "The answer is no text.")
    ended = choice.get("finish_reason")
    if isinstance(ended, str) and ended in _GIVEN_UP:
        raise Unscorable("given_up", "The LLM server gave the answer up.")


def _is_first(choice: object) -> bool:
    return isinstance(choice, dict) and not choice.get("index")  # left out by servers that give one choice


# Scores under way beside answers. The score may fail, the answer never does: nothing raises here.

MOST_LEFT = 256  # scores that nobody waits for: as many requests' answers are held in memory
BUSY = Unscorable("overloaded", "Too many scores are made that nobody waits for: this one is left out.")

NO_TEXT = Unscorable("no_text", "The answer holds no text, or only reasoning: there is nothing to judge.")

DrawOf = Callable[[Mapping[str, Any]], Awaitable[Draw]]
Told = Callable[[Uncertainty], None]
Task = asyncio.Task[Any]


class ChatScorer:
    """Begins scores, and holds those that go on after their answer.

    `draw_of` reads a choice as an answer drawn here would be read. `told` hears of each score that is made,
    has failed, or goes on after its answer.
    """

    def __init__(self, scorer: Scorer, draw_of: DrawOf, told: Told, *, most_left: int = MOST_LEFT) -> None:
        self.scorer = scorer
        self.draw_of = draw_of
        self.told = told
        self._most_left = most_left
        self._left: set[Task] = set()
        self._tasks: set[Task] = set()

    @property
    def under_way(self) -> int:
        """Return how many tasks have not ended."""
        return len(self._tasks)

    @property
    def has_room(self) -> bool:
        """Tell whether one more may be left to itself."""
        return len(self._left) < self._most_left

    async def start(self) -> None:
        """Nothing to acquire."""

    async def stop(self) -> None:
        """End all that is under way; idempotent."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, plan: Plan | Unscorable, owner: str) -> "RunningScore":
        """Return the score of an answer that is still to come; where there can be none, it will say why."""
        return RunningScore(self, plan, new_uncertainty(owner))

    def run(self, work: Any) -> Task:
        """Run a coroutine in a task that `stop` ends."""
        task: Task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def leave(self, task: Task) -> None:
        """Let a task go on for which nobody waits."""
        self._left.add(task)

    def _ended(self, task: Task) -> None:
        self._tasks.discard(task)
        self._left.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, or asyncio complains of one that its caller did not stay for


class RunningScore:
    """One score: `start` draws, `judge` takes the answer, `wait` or `leave` tells what came of it.

    Whoever began it ends it by `discard`; after `leave` that does nothing.
    """

    def __init__(self, home: ChatScorer, plan: Plan | Unscorable, uncertainty: Uncertainty) -> None:
        self._home = home
        self._plan = plan
        self._uncertainty = uncertainty
        self._draws: asyncio.Task[Drawn] | None = None
        self._judged: asyncio.Task[Uncertainty] | None = None
        self._is_left = False
        # The text that was judged, of the answer's; None for none.
        self.judged_text: str | None = None

    @property
    def found(self) -> Uncertainty:
        """Return what has been told last."""
        return self._uncertainty

    @property
    def id(self) -> str:
        """Return the id of the score to come."""
        return self._uncertainty.id

    @property
    def needs_logprobs(self) -> bool:
        """Tell whether the answer should come with log-probabilities for which its call does not ask."""
        return isinstance(self._plan, Plan) and self._plan.needs_logprobs

    def start(self) -> None:
        """Begin to draw, unless that has begun."""
        if self._draws is None and isinstance(self._plan, Plan):
            self._draws = self._home.run(self._home.scorer.draw(self._plan.command))

    def judge(self, read: Callable[[], Mapping[str, Any]], model: str) -> None:
        """Take the answer: `read` returns its first choice or raises Unscorable; `model` has made it."""
        self.start()
        self._judged = self._home.run(self._end(read, model))

    async def wait(self, longest_s: float) -> Uncertainty:
        """Return what came of it, or what `leave` does where that takes longer. The answer has been taken."""
        assert self._judged is not None
        await asyncio.wait({self._judged}, timeout=longest_s)
        return self.leave()

    def leave(self) -> Uncertainty:
        """Return what came of it, or let it go on by itself: then it is `pending`."""
        assert self._judged is not None
        if self._judged.done() and not self._judged.cancelled():
            return self._judged.result()
        if not self._home.has_room:
            self._cancel()
            return self._tell(self._uncertainty.failed(BUSY))
        self._is_left = True
        self._home.leave(self._judged)
        return self._tell(self._uncertainty)

    async def discard(self, why: Exception | None = None) -> None:
        """End it. `why`: told to whoever asks for its id, where that has been given out."""
        if self._is_left:
            return
        running = self._cancel()
        if why is not None and self._judged is None:
            self._tell(self._uncertainty.failed(why))
        # Until they have let go of the LLM.
        await asyncio.gather(*running, return_exceptions=True)

    def _cancel(self) -> list[Task]:
        running = [task for task in (self._judged, self._draws) if task is not None and not task.done()]
        for task in running:
            task.cancel()
        return running

    async def _end(self, read: Callable[[], Mapping[str, Any]], model: str) -> Uncertainty:
        try:
            return self._tell(self._uncertainty.scored(await self._score(read, model)))
        except Exception as error:
            if self._draws is not None:
                self._draws.cancel()
            return self._tell(self._uncertainty.failed(error))

    async def _score(self, read: Callable[[], Mapping[str, Any]], model: str) -> Score:
        if isinstance(self._plan, Unscorable):
            raise self._plan
        assert self._draws is not None
        choice = read()
        refuse_textless(choice)
        own = await self._home.draw_of(choice)
        if is_blank(own.text) and self._home.scorer.empty_answers == FAILED:
            raise NO_TEXT
        self.judged_text = own.text
        drawn = self._plan.with_own(await self._draws, own, model)
        return await self._home.scorer.finish(drawn, own.text)

    def _tell(self, found: Uncertainty) -> Uncertainty:
        self._uncertainty = found
        self._home.told(found)
        return found
