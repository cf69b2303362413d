"""The log of errors answered: a line each with the request's id; of many at once, a few and their number.

A line never holds a caller's text: an error of the caller's making is named by its code alone, one of the
service or the LLM by the sentence that the caller got, which holds no prompt and no key.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

log = logging.getLogger(__name__)

LINES = 5
WINDOW_S = 10.0
LONGEST_PATH = 200


@dataclass(slots=True)
class _Window:
    """The errors of one code since the first of them was logged."""

    level: int
    seen: int
    end: asyncio.TimerHandle


class ErrorLog:
    """Logs errors as they are answered: at most `lines` of one code in `window_s`, then how many more came.

    Errors of the caller (4xx) at info, those that may pass (503, 504, ...) at warning, others at error.
    """

    def __init__(self, *, lines: int = LINES, window_s: float = WINDOW_S) -> None:
        self._lines, self._window_s = lines, window_s
        self._open: dict[str, _Window] = {}

    async def start(self) -> None:
        """Nothing to open."""

    async def stop(self) -> None:
        """Tell the counts that are still open; idempotent."""
        for code in list(self._open):
            self._close(code)

    def note(self, body: Mapping[str, Any], where: str, failure: BaseException | None = None) -> None:
        """Log a problem's body as it is answered. Needs a running event loop.

        `where`: method and path of the request. `failure`: an unexpected exception, told with its traceback.
        """
        level = level_of(body)
        if not log.isEnabledFor(level):
            return
        # By code, of which there are few: by path or caller, a flood could open windows without end.
        code = body["code"]
        if code not in self._open:
            end = asyncio.get_running_loop().call_later(self._window_s, self._close, code)
            self._open[code] = _Window(level, 0, end)
        window = self._open[code]
        window.seen += 1
        if window.seen <= self._lines:
            log.log(level, "%s", line(body, where), exc_info=failure)

    def _close(self, code: str) -> None:
        window = self._open.pop(code)
        window.end.cancel()
        more = window.seen - self._lines
        if more > 0:
            log.log(window.level, "%s: %d more within %g s", code, more, self._window_s)


def level_of(body: Mapping[str, Any]) -> int:
    """Return the level of the log at which a problem is told."""
    status = body["status"]
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return logging.INFO
    passing = body["retryable"] and status != HTTPStatus.INTERNAL_SERVER_ERROR
    return logging.WARNING if passing else logging.ERROR


def line(body: Mapping[str, Any], where: str) -> str:
    """Return a problem as a line of the log."""
    shown = repr(where)[1:-1][:LONGEST_PATH]  # as escaped: a path may hold anything, line feeds included
    told = f"{body['status']} {body['code']}, request {body['request_id']}, {shown}"
    if body["status"] >= HTTPStatus.INTERNAL_SERVER_ERROR:
        told += f": {body['detail']}"
    if "llm_message" in body:
        told += f" The LLM server said: {body['llm_message']!r}"
    return told
