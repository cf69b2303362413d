"""A job's rows in SQL: taken in with the job in one transaction, read a page at a time."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from service.embedding.outcomes import supplied_draws
from service.jobs.intake import Tally, each
from service.jobs.model import CalibrateOptions, DevRow, Setup, needs_llm, setup_key
from service.jobs.store import StoredRow
from service.store.codec import decode_row, encode_draws, encode_row
from service.store.database import Database
from service.store.tables import dev_rows, jobs

_BATCH = 200
_PAGE = 100


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
    tally, batch = Tally(options), list[dict[str, Any]]()
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


def _encoded(job_id: str, row: DevRow) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "line": row.line,
        "content": encode_row(row),
        "draws": encode_draws(supplied_draws(row.samples or (), row.logprobs)),
        "complete": row.samples is not None,
    }


async def read_rows(
    database: Database, job_id: str, *, incomplete_only: bool = False
) -> AsyncIterator[StoredRow]:
    """Yield the rows in file order; no connection is held between pages."""
    query = sa.select(dev_rows).where(dev_rows.c.job_id == job_id).order_by(dev_rows.c.line).limit(_PAGE)
    if incomplete_only:
        query = query.where(sa.not_(dev_rows.c.complete))
    # Pages begin after the last line seen: OFFSET would read all pages before once more.
    last = -1
    while page := await _page(database, query.where(dev_rows.c.line > last)):
        for found in page:
            yield decode_row(found)
        last = page[-1]["line"]


async def _page(database: Database, query: sa.Select[Any]) -> Sequence[RowMapping]:
    async with database.read() as connection:
        found: Sequence[RowMapping] = (await connection.execute(query)).mappings().all()
    return found
