"""Log lines for the errors returned to callers: one line each."""

from collections.abc import Callable

import pytest

from service.errors import LLMError, LLMUnavailable, Overloaded
from service.http import door, problems
from tests.api.conftest import Client
from tests.support.fakes import FakeLLM

PROMPT = "What is the launch code of the lighthouse?"
MINE = {"X-Request-ID": "mine-1"}
Told = Callable[[], list[tuple[str, str]]]


@pytest.fixture
def log_lines(caplog: pytest.LogCaptureFixture) -> Told:
    """Return the lines of the log of errors so far, with their levels."""
    caplog.set_level("INFO", logger="service")

    def lines() -> list[tuple[str, str]]:
        ours = [record for record in caplog.records if record.name == problems.__name__]
        return [(record.levelname, record.getMessage()) for record in ours]

    return lines


REFUSED = LLMError("Status 400.", llm_status=400, llm_message="max_tokens\nis too large")


@pytest.mark.parametrize(
    ("error", "level", "logged"),
    [
        (LLMUnavailable("It is gone.", retry_after_s=7), "WARNING", "503 llm_unavailable, {}: It is gone."),
        (REFUSED, "ERROR", "502 llm_error, {}: Status 400."),  # without the words of the LLM server
        (RuntimeError("a bug"), "ERROR", "500 internal, {}: "),
    ],
)
async def test_error_is_one_line_with_its_request(
    client: Client,
    llm: FakeLLM,
    log_lines: Told,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    level: str,
    logged: str,
) -> None:
    llm.fail_with = [error]
    async with client() as http:
        await http.post("/score", json={"prompt": PROMPT}, headers=MINE)
    [(level_, line)] = log_lines()
    start = logged.format("request mine-1, POST /score")
    assert level_ == level and line.startswith(start) and "too large" not in line
    assert line == start or (level == "ERROR" and isinstance(error, RuntimeError))
    assert caplog.text.count("RuntimeError: a bug") == isinstance(error, RuntimeError)
    assert PROMPT not in caplog.text


async def test_callers_error_is_logged_by_its_code_only(
    client: Client, log_lines: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "MAX_BODY_BYTES", 2000)
    async with client() as http:
        await http.post("/score", json={PROMPT: 1, "prompt": PROMPT}, headers=MINE)
        await http.post("/score", json={"prompt": PROMPT * 100}, headers=MINE)
        await http.get("/none%0AERROR forged?key=secret", headers=MINE)
    assert log_lines() == [
        ("INFO", "422 invalid_request, request mine-1, POST /score"),
        ("INFO", "413 body_too_large, request mine-1, POST /score"),
        ("INFO", "404 not_found, request mine-1, GET (no route)"),
    ]


@pytest.mark.parametrize(
    ("method", "path", "logged"),
    [
        ("GET", "/scores/sk-secret", "404 not_found, request mine-1, GET /scores/{score_id}"),
        ("GET", "/jobs/sk-secret", "404 not_found, request mine-1, GET /jobs/{job_id}"),
        ("GET", "/docs/sk-secret", "404 not_found, request mine-1, GET /docs/{name}"),
        ("GET", "/sk-secret", "404 not_found, request mine-1, GET (no route)"),
        ("POST", "/v1/sk-secret", "404 not_found, request mine-1, POST (no route)"),
        ("DELETE", "/scores/sk-secret", "405 method_not_allowed, request mine-1, DELETE /scores/{score_id}"),
        ("sk-secret", "/score", "405 method_not_allowed, request mine-1, another method /score"),
    ],
)
async def test_a_key_in_a_path_or_method_is_not_logged(
    client: Client, log_lines: Told, caplog: pytest.LogCaptureFixture, method: str, path: str, logged: str
) -> None:
    async with client() as http:
        await http.request(method, path, headers=MINE)
        metrics = (await http.get("/metrics")).text
    assert log_lines() == [("INFO", logged)]
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("httpx")]
    assert "secret" not in "\n".join([*ours, metrics])


async def test_batch_items_are_logged_individually(client: Client, llm: FakeLLM, log_lines: Told) -> None:
    llm.fail_with = [LLMUnavailable("It is gone.")]
    async with client() as http:
        items = [{"prompt": PROMPT}, {"prompt": 1}]
        await http.post("/score/batch", json={"items": items}, headers=MINE)
    first, second = sorted(log_lines(), reverse=True)
    assert first[1].startswith("503 llm_unavailable, request mine-1, POST /score/batch, item 0: ")
    assert second == ("INFO", "422 invalid_request, request mine-1, POST /score/batch, item 1")


async def test_mass_refusals_do_not_flood_the_log(client: Client, llm: FakeLLM, log_lines: Told) -> None:
    llm.fail_with = [Overloaded("Too many requests are waiting.")]
    async with client() as http:
        assert (await http.post("/score", json={"prompt": "p"})).status_code == 503
    assert log_lines() == []
