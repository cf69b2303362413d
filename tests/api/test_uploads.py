"""Uploads: their size, which the memory of a fit limits, and their name."""

import json
from typing import Any

import pytest

from service import app


def jsonl(rows: int, name: str = "Q", **more: Any) -> bytes:
    made = [{"prompt": f"{name}{i}?", "reference": "yes", **more} for i in range(rows)]
    return "".join(json.dumps(row) + "\n" for row in made).encode()


@pytest.fixture
def few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = app.UploadLimits
    monkeypatch.setattr(app, "UploadLimits", lambda **limits: made(**limits, max_texts=1000))


async def test_answers_to_sample_count_toward_the_limit(client: Any, few_texts: None) -> None:
    async with client(num_samples=20) as http:
        refused = await http.post("/calibrate", files={"file": jsonl(50)})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_dev_data")
        detail = refused.json()["detail"]
        assert detail.startswith("50 rows make up to 1050 answers and references, more than the 1000 ")
        assert "num_samples" in detail
        assert (await http.get("/jobs")).json() == []
        fewer = {"num_samples": "10"}  # the number in the message
        assert (await http.post("/calibrate", files={"file": jsonl(50)}, data=fewer)).status_code == 202


@pytest.mark.parametrize(
    ("filename", "given", "name"),
    [
        ("C:\\data\\support chats.CSV", "", "support chats"),
        ("week.12.jsonl", "", "week.12"),
        ("week.12.jsonl", "mine", "mine"),
        ("upload", "", ""),
        ("x" * 300, "", "x" * 200),
    ],
)
async def test_a_job_has_the_name_of_its_file_unless_one_is_given(
    client: Any, filename: str, given: str, name: str
) -> None:
    async with client() as http:
        sent = {"files": {"file": (filename, jsonl(50))}, "data": {"name": given}}
        assert (await http.post("/calibrate", **sent)).json()["name"] == name
