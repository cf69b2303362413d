"""The demonstration: a valid dev set, a tour that calibrates once, and error messages."""

import asyncio
import io
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from benchmarks.processes import free_port
from demo import tour
from demo.tour import (
    BackgroundProcess,
    Demo,
    DemoError,
    call,
    get_to_know,
    set_defaults,
    wait_until,
    walk,
)
from service.app import create_app
from service.jobs import knowing
from service.jobs.knowing import bundled_rows
from service.settings import Settings
from tests.support.evidence import TellingLLM
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.knower import Knower
from tests.support.live import served
from tests.support.reports import FEW as FEW_RESAMPLES
from tests.support.sqlite_store import SqliteStore
from tools.record_demo import record


@asynccontextmanager
async def demo_app(
    data_dir: Path, num_samples: int = 20, *, get_to_know: bool = False, **parts: Any
) -> AsyncIterator[str]:
    settings = Settings(data_dir=data_dir, num_samples=num_samples, get_to_know=get_to_know, llm_slots=512)
    app = create_app(
        settings, **{"llm": FakeLLM(), "embedder": FakeEmbedder(), "resamples": FEW_RESAMPLES, **parts}
    )
    async with served(app) as port:
        yield f"http://127.0.0.1:{port}"


def demo_settings(monkeypatch: pytest.MonkeyPatch, **values: str) -> Settings:
    """Return the settings of `make run` in an environment with these variables alone."""
    for name in list(os.environ):
        if name.startswith("EIGENCAL_"):
            monkeypatch.delenv(name)
    for name, value in values.items():
        monkeypatch.setenv(f"EIGENCAL_{name.upper()}", value)
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", dict(os.environ))
        set_defaults()
        return Settings()


def test_an_llm_server_of_the_environment_keeps_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = demo_settings(monkeypatch, llm_url="http://127.0.0.1:9/v1")
    assert (settings.llm_model, settings.prompt_template, settings.llm_api) == ("", "", "chat")
    assert (settings.embedder, settings.target_error) == ("all-MiniLM-L6-v2", None)
    assert demo_settings(monkeypatch).target_error == 0.5


async def test_tour_waits_until_the_llm_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knowing, "QUIET_S", 0.05)
    async with demo_app(tmp_path, num_samples=3, get_to_know=True, llm=Knower()) as url:
        # Without `capsys`, because the log of DBOS would keep writing to its replacement of stderr.
        with redirect_stdout(io.StringIO()) as out:
            for _ in range(2):
                await asyncio.to_thread(walk, url)
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            [made] = (await http.get("/calibrations")).json()
    output = out.getvalue()
    assert (made["rows"], made["active"]) == (len(bundled_rows()), True)
    assert f"Its report: {url}/calibrations/{made['id']}/report" in output.splitlines()
    for stage in (
        "No decision yet.",
        "240 questions",
        "Activated: ",
        "from an earlier run",
    ):
        assert stage in output


async def test_tour_does_not_wait_if_the_service_does_not_ask(tmp_path: Path) -> None:
    async with demo_app(tmp_path, store=SqliteStore()) as url:
        with redirect_stdout(io.StringIO()) as out:
            await asyncio.to_thread(walk, url, to_know=False)
    assert (
        "Decision: " not in out.getvalue().split("name of my dog")[0].split("France")[1].split("Decision")[0]
    )


async def test_a_cancelled_job_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knowing, "QUIET_S", 0.05)
    store, llm = SqliteStore(), Knower()
    async with demo_app(tmp_path, store=store, get_to_know=True, llm=llm) as url:
        with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
            waiting = asyncio.create_task(asyncio.to_thread(get_to_know, http))
            async with asyncio.timeout(60):
                while not (jobs := await store.runs.latest()):
                    await asyncio.sleep(0.01)
            llm.available = False  # otherwise the job could succeed before it is cancelled
            # A failed one is retried at once.
            await asyncio.to_thread(call, http, "DELETE", f"/jobs/{jobs[0].id}")
            with pytest.raises(DemoError, match=r"cancelled\. no reason given"):
                await waiting


async def test_a_job_of_an_earlier_run_is_not_taken_for_the_present_one(tmp_path: Path) -> None:
    jobs = [{"id": "old", "state": "succeeded", "decision": "Old.", "calibration_id": "cal_old"}]
    new = {"id": "new", "stage": None, "decision": "New.", "calibration_id": "cal_new"}
    answers = iter([jobs, jobs, [new | {"state": "queued"}, *jobs], new | {"state": "succeeded"}])
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=next(answers)))
    with httpx.Client(transport=transport, base_url="http://x") as http, redirect_stdout(io.StringIO()):
        assert await asyncio.to_thread(get_to_know, http) == "cal_new"


async def test_refusal_is_quoted_and_a_missing_key_explained(tmp_path: Path) -> None:
    async with demo_app(tmp_path, store=SqliteStore()) as url:
        with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
            await asyncio.to_thread(call, http, "POST", "/keys", json={"name": "first", "scope": "score"})
            with pytest.raises(DemoError, match=r"answered 401: .* Set EIGENCAL_ADMIN_KEY"):
                await asyncio.to_thread(call, http, "POST", "/score", json={"prompt": "?"})


async def test_recording_samples_answers_with_logprobs(tmp_path: Path) -> None:
    questions = b"".join(
        b'{"id": "%d", "prompt": "Who %d?", "reference": "Me"}\n' % (i, i) for i in range(12)
    )
    async with demo_app(tmp_path, num_samples=3, llm=TellingLLM()) as url:
        with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
            drawn = await asyncio.to_thread(record, http, questions, 3)
            active = (await asyncio.to_thread(http.get, "/calibrations/active")).json()
    assert [row["prompt"] for row in drawn] == [f"Who {i}?" for i in range(12)]
    assert {len(row["samples"]) for row in drawn} == {len(row["logprobs"]) for row in drawn} == {3}
    assert active == []


async def test_port_in_use_is_reported(tmp_path: Path) -> None:
    async with demo_app(tmp_path, store=SqliteStore()) as url:
        demo = Demo(tmp_path, "127.0.0.1", int(url.rpartition(":")[2]))
        with pytest.raises(DemoError, match="Another program uses"):
            await asyncio.to_thread(demo.start, with_llm=True)
    assert list(tmp_path.glob("*.pid")) == []


@pytest.mark.parametrize(
    "content",
    # Ids are set, because parallel test processes must have the same test names.
    ["", "garbage", "-1", str(10**30), pytest.param(str(os.getpid()), id="our own")],
)
def test_a_stale_process_id_stops_nothing(tmp_path: Path, content: str) -> None:
    for name in ("service", "llm"):
        (tmp_path / f"{name}.pid").write_text(content)
    assert Demo(tmp_path, "127.0.0.1", 1).stop() is False


def sleeper(folder: Path, name: str) -> BackgroundProcess:
    """Return a process that runs until it is stopped."""
    return BackgroundProcess(folder, name, "http.server", "0")


def test_a_later_call_stops_what_is_left_of_an_earlier_one(tmp_path: Path) -> None:
    for left in ("service", "llm"):  # the other one has died
        started = sleeper(tmp_path, left)
        started.start()
        command = Path("/proc") / (tmp_path / f"{left}.pid").read_text() / "cmdline"
        # Empty for a moment after the start.
        assert wait_until(lambda path=command: bool(path.read_bytes()), 10)
        later = Demo(tmp_path, "127.0.0.1", 1)
        later.service, later.llm = sleeper(tmp_path, "service"), sleeper(tmp_path, "llm")
        assert later.stop() is True
        assert wait_until(lambda process=started: process.has_ended, 10)
        assert later.stop() is False


def test_a_failed_start_stops_both_and_shows_the_log(tmp_path: Path) -> None:
    demo = Demo(tmp_path, "127.0.0.1", free_port())
    demo.llm, demo.service = sleeper(tmp_path, "llm"), BackgroundProcess(tmp_path, "service", "no_such")
    demo.llm.start()
    with pytest.raises(DemoError, match=r"`service` did not start(.|\n)*No module named no_such"):
        demo.start(with_llm=False)
    assert demo.llm.has_ended
    assert list(tmp_path.glob("*.pid")) == []


def test_the_llm_server_leaves_the_port_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setattr(tour, "LLM_PORT", port)
    demo = Demo(tmp_path, "127.0.0.1", port)
    demo.llm, demo.service = sleeper(tmp_path, "llm"), sleeper(tmp_path, "service")
    with pytest.raises(DemoError, match=rf"unrecognized arguments: --port (?!{port} )\d+"):
        demo.start(with_llm=True)


def test_a_service_that_ends_by_itself_meanwhile_does_not_keep_the_llm_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("service", "llm"):
        (tmp_path / f"{name}.pid").write_text(str(2**22 + 1))  # larger than every process id
    demo = Demo(tmp_path, "127.0.0.1", 1)
    monkeypatch.setattr(demo.service, "_runs", lambda _: True)
    assert demo.stop() is True
    assert list(tmp_path.glob("*.pid")) == []


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
    ],
)
def test_a_service_on_every_address_is_reached_on_loopback(tmp_path: Path, host: str, url: str) -> None:
    assert Demo(tmp_path, host, 8000).url == url
