"""Errors by their code: each has its class, and whatever answers is told clearly."""

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

import eigencal
from eigencal import (
    ApiError,
    EigencalError,
    InvalidRequest,
    Overloaded,
    RequestRefused,
    ServiceError,
    UnexpectedAnswer,
)
from eigencal._problems import BY_CODE, kind_of, retry_after_s
from service.api.errors import STATUS, problem_body
from tests.support.both_clients import Driver
from tests.support.fakes import FakeLLM

ANSWER = Callable[[httpx.Request], httpx.Response]


def answering(status: int, **content: Any) -> ANSWER:
    return lambda request: httpx.Response(status, **content)


def raised(drive: Driver, answer: ANSWER) -> EigencalError:
    with drive("http://host", answer=answer, retries=0, key="secret") as client:
        with pytest.raises(EigencalError) as caught:
            client.score("What?")
    assert "secret" not in str(caught.value) + repr(caught.value)
    return caught.value


@pytest.mark.parametrize("code", STATUS)
def test_every_code_of_the_service_has_a_class_of_its_own(code: str) -> None:
    kind = BY_CODE[code]
    assert kind is not RequestRefused and kind is not ServiceError and kind.__name__ in eigencal.__all__
    assert issubclass(kind, RequestRefused if STATUS[code] < 500 else ServiceError)
    by_status = kind_of("of_tomorrow", STATUS[code])
    assert issubclass(kind, by_status), "an unknown code of this status is caught by the same except"


def test_codes_of_the_service_are_all_that_the_tree_has() -> None:
    assert BY_CODE.keys() - STATUS.keys() == set()


@pytest.mark.parametrize(
    ("status", "kind"),
    [(422, InvalidRequest), (418, RequestRefused), (507, ServiceError), (302, UnexpectedAnswer)],
)
def test_an_unknown_code_gets_the_class_of_its_status(
    drive: Driver, status: int, kind: type[EigencalError]
) -> None:
    body = {"code": "of_tomorrow", "detail": "so", "retryable": True}
    found = raised(drive, answering(status, json=body))
    assert type(found) is kind
    if isinstance(found, ApiError):
        assert (found.code, found.detail, found.retryable, found.status) == (
            "of_tomorrow",
            "so",
            True,
            status,
        )


def test_an_error_has_all_that_the_service_told(drive: Driver) -> None:
    items = [{"loc": ["body", "prompt"], "msg": "is empty"}]
    body = problem_body(
        "invalid_request", "prompt: is empty", retryable=False, request_id="req_1", errors=items, total_bad=7
    )
    found = raised(drive, answering(422, json=body))
    assert isinstance(found, InvalidRequest)
    assert (found.request_id, found.errors, found.title) == ("req_1", tuple(items), body["title"])
    assert found.problem["total_bad"] == 7
    assert str(found) == "invalid_request: prompt: is empty (request req_1)"


def test_the_page_of_a_proxy_is_a_clear_error(drive: Driver) -> None:
    page = "<html>\n<h1>502 Bad Gateway</h1>" + "x" * 5000
    headers = {"content-type": "text/html", "x-request-id": "of-the-proxy"}
    found = raised(drive, answering(502, content=page, headers=headers))
    assert isinstance(found, eigencal.BadGateway)
    assert (
        "502 with text/html" in found.detail and "502 Bad Gateway" in found.detail and len(str(found)) < 500
    )
    assert (found.request_id, found.retryable) == ("of-the-proxy", False)


OTHERS = [
    b"",
    b"[]",
    b"not json",
    b'{"error": "x"}',
    b'{"detail": 7, "code": {}}',
    b'{"detail": "Not Found"}',
]


@pytest.mark.parametrize("body", OTHERS)
@pytest.mark.parametrize("status", [400, 404, 405, 422, 500, 501])
def test_an_error_of_nobody_we_know_is_not_the_services(drive: Driver, status: int, body: bytes) -> None:
    found = raised(drive, answering(status, content=body, headers={"x-request-id": "theirs"}))
    assert isinstance(found, UnexpectedAnswer) and "not an Eigencal service" in found.detail
    assert (found.status, found.request_id, found.retryable) == (status, "theirs", False)
    assert str(status) in found.detail


@pytest.mark.parametrize("body", OTHERS)
@pytest.mark.parametrize("status", [401, 403, 413, 429, 502, 503, 504, 522])
def test_a_server_before_the_service_is_told_by_its_status(drive: Driver, status: int, body: bytes) -> None:
    found = raised(drive, answering(status, content=body))
    assert type(found) is kind_of(None, status)


def test_a_url_that_ends_in_v1_is_noticed(drive: Driver, url: str) -> None:
    with drive(f"{url}/v1", retries=0) as client:
        for ask in (lambda: client.score("What?"), client.models, client.calibrations):
            with pytest.raises(UnexpectedAnswer, match="leave out /v1"):
                ask()


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"id": 7}'])
def test_a_success_that_is_no_score_is_no_score(drive: Driver, body: bytes) -> None:
    found = raised(drive, answering(200, content=body))
    assert isinstance(found, UnexpectedAnswer)
    assert "POST /score" in str(found)


def test_an_answer_that_is_packed_wrongly_cannot_be_read(drive: Driver) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.DecodingError("not gzip", request=request)

    assert isinstance(raised(drive, answer), UnexpectedAnswer)


def test_errors_of_the_drop_in_are_told_by_code(drive: Driver) -> None:
    error = {"message": "full", "type": "server_error", "param": None, "code": "overloaded"}
    headers = {"retry-after": "7"}
    with drive(
        "http://host", answer=answering(503, json={"error": error}, headers=headers), retries=0
    ) as client:
        with pytest.raises(Overloaded) as caught:
            client.chat([{"role": "user", "content": "Hi"}])
    assert (caught.value.detail, caught.value.retry_after_s, caught.value.retryable) == ("full", 7.0, True)


def test_nobody_there_is_told_without_the_password_in_the_url(drive: Driver) -> None:
    with drive("http://me:secret@127.0.0.1:1", retries=0) as client:
        with pytest.raises(eigencal.ConnectionFailed, match=r"http://127\.0\.0\.1:1") as caught:
            client.score("What?")
    assert "secret" not in str(caught.value)


def test_https_at_a_server_without_tls_says_so(drive: Driver, url: str) -> None:
    with drive(url.replace("http://", "https://"), retries=0) as client:
        with pytest.raises(UnexpectedAnswer, match="its URL begins with http://"):
            client.score("What?")


def test_a_certificate_that_is_not_trusted_is_told(drive: Driver) -> None:
    refused = ssl.SSLCertVerificationError()
    refused.verify_message = "self-signed certificate"

    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("failed", request=request) from refused

    assert "not trusted: self-signed" in str(raised(drive, answer))


def test_a_real_refusal_names_what_is_wrong(drive: Driver, url: str, llm: FakeLLM) -> None:
    with drive(url) as client:
        with pytest.raises(InvalidRequest) as caught:
            client.score("What?", num_samples=1000)
        assert caught.value.errors[0]["loc"] == ["body", "num_samples"]
        assert caught.value.request_id
        with pytest.raises(eigencal.NotFound):
            client.calibration("cal_/../../readyz")  # an id is quoted, and never another path
        with pytest.raises(eigencal.InvalidSetup, match="nothing to score"):
            client.score(num_samples=3)
    assert llm.requests == []


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7", 7.0), ("0", 0.0), ("-3", 0.0), ("99999999", 3600.0), ("nan", None), ("soon", None)],
)
def test_retry_after_in_seconds(said: str, seconds: float | None) -> None:
    assert retry_after_s({"retry-after": said}) == seconds


def test_retry_after_as_a_date() -> None:
    then = datetime.now(UTC) + timedelta(seconds=90)
    assert retry_after_s({"retry-after": format_datetime(then, usegmt=True)}) == pytest.approx(90, abs=3)
    past = datetime.now(UTC) - timedelta(hours=1)
    assert retry_after_s({"retry-after": format_datetime(past)}) == 0.0
    assert retry_after_s({}) is None
