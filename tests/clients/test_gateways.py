"""The calls of vLLM's semantic router, on a calibrated service."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.clients.environments import SCORE_KEY, outcome
from tests.clients.recipes import BLOCKS, script
from tests.support.services import Service

pytestmark = pytest.mark.clients
KNOWN, UNKNOWN = "question 1000", "question 1001"


ROUTERS_FIELDS = {"confidence", "should_escalate", "verified_count", "total_samples", "samples", "threshold"}


class Router:
    """vLLM's semantic router, as its verifier client goes: a POST, 200 or failed, its fields, 60 s."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=60)

    def verify(self, question: str, answer: str, threshold: float, context: str = "") -> dict[str, Any]:
        body = {"question": question, "answer": answer, "threshold": threshold}
        response = self.http.post("/verify", json=body | ({"context": context} if context else {}))
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        self.check(found)
        return found

    def check(self, found: dict[str, Any]) -> None:
        assert found.keys() >= ROUTERS_FIELDS
        for name in ("confidence", "threshold"):
            assert isinstance(found[name], float) and math.isfinite(found[name]) and 0 <= found[name] <= 1
        assert found["should_escalate"] is (found["confidence"] < found["threshold"])
        assert 0 <= found["verified_count"] <= found["total_samples"] == len(found["samples"])
        assert all(isinstance(text, str) for text in found["samples"])


@pytest.fixture
def router(deciding: Service) -> Iterator[Router]:
    made = Router(str(deciding.http.base_url).rstrip("/"))
    yield made
    made.http.close()


def test_the_router_keeps_what_is_sure_and_escalates_what_is_not(router: Router) -> None:
    sure = router.verify(KNOWN, "Paris", 0.7)
    unsure = router.verify(UNKNOWN, "Paris", 0.7)
    assert (sure["should_escalate"], unsure["should_escalate"]) == (False, True)
    assert sure["confidence"] > 0.8 > 0.2 > unsure["confidence"]
    assert (sure["verified_count"], sure["total_samples"]) == (5, 5)


def test_without_a_calibration_the_router_gets_a_failure(ours: str) -> None:
    """Raw values are not probabilities: the router then follows its configuration for a dead verifier."""
    body = {"question": KNOWN, "answer": "Paris", "threshold": 0.5}
    headers = {"Authorization": f"Bearer {SCORE_KEY}"}
    refused = httpx.post(f"{ours}/verify", json=body, headers=headers, timeout=60)
    assert (refused.status_code, refused.json()["code"]) == (503, "no_probability")


def test_the_routers_page(deciding: Service, tmp_path: Path) -> None:
    url = str(deciding.http.base_url).rstrip("/")
    done = outcome(script("verify.py", url, tmp_path))
    assert done.returncode == 0, done.stderr
    Router(url).check(json.loads(done.stdout))
    assert "verifier_server_url: http://127.0.0.1:8000" in BLOCKS["confidence.yaml"]
