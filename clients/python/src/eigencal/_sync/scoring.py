"""Scoring."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Unpack

import httpx

from eigencal._calls import scoring as calls
from eigencal._errors import EigencalError
from eigencal._models.batch import BatchItem
from eigencal._models.kept import KeptScore
from eigencal._models.requests import ScoreOptions
from eigencal._models.score import Score
from eigencal._progress import Progress, told
from eigencal._sending.batches import MOST_ITEMS, Part, length_of, parts
from eigencal._sync.batches import Merged
from eigencal._sync.sending import Sender, lines_of


class Scoring(Sender):
    """Calls that score."""

    def score(
        self, prompt: str | None = None, *, timeout_s: float | None = None, **options: Unpack[ScoreOptions]
    ) -> Score:
        """Score how uncertain the LLM is about a prompt.

        The service draws several answers, or takes your `samples`, and returns the largest eigenvalue
        (`lambda_max`, 0..1, higher = more certain) and the entropy (nats, higher = less certain) of their
        density matrix. The eigenvalue is how much of their meaning the answers share, not the probability
        that the answer is right: that is `probability_correct`, where a calibration tells it.

        Args:
            prompt: A question; or leave it out and give `messages` or `samples`.
            timeout_s: Seconds that the call may take in all, repeats included; None: those of the client.
            **options: Every other field of the request, see `ScoreOptions`.

        Returns:
            The score.

        Raises:
            InvalidSetup: There is nothing to score.
            InvalidRequest: The request does not fit; `errors` lists what is wrong.
            Unauthorized: The service wants a key, or another.
            DeadlineExceeded: `deadline_ms` struck before there was enough to score.
            LLMUnavailable: The LLM server is not there, and was not after all repeats.
            NoAnswer: The service is not there, broke off, or took longer than `timeout_s`.
        """
        return self._send(calls.score(prompt, options), timeout_s)

    def score_batch(
        self,
        items: Iterable[str | Mapping[str, Any]],
        *,
        progress: Progress = False,
        requests: int = 2,
        items_per_request: int = MOST_ITEMS,
        timeout_s: float | None = None,
        **options: Unpack[ScoreOptions],
    ) -> Iterator[BatchItem]:
        """Score any number of prompts; lines come in the order in which they are done.

        A bad item fails no other: its line has an `error` in place of a `result`. Where the connection
        breaks off, the items without a line are sent again, and no other. Items are taken as they are
        needed, so an endless generator is fine, and memory does not grow with their number.

        Args:
            items: Prompts, or requests as mappings of the fields of POST /score.
            progress: True: shown on stderr; or who is told (done, total, what).
            requests: Requests under way at a time.
            items_per_request: Items of one request, 1..256. Fewer come sooner from a slow source, which is
                read in your own thread: lines that come while it makes the next item are yielded after that.
            timeout_s: Seconds without a line after which to give up; None: those of the client.
            **options: For every item that leaves them open, see `ScoreOptions`.

        Yields:
            A line for each item; `index` says which, counted over all.

        Raises:
            InvalidRequest: A request as a whole was refused; else as for `score`.
        """
        tell, total = told(progress), length_of(items)
        silence_s = self._setup.limit_s(timeout_s)

        def reads(
            part: Part, stop: threading.Event, opened: Callable[[httpx.Response], None]
        ) -> Iterator[BatchItem]:
            return self._part(part, silence_s, stop, opened)

        merged = Merged(parts(items, options, items_per_request), reads, max(1, requests))
        done = 0
        for done, item in enumerate(merged.lines(), 1):
            tell(done, total, "scored")
            yield item
        if total is None:
            tell(done, done, "scored")  # now it is known

    def _part(
        self,
        part: Part,
        silence_s: float,
        stop: threading.Event,
        opened: Callable[[httpx.Response], None],
    ) -> Iterator[BatchItem]:
        """Yield the lines of a part; after a break, of the items that have none yet."""
        attempts = self._setup.patient(part.call())
        while not (part.done or stop.is_set()):
            try:
                with self._stream(part.call(), silence_s) as response:
                    opened(response)
                    for line in lines_of(response, silence_s):
                        if line:  # else a sign of life
                            item = part.item(line)
                            attempts.went_on()
                            yield item
                part.check_done()
            except EigencalError as error:
                stop.wait(attempts.wait_after(error))

    def get_score(self, score_id: str, *, timeout_s: float | None = None) -> KeptScore:
        """Return a score by its id, as for an answer of the drop-in whose score came later.

        Args:
            score_id: Id of the score.
            timeout_s: Seconds that the call may take in all; None: those of the client.

        Raises:
            NotFound: No score has this id, it is no longer kept, or it was made under another key.
        """
        return self._send(calls.get_score(score_id), timeout_s)
