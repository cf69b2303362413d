"""Reading the rows of a job, a page at a time."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import RowMapping

from service.adapters.store import codec
from service.adapters.store.database import Database
from service.adapters.store.tables import dev_rows
from service.domain.jobs.store import StoredRow

_PAGE = 100


async def read_rows(
    database: Database, job_id: str, *, incomplete_only: bool = False
) -> AsyncIterator[StoredRow]:
    """Yield the rows in file order; no connection is held between pages."""
    query = sa.select(dev_rows).where(dev_rows.c.job_id == job_id).order_by(dev_rows.c.line).limit(_PAGE)
    if incomplete_only:
        query = query.where(sa.not_(dev_rows.c.complete))
    last = -1
    while page := await _page(database, query.where(dev_rows.c.line > last)):
        for found in page:
            yield codec.decode_row(found)
        last = page[-1]["line"]


async def _page(database: Database, query: sa.Select[Any]) -> Sequence[RowMapping]:
    async with database.read() as connection:
        found: Sequence[RowMapping] = (await connection.execute(query)).mappings().all()
    return found
