"""The console's sign-in: a key in a cookie, which counts only for requests of the service's own pages."""

import logging
from typing import Any

import pytest

from service.http.keys import COOKIE, cookie_of
from service.http.pages import FRAMED
from tests.api.conftest import Client
from tests.api.test_keys import PROMPT, bearer, make
from tests.support.calibrations import add, calibration
from tests.support.drop_in import drop_in
from tests.support.openai_server import OpenAIServer
from tests.support.operator_world import BROWSER
from tests.support.reports import small_report
from tests.support.sqlite_store import SqliteStore

OURS = {"Sec-Fetch-Site": "same-origin"}
KEYS: dict[str, Any] = {"admin_key": "of-admins", "score_key": "of-scores"}


def cookie(key: str) -> dict[str, str]:
    return {"Cookie": f"{COOKIE}={cookie_of(key)}"}


async def test_signing_in_opens_api_and_report_until_signing_out(client: Client) -> None:
    store = SqliteStore()
    made = calibration()
    await add(store.calibrations, made, small_report())
    report = f"/calibrations/{made.id}/report"
    async with client(**KEYS, calibrations=store.calibrations) as http:
        assert (await http.get(report, headers=OURS)).status_code == 401
        signed = await http.post("/console/session", json={"key": " of-admins "})
        assert (signed.status_code, signed.json()) == (200, {"scope": "admin"})
        flags = {part.strip().lower() for part in signed.headers["set-cookie"].split(";")[1:]}
        assert flags == {"httponly", "samesite=strict", "path=/"}
        assert (await http.post("/score", json=PROMPT, headers=OURS)).status_code == 200
        page = await http.get(report, headers={"Accept": BROWSER, "Sec-Fetch-Site": "none"})
        assert page.status_code == 200 and "</html>" in page.text
        assert page.headers["x-frame-options"] == FRAMED["X-Frame-Options"]
        assert (await http.delete("/console/session")).status_code == 204
        assert (await http.get(report, headers=OURS)).status_code == 401
    await store.stop()


@pytest.mark.parametrize(
    ("origin", "headers"), [("https://127.0.0.1", {}), ("http://127.0.0.1", {"X-Forwarded-Proto": "https"})]
)
async def test_cookie_is_secure_over_https(client: Client, origin: str, headers: dict[str, str]) -> None:
    async with client(**KEYS) as http:
        signed = await http.post(f"{origin}/console/session", json={"key": "of-admins"}, headers=headers)
    assert "; Secure" in signed.headers["set-cookie"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://attacker.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1"}, 200),
        ({"Origin": "http://127.0.0.1"}, 200),
        ({}, 200),
    ],
    ids=str,
)
async def test_sign_in_from_another_site_is_refused(
    client: Client, headers: dict[str, str], status: int
) -> None:
    async with client(**KEYS) as http:
        signed = await http.post("/console/session", json={"key": "of-admins"}, headers=headers)
    assert (signed.status_code, "set-cookie" in signed.headers) == (status, status == 200)


async def test_wrong_key_makes_no_cookie(client: Client) -> None:
    async with client(**KEYS) as http:
        for key in ("wrong", "", "eigencal_" + "x" * 43):
            refused = await http.post("/console/session", json={"key": key} if key else {})
            assert refused.json()["code"] == ("bad_key" if key else "invalid_request")
            assert "set-cookie" not in refused.headers
        form = await http.post("/console/session", content=b'{"key":"of-admins"}')
        assert form.status_code == 415  # as a page of another site could send it


@pytest.mark.parametrize(
    ("settings", "key", "session"),
    [
        ({}, "", (True, True, False)),
        (KEYS, "", (False, False, False)),
        (KEYS, "wrong", (False, False, False)),
        (KEYS, "of-scores", (True, False, True)),
        (KEYS, "of-admins", (True, True, True)),
        ({"admin_key": "of-admins"}, "", (True, False, False)),
    ],
)
async def test_session_says_what_is_open(
    client: Client, settings: dict[str, Any], key: str, session: tuple[bool, bool, bool]
) -> None:
    async with client(**settings) as http:
        answer = await http.get("/console/session", headers=OURS | (cookie(key) if key else {}))
    body = answer.json()
    assert (body["score"], body["admin"], body["signed_in"]) == session
    assert body["version"]
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("method", "headers", "counts"),
    [
        ("GET", {"Sec-Fetch-Site": "same-origin"}, True),
        ("GET", {"Sec-Fetch-Site": "none"}, True),
        ("GET", {"Sec-Fetch-Site": "same-site"}, False),
        ("GET", {"Sec-Fetch-Site": "cross-site"}, False),
        ("GET", {}, True),
        ("POST", {"Sec-Fetch-Site": "same-origin"}, True),
        ("POST", {"Sec-Fetch-Site": "none"}, False),
        ("POST", {"Sec-Fetch-Site": "same-site"}, False),
        ("POST", {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1"}, False),
        ("POST", {"Origin": "http://127.0.0.1"}, True),
        ("POST", {"Origin": "http://127.0.0.1:3000"}, False),
        ("POST", {"Origin": "null"}, False),
        ("POST", {}, False),
    ],
    ids=str,
)
async def test_cookie_counts_only_for_own_pages(
    client: Client, method: str, headers: dict[str, str], counts: bool
) -> None:
    async with client(**KEYS) as http:
        path = {"GET": "/jobs", "POST": "/score"}[method]
        json_ = {} if method == "GET" else {"json": PROMPT}
        answer = await http.request(method, path, headers=cookie("of-admins") | headers, **json_)
    assert answer.status_code == (200 if counts else 401)
    assert counts or answer.json()["code"] == "missing_key"


async def test_revoked_key_is_refused_at_once(client: Client) -> None:
    async with client(admin_key="of-admins") as http:
        made = await make(http, "score", "of-admins")
        headers = OURS | cookie(made["key"])
        assert (await http.post("/score", json=PROMPT, headers=headers)).status_code == 200
        await http.delete(f"/keys/{made['id']}", headers=bearer("of-admins"))
        refused = await http.post("/score", json=PROMPT, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "bad_key")
        assert (await http.get("/console/session", headers=headers)).json()["signed_in"] is False


async def test_score_key_opens_no_admin_route(client: Client) -> None:
    async with client(**KEYS) as http:
        refused = await http.get("/jobs", headers=OURS | cookie("of-scores") | {"Accept": BROWSER})
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_required")


@pytest.mark.parametrize("header", [bearer("wrong"), {"X-API-Key": "wrong"}])
async def test_explicit_header_wins(client: Client, header: dict[str, str]) -> None:
    async with client(**KEYS) as http:
        assert (await http.get("/jobs", headers=OURS | cookie("of-admins") | header)).status_code == 401
        right = await http.get("/jobs", headers=OURS | cookie("wrong") | bearer("of-admins"))
    assert right.status_code == 200


async def test_basic_authentication_of_a_proxy_does_not_hide_the_cookie(client: Client) -> None:
    headers = OURS | cookie("of-admins") | {"Authorization": "Basic eDp5"}
    async with client(**KEYS) as http:
        assert (await http.get("/jobs", headers=headers)).status_code == 200
        alone = await http.get("/jobs", headers={"Authorization": "Basic eDp5"})
    assert (alone.status_code, alone.json()["code"]) == (401, "missing_key")


@pytest.mark.parametrize("value", ["", "x", "*", "a" * 5000, '"', cookie_of("of-admins")[:-1]])
async def test_damaged_cookie_is_no_key(client: Client, value: str) -> None:
    async with client(**KEYS) as http:
        answer = await http.get("/jobs", headers=OURS | {"Cookie": f"{COOKIE}={value}"})
    assert answer.status_code == 401


async def test_cookie_is_never_forwarded_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with OpenAIServer() as server, drop_in(server, **KEYS) as own:
        headers = OURS | cookie("of-scores")
        chat = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
        for path, body in (("/v1/chat/completions", chat), ("/score", PROMPT)):
            answer = await own.http.post(path, json=body, headers=headers)
            assert answer.status_code == 200
        await own.http.get("/v1/models", headers=headers)
        await own.http.get("/jobs", headers=headers | {"Cookie": f"{COOKIE}={cookie_of('wrong')}"})
        assert len(server.requests) > 2
        sent = " ".join(str(request.headers) for request in server.requests)
    assert "cookie" not in sent.lower()
    for secret in (cookie_of("of-scores"), "of-scores", cookie_of("wrong")):
        assert secret not in sent + caplog.text
