"""Errors go from process to process, and are copied, as they are."""

import copy
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from eigencal import ApiError, EigencalError, InvalidRequest, JobEnded, _errors

PROBLEM = {"title": "Unprocessable", "errors": [{"loc": ["body"], "msg": "no"}]}


def below(kind: type[EigencalError]) -> Iterator[type[EigencalError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from below(one)


KINDS = [kind for kind in below(EigencalError) if kind.__module__ == _errors.__name__]


def made(kind: type[EigencalError]) -> EigencalError:
    if issubclass(kind, ApiError):
        return kind("no", status=422, code="c", retryable=True, request_id="r", problem=PROBLEM)
    return kind("no", "job_1", "c") if issubclass(kind, JobEnded) else kind("no")


WAYS: list[Callable[[EigencalError], EigencalError]] = [
    lambda error: pickle.loads(pickle.dumps(error)),
    copy.copy,
    copy.deepcopy,
]


@pytest.mark.parametrize("way", WAYS, ids=["pickle", "copy", "deepcopy"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_stays_what_it_is(
    kind: type[EigencalError], way: Callable[[EigencalError], EigencalError]
) -> None:
    error = made(kind)
    error.add_note("of the caller")
    found = way(error)
    assert type(found) is kind and vars(found) == vars(error) and found.args == error.args
    assert (str(found), found.code, found.status) == (str(error), error.code, error.status)


def refused() -> None:
    raise made(InvalidRequest)


def test_an_error_comes_back_from_a_worker() -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as workers:
        with pytest.raises(InvalidRequest, match="no") as caught:
            workers.submit(refused).result(60)
    assert (caught.value.errors, caught.value.request_id) == (tuple(PROBLEM["errors"]), "r")
