"""The drop-in on a real socket, in front of a scripted LLM server."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2 as httpx

from service.app import create_app, serving_of
from service.calibration.calibration import Calibration, service_fingerprint
from service.llm.client import LLM
from service.llm.prompt import Message
from service.proxy.chat import Chat
from service.scoring.telemetry import OtelEvents
from service.settings import Settings
from tests.support.calibrations import Active
from tests.support.fakes import FakeEmbedder
from tests.support.live import on_socket
from tests.support.openai_server import MODEL, Behaviour, OpenAIServer, answers, draws_and
from tests.support.sqlite_store import SqliteStore

QUESTION = {"model": MODEL, "messages": [{"role": "user", "content": "What is the capital of France?"}]}


@dataclass
class DropIn:
    """The application and an HTTP client for it."""

    app: Any
    http: httpx.AsyncClient
    server: OpenAIServer

    @property
    def chat(self) -> Chat:
        chat_: Chat = self.app.state.chat
        return chat_

    async def ask(self, mode: str = "on", **body: Any) -> httpx.Response:
        """Ask the question, with additional fields in the body."""
        # httpx cannot encode infinities and lone surrogates, which callers may send.
        content = json.dumps(QUESTION | body).encode()
        headers = {"X-Eigencal": mode, "Content-Type": "application/json"}
        return await self.http.post("/v1/chat/completions", content=content, headers=headers)

    async def score(self, **body: Any) -> httpx.Response:
        """Score a prompt, with additional fields in the body."""
        return await self.http.post("/score", json={"prompt": "?"} | body)

    async def at_rest(self) -> None:
        """Wait until no request is in progress, here and at the LLM server."""
        async with asyncio.timeout(60):
            while self.chat.scores.tasks or self.server.active:
                await asyncio.sleep(0.01)

    async def scored(self, score_id: str, status: str = "scored") -> dict[str, Any]:
        """Wait until the score has this status, and return it."""
        async with asyncio.timeout(60):
            while True:
                response = await self.http.get(f"/scores/{score_id}")
                if response.status_code == 200 and response.json()["status"] == status:
                    return dict(response.json())
                await asyncio.sleep(0.01)


@asynccontextmanager
async def drop_in(
    server: OpenAIServer,
    *,
    embedder: FakeEmbedder | None = None,
    store: SqliteStore | None = None,
    active: Active | None = None,
    events: OtelEvents | None = None,
    **settings: Any,
) -> AsyncIterator[DropIn]:
    """Serve the drop-in in front of this server, with these active calibrations and `settings`.

    The calls of a self-check would come between those that tests script.
    """
    own = {"llm_url": server.url, "llm_model": MODEL, "num_samples": 5, "self_check": False}
    values = own | settings
    with tempfile.TemporaryDirectory() as folder:
        made = Settings(
            data_dir=Path(folder), **{"chat_num_samples": values.get("num_samples", 20), **values}
        )
        embedder, store = embedder or FakeEmbedder(16), store or SqliteStore()
        store.calibrations = active or store.calibrations
        app = create_app(made, embedder=embedder, store=store, events=events)
        async with on_socket(app) as http:
            yield DropIn(app, http, server)


def for_chats(made: Calibration) -> Active:
    """Return the calibration as an active one for conversations of the scripted server."""
    request = serving_of(Settings()).request(messages=(Message("user", "?"),))
    llm = LLM("http://127.0.0.1:9", model=MODEL).identity(request)
    wanted = service_fingerprint(llm, request.sampling, FakeEmbedder(16).identity)
    return Active(replace(made, fingerprint=wanted))


@asynccontextmanager
async def before(own: Behaviour, draws: Behaviour | None = None, **options: Any) -> AsyncIterator[DropIn]:
    """Serve the drop-in in front of a server with these behaviours for the caller and for samples."""
    server = OpenAIServer(default=draws_and(own, draws or answers("Paris")))
    async with server, drop_in(server, **options) as made:
        yield made


def events_of(content: bytes) -> list[dict[str, Any]]:
    """Return the chunks of a stream, without the final `[DONE]`."""
    data = [line[6:] for line in content.decode().splitlines() if line.startswith("data: {")]
    return [json.loads(event) for event in data]
