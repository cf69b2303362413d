"""Unreadable rows of the store are skipped at the start, in lists and by scores. /readyz names them."""

import logging
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from service.calibration.store import _encode_reference
from service.spectral.conformal import ConformalReference
from service.store.database import Database
from tests.support.replica_apps import replica_app

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
    *[Damage("calibrations", column, "many", ("calibrations",)) for column in ("num_rows", "projection_ece")],
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
            (await http.post("/calibrate", json={"examples": ROWS})).raise_for_status()
            secret = (await http.post("/keys", json={"name": "x", "scope": "admin"})).json()["key"]
            http.headers["Authorization"] = f"Bearer {secret}"
            whole = {path: (await http.get(path)).json() for path in LISTS}
            assert all(whole.values()), "each list has rows"
        with closing(sqlite3.connect(folder / "eigencal.db", isolation_level=None)) as store:
            store.execute("INSERT INTO conformal_references SELECT id, ? FROM calibrations", (REFERENCE,))
            is_text = damage.value is NO_UTF8
            change = f"UPDATE {damage.table} SET {damage.column} = {'CAST(? AS TEXT)' if is_text else '?'}"
            value = b'{"\xff"' if is_text else damage.value
            store.execute(f"{change} WHERE rowid = (SELECT max(rowid) FROM {damage.table})", (value,))
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


async def test_a_row_that_can_be_read_again_is_served_again(tmp_path: Path) -> None:
    async with replica_app(tmp_path) as http:
        job = (await http.post("/calibrate", json={"examples": ROWS})).raise_for_status().json()
        await http.get(f"/jobs/{job['id']}/events")  # until it ends: its transactions need the event loop
        with closing(sqlite3.connect(tmp_path / "eigencal.db", isolation_level=None)) as store:
            [options] = store.execute("SELECT options FROM jobs").fetchone()
            store.execute("UPDATE jobs SET options = ?", (CUT,))
            assert (await http.get("/jobs")).json() == []
            assert (await http.get("/readyz")).json()["unreadable"] != []
            store.execute("UPDATE jobs SET options = ?", (options,))
        assert len((await http.get("/jobs")).json()) == 1
        assert (await http.get("/readyz")).json()["unreadable"] == []


async def test_an_unreadable_admin_key_leaves_the_admin_routes_closed(tmp_path: Path) -> None:
    async with replica_app(tmp_path) as http:
        (await http.post("/keys", json={"name": "x", "scope": "admin"})).raise_for_status()
    with closing(sqlite3.connect(tmp_path / "eigencal.db", isolation_level=None)) as store:
        store.execute("UPDATE keys SET name = ?", (CUT,))
    async with replica_app(tmp_path) as http:
        assert (await http.get("/jobs")).status_code == 401


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
            await database.soon(database._ready())
