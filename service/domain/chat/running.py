"""Scores under way beside answers. The score may fail, the answer never does: nothing raises here."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from service.domain.chat.own_answer import refuse_textless
from service.domain.chat.plan import Plan
from service.domain.chat.prompt import Unscorable
from service.domain.chat.uncertainty import Uncertainty, new_uncertainty
from service.domain.models import FAILED, Draw, is_blank
from service.domain.scoring.model import Drawn, Score
from service.domain.scoring.scorer import Scorer

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
