"""Damaged rows of the store are skipped at the start and in lists. A request for one names the row."""

import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pytest

from benchmarks.processes import PYTHON, running
from service.calibration.store import _encode_reference
from service.spectral.conformal import ConformalReference
from service.store.database import Database
from tests.support.following import followed
from tests.support.replica_apps import replica_app
from tests.support.services import address, until

LISTS = ("/jobs", "/calibrations", "/calibrations/active", "/calibrations/activations", "/keys")
ROWS = [
    {"prompt": f"question {i}", "reference": "Paris", "samples": ["Paris", ("Paris", "Lyon")[i % 2]]}
    for i in range(12)
]


@dataclass
class Damage:
    table: str
    column: str
    value: object
    skipped: tuple[str, ...]  # tables with skipped rows


REFERENCE = _encode_reference(ConformalReference(np.eye(6, 8, dtype=np.float32), np.arange(6.0)))
NO_UTF8 = object()
CUT = '{"name": "x", "nu'
DAMAGES = [
    *[Damage("calibrations", "body", value, ("calibrations",)) for value in (CUT, "", "null", "{}", "[1]")],
    Damage("calibrations", "created_at", "yesterday", ("calibrations",)),
    Damage("calibrations", "body", NO_UTF8, ("calibrations",)),
    Damage("keys", "name", NO_UTF8, ("keys",)),
    Damage("jobs", "options", NO_UTF8, ("jobs",)),
    Damage("jobs", "note", NO_UTF8, ("jobs",)),
    Damage("activations", "by", NO_UTF8, ("activations",)),
    *[
        Damage("calibrations", column, "many", ("calibrations",))
        for column in ("num_rows", "projection_ece", "raw_projection_ece")
    ],
    Damage("conformal_references", "content", b"PK\x03\x04 cut", ("calibrations",)),
    *[Damage("activations", "by", value, ("activations",)) for value in (CUT, "7", "null")],
    Damage("activations", "activated_at", "yesterday", ("activations", "calibrations")),
    *[Damage("keys", "name", value, ("keys",)) for value in (CUT, "7", "null")],
    *[Damage("keys", column, "yesterday", ("keys",)) for column in ("created_at", "expires_at")],
    Damage("keys", "scope", "root", ("keys",)),
    *[Damage("jobs", column, CUT, ("jobs",)) for column in ("options", "setup")],
    *[Damage("jobs", column, "yesterday", ("jobs",)) for column in ("created_at", "started_at")],
    Damage("jobs", "state", "resting", ("jobs",)),
]


async def test_the_service_starts_and_lists_without_damaged_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, damage in enumerate(DAMAGES):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with replica_app(folder, decides=True) as http:
            job = (await http.post("/calibrate", json={"examples": ROWS})).raise_for_status().json()
            await followed(http, job["id"])  # until it ends: it would write to its row again
            secret = (await http.post("/keys", json={"name": "x", "scope": "admin"})).json()["key"]
            http.headers["Authorization"] = f"Bearer {secret}"
            whole = {path: (await http.get(path)).json() for path in LISTS}
            assert all(whole.values()), "each list has rows"
        with closing(sqlite3.connect(folder / "eigencal.db", isolation_level=None)) as store:
            store.execute(
                "INSERT OR IGNORE INTO conformal_references SELECT id, ? FROM calibrations", (REFERENCE,)
            )
            is_text = damage.value is NO_UTF8
            change = f"UPDATE {damage.table} SET {damage.column} = {'CAST(? AS TEXT)' if is_text else '?'}"
            value = b'{"\xff"' if is_text else damage.value
            # Only the references of active calibrations are read, so all are damaged.
            latest = f" WHERE rowid = (SELECT max(rowid) FROM {damage.table})"
            store.execute(change + ("" if damage.table == "conformal_references" else latest), (value,))
        with caplog.at_level(logging.ERROR):
            caplog.clear()
            # A key of the settings, because the damaged key may be the only stored key.
            async with replica_app(folder, admin_key="an admin key of the settings") as http:
                http.headers["Authorization"] = "Bearer an admin key of the settings"
                lists = {path: await http.get(path) for path in LISTS}
                ready, score = await http.get("/readyz"), await http.post("/score", json={"prompt": "?"})
        assert {path: answer.status_code for path, answer in lists.items()} == dict.fromkeys(LISTS, 200), (
            damage
        )
        assert (ready.status_code, score.status_code) == (200, 200), damage
        unreadable = ready.json()["unreadable"]
        assert {row.split()[0] for row in unreadable} == set(damage.skipped), damage
        for row in unreadable:
            table, row_id = row.split()
            assert f"row {row_id} of {table} cannot be read and is skipped" in caplog.text
        assert all(len(lists[path].json()) >= len(whole[path]) - 1 for path in LISTS)


async def test_repaired_row_is_served_again(tmp_path: Path) -> None:
    async with replica_app(tmp_path) as http:
        job = (await http.post("/calibrate", json={"examples": ROWS})).raise_for_status().json()
        await followed(http, job["id"])  # until it ends: its transactions need the event loop
        with closing(sqlite3.connect(tmp_path / "eigencal.db", isolation_level=None)) as store:
            [options] = store.execute("SELECT options FROM jobs").fetchone()
            store.execute("UPDATE jobs SET options = ?", (CUT,))
            assert (await http.get("/jobs")).json() == []
            assert (await http.get("/readyz")).json()["unreadable"] != []
            store.execute("UPDATE jobs SET options = ?", (options,))
        assert len((await http.get("/jobs")).json()) == 1
        assert (await http.get("/readyz")).json()["unreadable"] == []


NO_OBJECT = (CUT, "", "null", "7", "[1]", "{}", NO_UTF8)
CALIBRATION = "/calibrations/{calibration}"
SCORE = {"samples": ["Paris", "Lyon"]}
READS = [
    ("conformal_references", "content", (b"PK\x03\x04 cut",), ("POST /score",)),
    (
        "calibrations",
        "body",
        NO_OBJECT,
        (
            f"GET {CALIBRATION}",
            f"GET {CALIBRATION}/report",
            f"GET {CALIBRATION}/data",
            f"POST {CALIBRATION}/activate",
            f"PATCH {CALIBRATION}/rows",
            "POST /score",
        ),
    ),
    ("calibrations", "created_at", ("yesterday",), (f"GET {CALIBRATION}",)),
    ("calibrations", "num_rows", ("many",), (f"GET {CALIBRATION}",)),
    ("reports", "report", NO_OBJECT, (f"GET {CALIBRATION}/report",)),
    ("jobs", "options", NO_OBJECT, ("GET /jobs/{job}", "POST /jobs/{job}/retry")),
    ("jobs", "setup", NO_OBJECT, ("POST /jobs/{job}/retry", f"PATCH {CALIBRATION}/rows", "POST /calibrate")),
    ("jobs", "state", ("resting",), ("GET /jobs/{job}",)),
    ("jobs", "finished_at", ("yesterday",), ("GET /jobs/{job}",)),
    ("dev_rows", "content", NO_OBJECT, (f"PATCH {CALIBRATION}/rows",)),
    ("dev_rows", "draws", (CUT, "null", "7"), (f"PATCH {CALIBRATION}/rows",)),
    ("kept", "content", (CUT, "", "null", "7", "[1]", NO_UTF8), ("GET /scores/{score}",)),
    ("keys", "name", (CUT, "null", "7", NO_UTF8), ("DELETE /keys/{key}",)),
]


World = tuple[httpx.AsyncClient, sqlite3.Connection, dict[str, str]]


@asynccontextmanager
async def stored_world(folder: Path) -> AsyncIterator[World]:
    """Yield a client, its database, and ids: a calibration that is not active, its job and so on."""
    authorization = {"Authorization": "Bearer an admin key of the settings"}
    async with replica_app(folder, admin_key="an admin key of the settings") as http:
        http.headers.update(authorization)
        headers = {"Idempotency-Key": "one"}
        body = {"examples": ROWS, "activate": "never"}
        ids = {"job": (await http.post("/calibrate", json=body, headers=headers)).json()["id"]}
        await followed(http, ids["job"])  # until it ends
        ids["calibration"] = (await http.get(f"/jobs/{ids['job']}")).json()["calibration_id"]
        ids["key"] = (await http.post("/keys", json={"name": "x", "scope": "score"})).json()["id"]
        ids["score"] = (await http.post("/score", json=SCORE)).json()["id"]
    path = folder / "eigencal.db"
    async with replica_app(folder, admin_key="an admin key of the settings") as http:  # not in memory
        http.headers.update(authorization)
        with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as store:
            yield http, store, ids


async def test_a_request_for_a_damaged_row_says_which_row_is_damaged(tmp_path: Path) -> None:
    async with stored_world(tmp_path) as (http, store, ids):
        bodies = {
            "POST /score": SCORE | {"calibration": ids["calibration"]},
            "POST /calibrate": {"examples": ROWS, "activate": "never"},
            f"PATCH {CALIBRATION}/rows": {"rows": [{"line": 1, "correct": False}]},
        }
        keys = {
            "jobs": ("id", "job"),
            "reports": ("calibration_id", "calibration"),
            "dev_rows": ("line = 3 AND job_id", "job"),
            "kept": ("id", "score"),
            "keys": ("id", "key"),
            "calibrations": ("id", "calibration"),
            "conformal_references": ("calibration_id", "calibration"),
        }
        for table, column, values, requests in READS:
            condition, kind = keys[table]
            this = f"FROM {table} WHERE {condition} = ?"
            [whole] = store.execute(f"SELECT {column} {this}", (ids[kind],)).fetchone()
            for value in values:
                is_text = value is NO_UTF8
                change = f"UPDATE {table} SET {column} = {'CAST(? AS TEXT)' if is_text else '?'}"
                change += f" WHERE {condition} = ?"
                store.execute(change, (b'{"\xff"' if is_text else value, ids[kind]))
                for request in requests:
                    method, path = request.format(**ids).split()
                    answer = await http.request(
                        method, path, json=bodies.get(request), headers={"Idempotency-Key": "one"}
                    )
                    case = (request, column, value, answer.text)
                    assert answer.status_code == 500, case
                    problem = answer.json()
                    assert (problem["code"], problem["retryable"]) == ("damaged_row", False), case
                    assert "is damaged" in problem["detail"], case
                    row_id = {"dev_rows": f"{ids['job']}/3", "kept": "1"}.get(table, ids[kind])
                    assert f"Row {row_id} of" in problem["detail"], case
            store.execute(f"UPDATE {table} SET {column} = ? WHERE {condition} = ?", (whole, ids[kind]))
        assert (await http.get(f"/jobs/{ids['job']}")).status_code == 200


async def test_reports_and_exports_skip_damaged_rows(tmp_path: Path) -> None:
    async with stored_world(tmp_path) as (http, store, ids):
        path, change = CALIBRATION.format(**ids), "UPDATE dev_rows SET content = ? WHERE job_id = ?"
        store.execute(f"{change} AND line IN (3, 12)", (CUT, ids["job"]))
        export, report = await http.get(f"{path}/data"), await http.get(f"{path}/report")
        assert len(export.text.splitlines()) == report.json()["verdicts"]["count"] == len(ROWS) - 2
        unreadable = (await http.get("/readyz")).json()["unreadable"]
        assert unreadable == [f"dev_rows {ids['job']}/{line}" for line in (12, 3)]


async def test_an_unreadable_admin_key_leaves_the_admin_routes_closed(tmp_path: Path) -> None:
    async with replica_app(tmp_path) as http:
        (await http.post("/keys", json={"name": "x", "scope": "admin"})).raise_for_status()
    with closing(sqlite3.connect(tmp_path / "eigencal.db", isolation_level=None)) as store:
        store.execute("UPDATE keys SET name = ?", (CUT,))
    async with replica_app(tmp_path) as http:
        assert (await http.get("/jobs")).status_code == 401


@pytest.mark.parametrize("name", ["eigencal.db", "eigencal.db.jobs"])
@pytest.mark.parametrize("damaged", [slice(0, 100), slice(4096, 8192)])
def test_a_start_names_the_damaged_file_in_one_line(tmp_path: Path, name: str, damaged: slice) -> None:
    log, path = tmp_path / "log", tmp_path / name
    nobody = "http://127.0.0.1:1"
    settings = {"DATA_DIR": str(tmp_path), "PORT": "0"}
    settings |= {"LLM_URL": nobody, "EMBEDDER_URL": nobody}
    env = {f"EIGENCAL_{setting}": value for setting, value in settings.items()}
    with running([PYTHON, "-m", "service"], env=env, log=log) as process:
        address(process, log)
    with closing(sqlite3.connect(path)) as store:
        store.execute("PRAGMA journal_mode = DELETE")
    content = bytearray(path.read_bytes())
    content[damaged] = b"\xa5" * (damaged.stop - damaged.start)
    path.write_bytes(content)
    log.unlink()
    with running([PYTHON, "-m", "service"], env=env, log=log) as process:
        until(lambda: process.poll() is not None)
    assert f"Cannot start: SQLite file {path}: The database file is damaged." in log.read_text()
    assert "Traceback" not in log.read_text()


async def test_readiness_fails_while_no_row_can_be_written(tmp_path: Path) -> None:
    async with replica_app(tmp_path) as http:
        assert (await http.get("/readyz")).status_code == 200
        with closing(sqlite3.connect(tmp_path / "eigencal.db", isolation_level=None)) as store:
            store.execute(
                "CREATE TRIGGER full BEFORE INSERT ON write_checks "
                "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
            )
        database = Database(f"sqlite:///{tmp_path / 'eigencal.db'}")
        with pytest.raises(Exception, match="disk is full"):
            await database.ready()
