"""Probes do not wait for slow scores, and the work of a score stops when its caller leaves."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from service import sharing
from service.scoring import claims
from service.scoring.claims import Outcomes
from tests.support.live import fake_app, on_socket, posted

CALLERS, CLAIMS = 12, 64
BODY = {
    "samples": [f"The city number {number} of France is Lyon." for number in range(20)],
    "candidate": " ".join(f"The river number {number} flows to Lyon." for number in range(CLAIMS)),
    "claims": True,
}


class HeldOutcomes:
    """Counts compared claims and holds each claim until the gate is open."""

    def __init__(self) -> None:
        self.gate, self.number, self._compare = threading.Event(), 0, claims.outcomes_of

    def __call__(self, *args: Any, **kwargs: Any) -> Iterator[Outcomes]:
        for outcomes in self._compare(*args, **kwargs):
            self.number += 1
            self.gate.wait()
            yield outcomes


async def test_probes_do_not_wait_for_scores_and_scores_end_with_their_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = HeldOutcomes()
    monkeypatch.setattr(claims, "outcomes_of", held)
    monkeypatch.setattr(sharing, "PIECE_S", 0.0)
    async with asyncio.timeout(300), on_socket(fake_app()) as http, contextlib.AsyncExitStack() as stack:
        stack.callback(held.gate.set)
        writers = [(await posted(http.base_url.port, "/score", BODY))[1] for _ in range(CALLERS)]

        async def under_way() -> float:
            lines = (await http.get("/metrics")).text.splitlines()
            [line] = [line for line in lines if line.startswith("eigencal_scores_in_flight ")]
            return float(line.split()[1])

        while held.number < 2 or await under_way() < CALLERS:
            await asyncio.sleep(0.01)
        assert (await http.get("/readyz")).status_code == 200
        for writer in writers:
            writer.close()
        while await under_way():
            await asyncio.sleep(0.01)
        held.gate.set()
        assert (await http.post("/score", json=BODY)).status_code == 200
    assert held.number <= 2 + CLAIMS  # one in each thread, and the claims of the last caller
