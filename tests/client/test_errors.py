"""Errors by HTTP status with the service's code, and clear errors for other servers."""

import pickle
from collections.abc import Callable
from typing import Any

import httpx2 as httpx
import pytest

import eigencal
from eigencal import APIConnectionError, EigencalError, ServerError, UnexpectedResponseError
from tests.support.both_clients import Driver
from tests.support.fakes import FakeLLM

Answer = Callable[[httpx.Request], httpx.Response]


def answering(status: int, **content: Any) -> Answer:
    return lambda request: httpx.Response(status, **content)


def raised(drive: Driver, answer: Answer) -> EigencalError:
    with drive("http://host", answer=answer, retries=0, key="secret") as client:
        with pytest.raises(EigencalError) as caught:
            client.score("What?")
    assert "secret" not in str(caught.value) + repr(caught.value)
    return caught.value


def test_the_page_of_a_proxy_is_a_clear_error(drive: Driver) -> None:
    page = "<html>\n<h1>502 Bad Gateway</h1>" + "x" * 5000
    headers = {"content-type": "text/html", "x-request-id": "of-the-proxy"}
    error = raised(drive, answering(502, content=page, headers=headers))
    assert isinstance(error, ServerError)
    assert "502 with text/html" in error.detail and "502 Bad Gateway" in error.detail
    assert len(str(error)) < 500
    assert (error.request_id, error.retryable) == ("of-the-proxy", False)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"detail": 7, "code": {}, "errors": 5}', b"[" * 200_000])
def test_error_without_a_code_is_from_a_proxy_or_another_service(drive: Driver, body: bytes) -> None:
    error = raised(drive, answering(404, content=body, headers={"x-request-id": "theirs"}))
    assert isinstance(error, UnexpectedResponseError) and "not an Eigencal service" in error.detail
    assert (error.status, error.request_id, error.retryable) == (404, "theirs", False)
    error = raised(
        drive, answering(503, content=body, headers={"retry-after": "Mon, 01 Jan 2024 00:00:00 GMT"})
    )
    assert (type(error), error.retryable, error.errors) == (ServerError, True, ())
    assert (error.request_id, error.retry_after_s) == (None, None)


@pytest.mark.parametrize("body", [b"<html>", b'{"id": 7}', b"[" * 200_000], ids=["page", "other", "deep"])
def test_successful_response_of_another_service_is_an_error(drive: Driver, body: bytes) -> None:
    error = raised(drive, answering(200, content=body))
    assert isinstance(error, UnexpectedResponseError)
    assert "POST /score" in str(error)


def test_connection_error_does_not_show_the_password_of_the_url(drive: Driver) -> None:
    with drive("http://me:secret@127.0.0.1:1", retries=0) as client:  # pragma: allowlist secret
        assert "secret" not in repr(client)
        with pytest.raises(APIConnectionError, match=r"http://127\.0\.0\.1:1") as caught:
            client.score("What?")
    assert caught.value.code == "connection_failed"
    assert "secret" not in str(caught.value)


def test_a_real_refusal_names_what_is_wrong(drive: Driver, url: str, llm: FakeLLM) -> None:
    with drive(url) as client:
        with pytest.raises(eigencal.UnprocessableEntityError) as caught:
            client.score("What?", num_samples=1000)
        assert caught.value.errors[0]["loc"] == ["body", "num_samples"]
        assert caught.value.code == "invalid_request" and caught.value.request_id
        with pytest.raises(eigencal.NotFoundError):
            client.calibration("cal_/../../readyz")  # the id is quoted, so it cannot change the path
        with pytest.raises(eigencal.InvalidSetupError, match="nothing to score"):
            client.score(num_samples=3)
    assert llm.requests == []


def test_errors_can_be_pickled() -> None:
    error = eigencal.UnprocessableEntityError(
        "no", status=422, code="c", retryable=True, request_id="r", problem={"errors": [{"msg": "no"}]}
    )
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is type(error) and vars(copied) == vars(error) and str(copied) == str(error)
