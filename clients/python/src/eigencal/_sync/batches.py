"""Several requests of a batch under way at a time, each in a thread; items are taken in the caller's own."""

import contextlib
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator

import httpx

from eigencal._errors import InvalidSetup
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
        self._process = os.getpid()

    def lines(self) -> Iterator[BatchItem]:
        """Yield the lines. Raises what a part ended with; everything under way is broken off then."""
        try:
            while (started := self._start_one()) or self._under_way:
                # What has come goes out before a source that may be slow is asked for more.
                for _ in range(self._came.qsize() if started else 1):
                    yield from self._next()
        finally:
            self._break_off()

    def _next(self) -> Iterator[BatchItem]:
        """Wait for what comes next, and yield it if it is a line."""
        if self._process != os.getpid():
            raise InvalidSetup("This batch goes on in the process that began it: begin another after a fork.")
        came = self._came.get()
        if isinstance(came, BatchItem):
            yield came
        elif came is None:
            self._under_way -= 1
        else:
            raise came

    def _start_one(self) -> bool:
        """Start the next part, if there is room and one is left; tell whether it was started."""
        if self._under_way >= self._requests or (part := next(self._parts, None)) is None:
            return False
        self._under_way += 1
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        # Daemons: one that waits for a service that has died does not keep the program from ending.
        thread = threading.Thread(target=self._run, args=(part,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return True

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
        if self._process != os.getpid():
            return  # a copy after a fork: these sockets are still in use where they were opened
        self._stop.set()
        opened = dict(self._open)
        for response in opened.values():
            _hang_up(response)
        for thread in self._threads:
            # One that has no answer yet cannot be woken: it hangs up as soon as it gets one.
            if thread.ident in opened:
                thread.join(LET_GO_S)


def _hang_up(response: httpx.Response) -> None:
    """Wake a thread that waits for this response: closing a socket elsewhere would let it wait on."""
    stream = response.extensions.get("network_stream")
    connected = stream.get_extra_info("socket") if stream is not None else None
    if connected is not None and not response.is_closed:
        with contextlib.suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)
