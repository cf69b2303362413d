"""What is repeated, how often and how late; and what never is."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import httpx
import pytest

import eigencal
from eigencal._calls.repeat import Repeat
from eigencal._sending.attempts import DEADLINE_GRACE_S, Attempts
from tests.support.both_clients import Driver
from tests.support.scripted_batches import SCORE

GOOD = httpx.Response(200, json=SCORE)
QUICK = {"retries": 3, "longest_wait_s": 0.01}


def problem(status: int, code: str, *, retryable: bool = True, **headers: str) -> httpx.Response:
    body = {"code": code, "detail": code, "retryable": retryable, "status": status, "title": "", "type": ""}
    return httpx.Response(status, json=body, headers=headers)


class Script:
    """Answers one after the other, by a response or by an exception; the last one stays."""

    def __init__(self, *steps: httpx.Response | Exception) -> None:
        self.steps, self.seen = list(steps), list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        step = self.steps[min(len(self.seen), len(self.steps)) - 1]
        if isinstance(step, Exception):
            raise step
        return httpx.Response(step.status_code, headers=step.headers, content=step.content)


PASSING: list[Any] = [
    httpx.ConnectError("no"), httpx.ConnectTimeout("no"), httpx.ReadError("broke off"),
    httpx.RemoteProtocolError("gone"), problem(429, "rate_limited", retryable=False),
    problem(503, "overloaded"),
    problem(503, "llm_unavailable"), problem(502, "llm_bad_response"), problem(504, "deadline_exceeded"),
]  # fmt: skip
LASTING: list[Any] = [
    httpx.ReadTimeout("slow"), httpx.WriteTimeout("slow"), problem(500, "internal"),
    problem(422, "invalid_request"),
    problem(503, "no_probability", retryable=False), problem(502, "llm_error", retryable=False),
    problem(502, "no_usable_answers", retryable=False),
    problem(401, "bad_key"), problem(409, "conflict"),
]  # fmt: skip


def name_of(step: Any) -> str:
    return str(step.json()["code"]) if isinstance(step, httpx.Response) else type(step).__name__


@pytest.mark.parametrize("step", PASSING, ids=name_of)
def test_a_score_is_asked_for_again_after_what_passes(drive: Driver, step: Any) -> None:
    script = Script(step, step, GOOD)
    with drive("http://host", answer=script, **QUICK) as client:
        assert client.score("What?").answer == "Eight"
    assert len(script.seen) == 3
    assert len({request.content for request in script.seen}) == 1


@pytest.mark.parametrize("step", LASTING, ids=name_of)
def test_what_does_not_pass_is_not_repeated(drive: Driver, step: Any) -> None:
    script = Script(step, GOOD)
    with drive("http://host", answer=script, **QUICK) as client, pytest.raises(eigencal.EigencalError):
        client.score("What?")
    assert len(script.seen) == 1


UNCERTAIN: list[Any] = [httpx.ReadError("no"), problem(502, "llm_error"), problem(503, "store_unavailable")]


@pytest.mark.parametrize(("step", "times"), [(httpx.ConnectError("no"), 4), *((one, 1) for one in UNCERTAIN)])
@pytest.mark.parametrize("name", ["chat", "create_key", "retry"])
def test_what_may_have_been_done_is_not_done_twice(drive: Driver, step: Any, times: int, name: str) -> None:
    script = Script(step)
    with drive("http://host", answer=script, **QUICK) as client, pytest.raises(eigencal.EigencalError):
        getattr(client, name)([] if name == "chat" else "x")
    assert len(script.seen) == times


def test_it_ends_after_so_many(drive: Driver) -> None:
    script = Script(problem(503, "overloaded"))
    with drive("http://host", answer=script, **QUICK) as client, pytest.raises(eigencal.Overloaded):
        client.score("What?")
    assert len(script.seen) == 4


def test_a_service_that_wants_to_be_left_alone_for_long_is(drive: Driver) -> None:
    script = Script(problem(503, "overloaded", **{"retry-after": "60"}), GOOD)
    with drive("http://host", answer=script, **QUICK) as client, pytest.raises(eigencal.Overloaded) as caught:
        client.score("What?")
    assert (len(script.seen), caught.value.retry_after_s) == (1, 60.0)


def test_a_repeat_is_sent_with_what_is_left_of_the_deadline(drive: Driver) -> None:
    script = Script(problem(503, "overloaded"), GOOD)
    with drive("http://host", answer=script, retries=1, longest_wait_s=0.1) as client:
        client.score("What?", deadline_ms=5000)
    first, second = (json.loads(request.content)["deadline_ms"] for request in script.seen)
    assert second <= first - 40 and 3000 < second < 5000


# The arithmetic, on a clock of its own


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def attempts(clock: Callable[[], float], **options: Any) -> Attempts:
    fields = {"repeat": Repeat.SAFE, "retries": 9, "longest_wait_s": 8.0, "timeout_s": 1000.0} | options
    return Attempts.of(clock=clock, **fields)


def waits(made: Attempts, errors: Iterable[eigencal.EigencalError]) -> list[float]:
    return [made.wait_after(error) for error in errors]


LOST = eigencal.ConnectionLost("gone")


def test_waits_grow_to_the_longest_and_differ() -> None:
    many = [waits(attempts(Clock()), [LOST] * 8) for _ in range(50)]
    for tenth in zip(*many, strict=True):
        assert len(set(tenth)) > 1
    for number, most in enumerate([0.5, 1, 2, 4, 8, 8, 8, 8]):
        assert all(most / 2 <= one[number] <= most for one in many)


def test_what_the_service_asks_for_is_the_least() -> None:
    asked = eigencal.Overloaded("full", status=503, retry_after_s=3.0, retryable=True)
    found = [attempts(Clock()).wait_after(asked) for _ in range(50)]
    assert min(found) >= 3.0 and max(found) < 3.5


@pytest.mark.parametrize("bound", [{"timeout_s": 2.0}, {"deadline_ms": 2000}])
def test_no_repeat_begins_after_the_end(bound: dict[str, Any]) -> None:
    clock = Clock()
    made = attempts(clock, **bound)
    assert made.wait_after(LOST) <= 0.5
    clock.now += 1.8
    with pytest.raises(eigencal.ConnectionLost):
        made.wait_after(LOST)


def test_time_that_is_left() -> None:
    clock = Clock()
    plain, bounded = attempts(clock, timeout_s=30.0), attempts(clock, deadline_ms=4000)
    clock.now += 1.0
    assert (plain.left_s(), plain.deadline_left_ms()) == (29.0, None)
    assert (bounded.left_s(), bounded.deadline_left_ms()) == (3.0 + DEADLINE_GRACE_S, 3000)
    clock.now += 100.0
    assert plain.left_s() > 0 and bounded.deadline_left_ms() == 1, "0 would mean no limit"


def test_something_that_came_begins_the_count_anew() -> None:
    made = attempts(Clock(), retries=2)
    for _ in range(5):
        waits(made, [LOST, LOST])
        made.went_on()
    waits(made, [LOST, LOST])
    with pytest.raises(eigencal.ConnectionLost):
        made.wait_after(LOST)
