"""The real application on a real socket in a thread, for synchronous callers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal
from fastapi import FastAPI

from service.app import create_app
from service.settings import Settings
from tests.support.live import served
from tests.support.reports import FEW


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve until the block ends; yield the URL."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(served(app)) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def serving_app(
    folder: Path, *, llm: Any, embedder: Any, store: Any = None, **settings: Any
) -> Iterator[str]:
    """Serve an application with these parts. Without a `store`, the database is in the folder."""
    made = Settings(data_dir=folder, **settings)
    with serving(create_app(made, llm=llm, embedder=embedder, store=store, resamples=FEW)) as url:
        yield url
