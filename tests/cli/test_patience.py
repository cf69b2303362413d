"""What a failure means for a run of many questions, without a clock."""

import pytest

import eigencal
from eigencal.cli.bulk.patience import ATTEMPTS, PASSED_OVER, Attempts, Ends, Patience

GONE = eigencal.ConnectionFailed("Nothing answers.")
BROKEN = eigencal.ConnectionLost("It broke off.")
PROBLEM = {"code": "x"}


def answered(kind: type[eigencal.ApiError], *, retryable: bool, problem: bool = True) -> eigencal.ApiError:
    status = kind.http_status or 500
    return kind("Said.", status=status, retryable=retryable, problem=PROBLEM if problem else None)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def patience(clock: Clock, told: list[str]) -> Patience:
    return Patience(60.0, told.append, clock, lambda low, high: high)


def test_a_service_that_is_away_is_waited_for_within_bounds(patience: Patience, clock: Clock) -> None:
    waits = []
    with pytest.raises(eigencal.ConnectionFailed):
        while len(waits) < 1000:
            waits.append(Attempts(patience).wait_s(GONE))
            clock.now += waits[-1]
    assert sum(waits) == pytest.approx(60.0)
    assert waits[0] == 0.5
    assert max(waits) == 10.0


def test_its_return_is_told_and_begins_the_time_anew(
    patience: Patience, clock: Clock, told: list[str]
) -> None:
    patience.wait_s(GONE)
    clock.now = 59.0
    patience.heard()
    patience.heard()
    clock.now = 100.0
    assert patience.wait_s(GONE) == 0.5
    assert [line.split(" ")[0] for line in told] == ["eigencal:"] * 3
    assert "back after 59 s" in told[1]


@pytest.mark.parametrize("detail", ["All attempts failed", "All attempts failed."])
def test_waiting_is_a_sentence_of_its_own(patience: Patience, told: list[str], detail: str) -> None:
    patience.wait_s(eigencal.ConnectionFailed(detail))
    assert told == ["eigencal: All attempts failed. Waiting for it, 60 s at most"]


def test_it_is_asked_again_when_it_says_so(patience: Patience) -> None:
    error = answered(eigencal.Overloaded, retryable=True)
    error.retry_after_s = 7.0
    assert patience.wait_s(error) == 7.0


@pytest.mark.parametrize(
    "error",
    [
        answered(eigencal.LLMError, retryable=True),
        answered(eigencal.DeadlineExceeded, retryable=True),
        eigencal.TimedOut("Too long."),
        BROKEN,
    ],
)
def test_one_question_is_asked_so_often_at_most(patience: Patience, error: eigencal.EigencalError) -> None:
    attempts = Attempts(patience)
    for _ in range(ATTEMPTS - 1):
        assert attempts.wait_s(error) > 0
    with pytest.raises(Ends):
        attempts.wait_s(error)


@pytest.mark.parametrize(
    "error",
    [
        GONE,
        answered(eigencal.Overloaded, retryable=True),
        answered(eigencal.LLMUnavailable, retryable=True),
        answered(eigencal.RateLimited, retryable=True),
        answered(
            eigencal.BadGateway, retryable=False, problem=False
        ),  # a proxy before a service that is gone
    ],
)
def test_what_befalls_all_questions_is_no_fault_of_one(
    patience: Patience, error: eigencal.EigencalError
) -> None:
    attempts = Attempts(patience)
    assert all(attempts.wait_s(error) > 0 for _ in range(ATTEMPTS * 3))


@pytest.mark.parametrize("kind", [eigencal.InvalidRequest, eigencal.ModelNotFound, eigencal.InternalError])
def test_what_would_fail_again_is_the_result_of_the_question(
    patience: Patience, kind: type[eigencal.ApiError]
) -> None:
    with pytest.raises(Ends):
        Attempts(patience).wait_s(answered(kind, retryable=False))


@pytest.mark.parametrize("kind", [eigencal.BadKey, eigencal.MissingKey, eigencal.ScopeRequired])
def test_a_refused_key_ends_the_run(patience: Patience, kind: type[eigencal.ApiError]) -> None:
    with pytest.raises(kind):
        Attempts(patience).wait_s(answered(kind, retryable=False))


def attempts_until_it_ends(
    attempts: Attempts, patience: Patience, clock: Clock, error: eigencal.EigencalError, others_until_s: float
) -> int:
    """Return how often a question is asked that always fails, while others are scored until some time."""
    for count in range(1, 1000):
        try:
            clock.now += attempts.wait_s(error)
        except Ends:
            return count
        if clock.now < others_until_s:
            patience.answered()
    raise AssertionError("it is asked for ever")


def test_a_question_that_alone_fails_gets_its_line(patience: Patience, clock: Clock) -> None:
    error = answered(eigencal.LLMUnavailable, retryable=True)
    patience.limit_s = 600.0
    count = attempts_until_it_ends(Attempts(patience), patience, clock, error, others_until_s=1e9)
    assert count == PASSED_OVER + 1
    assert 30 < clock.now < 120


def test_where_there_is_no_room_it_is_asked_for_as_long_as_patience_lasts(
    patience: Patience, clock: Clock
) -> None:
    error = answered(eigencal.Overloaded, retryable=True)
    patience.limit_s = 600.0
    attempts_until_it_ends(Attempts(patience), patience, clock, error, others_until_s=1e9)
    assert 600 <= clock.now < 620


def test_a_question_that_is_left_after_all_others_gets_its_line(patience: Patience, clock: Clock) -> None:
    error = answered(eigencal.LLMUnavailable, retryable=True)
    attempts_until_it_ends(Attempts(patience), patience, clock, error, others_until_s=2.0)
    assert clock.now <= 2.0 + 2 * patience.limit_s


def test_a_service_that_goes_away_while_an_answer_is_under_way_ends_the_run(
    patience: Patience, clock: Clock
) -> None:
    error = answered(eigencal.EmbedderUnavailable, retryable=True)
    attempts = Attempts(patience)
    clock.now += attempts.wait_s(error)
    patience.answered()  # it was under way
    with pytest.raises(eigencal.EmbedderUnavailable):
        attempts_until_it_ends(attempts, patience, clock, error, others_until_s=0.0)


def test_where_nothing_was_sent_it_is_not_the_question(patience: Patience, clock: Clock) -> None:
    attempts = Attempts(patience)
    for _ in range(PASSED_OVER * 2):
        clock.now += attempts.wait_s(GONE)
        patience.answered()
    with pytest.raises(eigencal.ConnectionFailed):
        attempts_until_it_ends(attempts, patience, clock, GONE, others_until_s=0.0)
