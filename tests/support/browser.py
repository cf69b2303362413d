"""A real Chromium, controlled by its DevTools protocol."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE_S = 300  # a guard only: the machine may be busy
# Chromium reads commands from file 3 and answers on file 4; each message ends with a NUL.
PIPED = 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'


class Page:
    """A tab. `events`: all its events, in order."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._from = process.stdin.fileno(), process.stdout.fileno()
        self._unread = b""
        self._last = 0
        self._session: dict[str, str] = {}
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of a command of the protocol."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        os.write(self._to, json.dumps(message | self._session).encode() + b"\0")
        while (message := self._receive()).get("id") != self._last:
            self.events.append(message)
        assert "error" not in message, message
        return message["result"]

    def open(self, path: Path) -> None:
        """Load a file, and wait until nothing more is loading."""
        self.visit(path.as_uri())

    def visit(self, address: str) -> None:
        """Load a page, and wait until nothing more is loading."""
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        self.events.clear()
        self._load("Page.navigate", url=address)

    def reload(self) -> None:
        """Load the same page again, and wait until nothing more is loading."""
        self._load("Page.reload")

    def _load(self, method: str, **parameters: Any) -> None:
        before = len(self.named("Page.loadEventFired"))
        self.call(method, **parameters)
        while len(self.named("Page.loadEventFired")) == before:
            self.events.append(self._receive())

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], PATIENCE_S)
            assert ready, "Chromium does not answer"
            got = os.read(self._from, 1 << 20)
            assert got, "Chromium has ended"
            self._unread += got
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the events satisfy a condition; some arrive after the page has loaded."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, self.events
            time.sleep(0.05)
            self.evaluate("0")  # receives the pending events

    def named(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of all events with this name."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def requests(self) -> list[str]:
        """Return the requested addresses."""
        return [event["request"]["url"] for event in self.named("Network.requestWillBeSent")]

    def complaints(self) -> list[dict[str, Any]]:
        """Return the console messages: log entries, calls of console.*, uncaught errors."""
        kinds = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [event for kind in kinds for event in self.named(kind)]

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression. The page's script policy does not apply."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        """Set the size in CSS pixels, with the viewport rules of a phone or a desktop."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def screenshot(self) -> bytes:
        """Return a PNG of the whole page, including the parts outside of the viewport."""
        capture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(capture["data"])

    def pdf(self) -> bytes:
        """Return the printed page as PDF, in the paper size of its style sheet."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"])


@contextmanager
def browser_page(folder: Path) -> Iterator[Page]:
    """Run a fresh Chromium with its profile in `folder`; yield an empty tab."""
    assert CHROMIUM, "Chromium is missing: make test-browser"
    command = ["sh", "-c", PIPED, CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Page(process)
        finally:
            process.kill()
