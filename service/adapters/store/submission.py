"""Taking in a job: all of its rows in one transaction with it, or nothing."""

import hashlib
import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.adapters.store.codec import encode_draws, encode_row
from service.adapters.store.tables import dev_rows, jobs
from service.domain.errors import InvalidDevData
from service.domain.jobs.model import MIN_USABLE_ROWS, CalibrateOptions, DevRow
from service.domain.jobs.setup import Setup, needs_llm, setup_key
from service.domain.outcomes import supplied_draws

_BATCH = 200


async def each(rows: AsyncIterable[DevRow] | Iterable[DevRow]) -> AsyncIterator[DevRow]:
    """Yield rows from either kind of iterable."""
    if isinstance(rows, AsyncIterable):
        async for row in rows:
            yield row
    else:
        for row in rows:
            yield row


class Tally:
    """What is known of an upload once its rows have been read: how many, of which kind, and their hash."""

    def __init__(self, options: CalibrateOptions) -> None:
        self._options = options
        self._hash = hashlib.sha256(json.dumps(asdict(options), sort_keys=True).encode())
        self.rows = self.usable = self.supplied = 0

    def add(self, row: DevRow) -> None:
        """Count a row."""
        self._hash.update(json.dumps(asdict(row), sort_keys=True).encode() + b"\n")
        self.rows += 1
        self.supplied += row.samples is not None
        self.usable += row.usable() and self._enough(row)

    def _enough(self, row: DevRow) -> bool:
        asked = self._options.num_samples
        return row.samples is None or asked is None or len(row.samples) >= asked

    def digest(self) -> str:
        """Return the hash of options and rows."""
        return self._hash.hexdigest()

    def check(self) -> None:
        """Raise InvalidDevData unless a calibration can be fitted on these rows."""
        if self.usable < MIN_USABLE_ROWS:
            raise InvalidDevData(
                f"{self.usable} of {self.rows} rows are usable (a reference, and at least as many samples as "
                f"asked for where samples are given); a fit needs at least {MIN_USABLE_ROWS}."
            )
        if 0 < self.supplied < self.rows and self._options.drawn_by != "service":
            raise InvalidDevData(
                f"{self.supplied} of {self.rows} rows carry samples and the rest do not: that needs "
                "`drawn_by` to be `service`, since answers of two sources cannot share a calibration."
            )


def _encoded(job_id: str, row: DevRow) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "line": row.line,
        "content": encode_row(row),
        "draws": encode_draws(supplied_draws(row.samples or ())),
        "complete": row.samples is not None,
    }


async def insert_job(
    connection: AsyncConnection, job_id: str, options: CalibrateOptions, key: str | None
) -> None:
    """Insert a queued job without rows; IntegrityError when the idempotency key is taken."""
    values = {"id": job_id, "kind": options.kind, "state": "queued", "options": asdict(options)}
    zeros = {"num_rows": 0, "done": 0, "total": 0, "epoch": 0}
    texts = {"content_hash": "", "note": "", "idempotency_key": key}
    await connection.execute(
        sa.insert(jobs).values(values | zeros | texts | {"created_at": datetime.now(UTC)})
    )


async def insert_rows(
    connection: AsyncConnection,
    job_id: str,
    rows: AsyncIterable[DevRow] | Iterable[DevRow],
    options: CalibrateOptions,
    setup: Setup,
) -> None:
    """Insert the rows in batches, check them, and complete the job with their number, hash and set-up."""
    tally, batch = Tally(options), []
    async for row in each(rows):
        tally.add(row)
        batch.append(_encoded(job_id, row))
        if len(batch) == _BATCH:
            await connection.execute(sa.insert(dev_rows), batch)
            batch = []
    if batch:
        await connection.execute(sa.insert(dev_rows), batch)
    tally.check()
    parts = setup.parts(draws=needs_llm(options, missing=tally.rows - tally.supplied))
    bound = {"setup": parts, "setup_key": setup_key(parts)}
    counted = {"num_rows": tally.rows, "total": tally.rows, "content_hash": tally.digest()}
    await connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(counted | bound))


async def digest_of(rows: AsyncIterable[DevRow] | Iterable[DevRow], options: CalibrateOptions) -> str:
    """Return the hash that `insert_rows` would store."""
    tally = Tally(options)
    async for row in each(rows):
        tally.add(row)
    return tally.digest()
