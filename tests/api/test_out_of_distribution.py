"""Prompts unlike the rows of a calibration are reported on all paths, and never let through."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np

from service.app import create_app
from service.embedding.port import Embedded
from service.settings import Settings
from tests.support.decisions import judged_rows, vectors_of
from tests.support.fakes import FakeEmbedder, FakeLLM
from tests.support.live import in_process
from tests.support.operator_world import ended, jsonl
from tests.support.reports import FEW

ROWS, DIMENSION = 220, 12
LIKE, ESSAY, CODE = "question 9999", "question 8888", "Write a function that sorts a list."
ALIKE = ["9 says 0"] * 4
ANSWERS = {LIKE: ALIKE, CODE: ALIKE, ESSAY: [" ".join(["word"] * 300)] * 4}


class ByKind(FakeEmbedder):
    """Texts with the same first word are near each other. Texts embedded ahead are recorded."""

    def __init__(self) -> None:
        super().__init__(DIMENSION)

    async def embed(self, texts: Sequence[str]) -> Embedded:
        self.calls.append(tuple(texts))
        if not texts:
            return Embedded(np.empty((0, DIMENSION), dtype=np.float32), self.identity)
        kinds = vectors_of([text.split()[0] for text in texts])
        near = 3 * kinds * [[text.split()[0].isalpha()] for text in texts] + vectors_of(texts)
        unit = near / np.linalg.norm(near, axis=1, keepdims=True)
        return Embedded(unit.astype(np.float32), self.identity)


def rows(number: int = ROWS) -> bytes:
    made = []
    for i, row in enumerate(judged_rows(number)):
        verdict = {"reference": row.references[0], "answer": row.answer, "correct": row.correct}
        made.append({"prompt": f"question {i}", "samples": [draw.text for draw in row.draws]} | verdict)
    return jsonl(made)


@asynccontextmanager
async def calibrated(
    folder: Path, number: int = ROWS, **settings: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, ByKind]]:
    """Yield a client of a service calibrated on short answers to questions of one kind."""
    chosen = Settings(data_dir=folder, num_samples=4, target_error=0.4, **settings)
    embedder = ByKind()
    app = create_app(chosen, llm=FakeLLM(ANSWERS), embedder=embedder, resamples=FEW)
    async with in_process(app) as http:
        sent = {"file": ("dev.jsonl", rows(number))}
        options = {"drawn_by": "service", "activate": "always"}
        last = await ended(http, await http.post("/calibrate", files=sent, data=options))
        assert (last["state"], last["error"]) == ("succeeded", None)
        yield http, embedder


async def scored(http: httpx.AsyncClient, **sent: Any) -> dict[str, Any]:
    response = await http.post("/score", json=sent)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    assert body["calibrated"], body["warnings"]
    return body


def is_warned(score: dict[str, Any]) -> bool:
    return "out_of_distribution" in [warning["code"] for warning in score["warnings"]]


async def test_unlike_question_or_length_is_reported(tmp_path: Path) -> None:
    async with calibrated(tmp_path) as (http, embedder):
        like = await scored(http, prompt=LIKE)
        assert like["ood_p_value"] >= 0.02 and not is_warned(like)
        assert like["decision"]["action"] == "answer"
        assert LIKE in embedder.calls[-1]  # together with the answers
        for prompt in (CODE, ESSAY):
            score = await scored(http, prompt=prompt)
            assert score["ood_p_value"] < 0.02 and is_warned(score), prompt
            assert score["decision"]["action"] == "answer"  # it is only a warning

        # Without a calibration, nothing is compared or embedded for it.
        raw = (await http.post("/score", json={"prompt": CODE, "calibration": "none"})).json()
        assert raw["ood_p_value"] is None and not is_warned(raw)
        assert embedder.calls[-1] == (ALIKE[0],)


async def test_length_is_detected_with_too_few_rows_for_a_p_value(tmp_path: Path) -> None:
    async with calibrated(tmp_path, 150) as (http, _):
        like, long = await scored(http, prompt=LIKE), await scored(http, prompt=ESSAY)
    assert long["ood_p_value"] >= 4 / 151
    assert (is_warned(like), is_warned(long)) == (False, True)
