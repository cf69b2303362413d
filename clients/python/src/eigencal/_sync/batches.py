"""Several requests of a batch under way at a time, each in a thread; items are taken in the caller's own."""

import contextlib
import queue
import socket
import threading
from collections.abc import Callable, Iterator

import httpx

from eigencal._models.batch import BatchItem
from eigencal._sending.batches import Part

# Yields the lines of a part; is told to stop by the event, and tells which response it reads.
Reads = Callable[[Part, threading.Event, Callable[[httpx.Response], None]], Iterator[BatchItem]]
LINES_AHEAD = 64  # that wait for a caller who is slower than the service
LOOK_UP_S = 0.2
LET_GO_S = 5.0


class Merged:
    """The lines of all parts as they come, of at most so many requests at a time."""

    def __init__(self, parts: Iterator[Part], reads: Reads, requests: int) -> None:
        self._parts, self._reads, self._requests = parts, reads, requests
        # Bounded: a caller who is slow holds up the reading, and so the service, instead of filling memory.
        self._came: queue.Queue[BatchItem | BaseException | None] = queue.Queue(LINES_AHEAD)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._open: dict[int, httpx.Response] = {}

    def lines(self) -> Iterator[BatchItem]:
        """Yield the lines. Raises what a part ended with; everything under way is broken off then."""
        try:
            while self._fill():
                came = self._came.get()
                if isinstance(came, BatchItem):
                    yield came
                elif came is None:
                    self._under_way -= 1
                else:
                    raise came
        finally:
            self._break_off()

    def _fill(self) -> bool:
        """Start as many parts as there is room for; tell whether any is under way."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        while self._under_way < self._requests and (part := next(self._parts, None)) is not None:
            self._under_way += 1
            # Daemons: one that waits for a service that has died does not keep the program from ending.
            thread = threading.Thread(target=self._run, args=(part,), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self._under_way > 0

    def _run(self, part: Part) -> None:
        try:
            for item in self._reads(part, self._stop, self._opened):
                self._put(item)
            self._put(None)
        except Exception as error:
            self._put(error)
        finally:
            self._open.pop(threading.get_ident(), None)

    def _opened(self, response: httpx.Response) -> None:
        self._open[threading.get_ident()] = response
        if self._stop.is_set():  # it came after the caller had gone
            _hang_up(response)

    def _put(self, came: BatchItem | BaseException | None) -> None:
        """Hand over to the caller, as soon as there is room; nothing any more once it has gone."""
        while not self._stop.is_set():
            with contextlib.suppress(queue.Full):
                self._came.put(came, timeout=LOOK_UP_S)
                return

    def _break_off(self) -> None:
        self._stop.set()
        for response in list(self._open.values()):
            _hang_up(response)
        for thread in self._threads:
            thread.join(LET_GO_S)


def _hang_up(response: httpx.Response) -> None:
    """Wake a thread that waits for this response: closing a socket elsewhere would let it wait on."""
    stream = response.extensions.get("network_stream")
    connected = stream.get_extra_info("socket") if stream is not None else None
    if connected is not None and not response.is_closed:
        with contextlib.suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)
