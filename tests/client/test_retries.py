"""What is repeated, how often and how late; and what never is."""

import json
import logging
import math
import time
from typing import Any

import httpx
import pytest

import eigencal
from eigencal._base_client import DEADLINE_GRACE_S, Call, TimeLimit, parse_nothing, retry_policy
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
    httpx.ConnectError("no"), httpx.ReadError("broke off"), problem(429, "rate_limited", retryable=False),
    problem(503, "overloaded"), problem(502, "llm_bad_response"),
]  # fmt: skip
LASTING: list[Any] = [
    httpx.ReadTimeout("slow"), problem(500, "internal"), problem(422, "invalid_request"),
    problem(503, "no_probability", retryable=False), problem(401, "bad_key"),
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


UNCERTAIN: list[Any] = [httpx.ReadError("no"), problem(503, "store_unavailable")]


NOT_BEGUN: list[Any] = [httpx.ConnectError("no"), problem(503, "overloaded")]


@pytest.mark.parametrize(
    ("step", "times"), [*((one, 4) for one in NOT_BEGUN), *((one, 1) for one in UNCERTAIN)]
)
@pytest.mark.parametrize("name", ["chat", "create_key", "retry", "correct_rows"])
def test_what_may_have_been_done_is_not_done_twice(drive: Driver, step: Any, times: int, name: str) -> None:
    script = Script(step)
    with drive("http://host", answer=script, **QUICK) as client, pytest.raises(eigencal.EigencalError):
        getattr(client, name)(*{"chat": [[]], "correct_rows": ["x", []]}.get(name, ["x"]))
    assert len(script.seen) == times


@pytest.mark.parametrize(("retries", "times"), [(3, 4), (0, 1)])
def test_it_ends_after_so_many(drive: Driver, retries: int, times: int) -> None:
    script = Script(problem(503, "overloaded"))
    with drive("http://host", answer=script, longest_wait_s=0.01, retries=retries) as client:
        with pytest.raises(eigencal.ServerError):
            client.score("What?")
    assert len(script.seen) == times


def test_a_service_that_wants_to_be_left_alone_for_long_is(drive: Driver) -> None:
    script = Script(problem(503, "overloaded", **{"retry-after": "60"}), GOOD)
    with drive("http://host", answer=script, **QUICK) as client:
        with pytest.raises(eigencal.ServerError) as caught:
            client.score("What?")
    assert (len(script.seen), caught.value.retry_after_s) == (1, 60.0)


def test_a_repeat_is_sent_with_what_is_left_of_the_deadline(drive: Driver) -> None:
    script = Script(problem(503, "overloaded"), GOOD)
    with drive("http://host", answer=script, retries=1, longest_wait_s=0.1) as client:
        client.score("What?", deadline_ms=5000)
    first, second = (json.loads(request.content)["deadline_ms"] for request in script.seen)
    assert second <= first - 40 and 3000 < second < 5000


def test_a_repeat_writes_nothing_where_nobody_has_set_up_logging() -> None:
    assert logging.getLogger("stamina").handlers, "without any, Python writes warnings to stderr"


# The arithmetic of waiting

LOST = eigencal.APIConnectionError("gone")


def waits(
    error: eigencal.EigencalError, *, times: int = 1, last_start: float = math.inf
) -> list[bool | float]:
    bounds = {"attempts": 9, "longest_wait_s": 8.0, "longest_retry_after_s": 8.0}
    on = retry_policy(lambda error: True, last_start, **bounds)["on"]
    return [on(error) for _ in range(times)]


def test_waits_grow_to_the_longest_and_differ() -> None:
    many = [waits(LOST, times=8) for _ in range(50)]
    for tenth in zip(*many, strict=True):
        assert len(set(tenth)) > 1
    for number, most in enumerate([0.5, 1, 2, 4, 8, 8, 8, 8]):
        assert all(most / 2 <= one[number] <= most for one in many)


def test_what_the_service_asks_for_is_the_least() -> None:
    asked = eigencal.ServerError("full", status=503, retry_after_s=3.0, retryable=True)
    found = [waits(asked)[0] for _ in range(50)]
    assert min(found) >= 3.0 and max(found) < 3.5


def test_no_repeat_begins_after_the_end() -> None:
    assert waits(LOST, last_start=time.monotonic() + 2.0)[0] is not False
    assert waits(LOST, last_start=time.monotonic() + 0.2) == [False]


def test_time_that_is_left() -> None:
    plain, bounded = TimeLimit.of(30.0), TimeLimit.of(30.0, 4000)
    assert plain.within_deadline({"prompt": "x"}) == {"prompt": "x"}
    assert bounded.within_deadline({})["deadline_ms"] <= 4000
    assert 29 < plain.left_s() <= 30.0 < TimeLimit.of(math.inf).left_s() < math.inf
    assert 13 < bounded.left_s() <= 4.0 + DEADLINE_GRACE_S
    assert bounded.last_start < bounded.ends_at
    over = TimeLimit.of(0.0, 0)
    assert over.is_over and over.left_s() > 0 and over.within_deadline({})["deadline_ms"] == 1, (
        "0 is no limit"
    )


def test_a_time_limit_is_no_reason_to_ask_again() -> None:
    call: Call[None] = Call("GET", "/", parse_nothing)
    assert call.may_repeat(LOST) and not call.may_repeat(eigencal.APITimeoutError("late"))
