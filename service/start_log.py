"""What the log says when the service starts: how it is set up, and whether the LLM answers.

No line holds a key, a password or a name of a user.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from urllib.parse import urlsplit

from service.api.health import check
from service.calibration.calibration import Calibration
from service.embedding.port import Embedder
from service.errors import EmbedderUnavailable
from service.llm.port import LanguageModel

log = logging.getLogger(__name__)
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 30.0
KINDS = ("prompts", "conversations")


class StartLog:
    """Logs the set-up at the start, and asks the LLM in the background until it answers.

    `lines`: what is known before. `model` returns the LLM's model, "" while unknown; `own_keys` the
    fingerprint keys of prompts and of conversations, none while unknown; `active` the calibration in force
    for a key.
    """

    def __init__(
        self,
        *lines: str,
        llm: LanguageModel,
        model: Callable[[], str],
        embedder: Embedder,
        embedder_place: str,
        own_keys: Callable[[], tuple[str, ...]],
        active: Callable[[str], Calibration | None],
        first_wait_s: float = FIRST_WAIT_S,
    ) -> None:
        self._lines = lines
        self._llm, self._model = llm, model
        self._embedder, self._embedder_place = embedder, embedder_place
        self._own_keys, self._active = own_keys, active
        self._first_wait_s = first_wait_s
        self._asking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Log the set-up, and begin to ask the LLM in the background."""
        for line in (*self._lines, self._about_embedder()):
            log.info("%s", line)
        self._asking = asyncio.create_task(self._ask(), name="start-log")

    async def stop(self) -> None:
        """Ask no more; idempotent."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking

    def _about_embedder(self) -> str:
        try:
            identity = self._embedder.identity
        except EmbedderUnavailable:
            return f"embedder: {self._embedder_place} does not answer yet"
        device = getattr(self._embedder, "device", "")  # of one in this process
        where = f", on {device}" if device else ""
        return (
            f"embedder: {identity.name}, revision {identity.revision or 'unknown'}, "
            f"{identity.dimension} dimensions, {identity.precision}{where}"
        )

    async def _ask(self) -> None:
        wait_s, known = self._first_wait_s, "ok"
        while (state := await check("the LLM", self._llm.check)) != "ok":
            if state != known:
                log.warning("the LLM does not answer (%s): it is asked again until it does", state)
            known = state
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        log.info("the LLM answers: model %s", self._model() or "unknown")
        log.info("calibrations in force: %s", self._in_force())

    def _in_force(self) -> str:
        keys = self._own_keys()
        if not keys:
            return "unknown until the embedder has answered"
        active = {kind: self._active(key) for kind, key in zip(KINDS, keys, strict=True)}
        if not any(active.values()):
            return "none for this set-up"
        return ", ".join(f"{kind} {one.id if one else 'none'}" for kind, one in active.items())


def shown_url(url: str) -> str:
    """Return a URL without user, password, query and fragment. Raises ValueError for what is no URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
