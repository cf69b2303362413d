"""Every operation of the contract is reached by a method; tests/e2e has the same on a real service."""

import json
import re
from pathlib import Path
from typing import Any

import httpx

from tests.client.script import JOB
from tests.support.both_clients import Driver
from tests.support.scripted_scores import SCORE, line

CONTRACT = json.loads((Path(__file__).parents[2] / "clients" / "openapi.json").read_text())
OPERATIONS = {(method.upper(), path) for path, item in CONTRACT["paths"].items() for method in item}
CALIBRATION = {
    "id": "ID", "name": "n", "job_id": None, "method": "depolarized", "temperature": 1.0, "eps": 1e-6,
    "depolarization": 0.1, "num_samples": 5, "rows": 40, "active": True, "applies_now": True,
    "data_kept": True, "activated_at": None, "created_at": "2026-01-01T00:00:00Z", "evidence": None,
    "fingerprint": {}, "fingerprint_key": "k", "links": {}, "parameters": [], "projection_ece": None,
    "promise": None, "correctness_sample_counts": [],
}  # fmt: skip
ACTIVATION = {
    "activated_at": "2026-01-01T00:00:00Z", "by": "no key", "calibration_id": "ID", "fingerprint_key": "k",
    "reason": "", "replaced": None,
}  # fmt: skip
KEY = {
    "id": "ID", "name": "n", "scope": "score", "prefix": "ek_1", "created_at": "2026-01-01T00:00:00Z",
    "expires_at": None, "revoked_at": None, "state": "valid",
}  # fmt: skip
# What others call: people, LiteLLM's proxy, routers, OpenAI's clients. A job is looked at again and again.
NOT_CALLED = {
    ("GET", "/"),
    ("POST", "/beta/litellm_basic_guardrail_api"),
    ("GET", "/health"),
    ("GET", "/jobs/{id}/events"),
    ("POST", "/v1/completions"),
}
DONE = JOB | {"id": "ID", "state": "succeeded"}
VERIFIED = {
    "confidence": 0.5, "samples": ["a"], "should_escalate": False, "threshold": 0.5, "total_samples": 1,
    "verified_count": 1,
}  # fmt: skip
CHAT = {"choices": [{"message": {"content": "Paris"}}], "uncertainty": {"id": "ID", "status": "pending"}}
HEALTH = {"status": "ok", "version": "1"}
ANSWERS: dict[tuple[str, str], Any] = {
    ("POST", "/calibrate"): JOB,
    ("GET", "/calibrations"): [CALIBRATION],
    ("GET", "/calibrations/activations"): [ACTIVATION],
    ("GET", "/calibrations/active"): [CALIBRATION],
    ("GET", "/calibrations/ID"): CALIBRATION,
    ("POST", "/calibrations/ID/activate"): CALIBRATION,
    ("DELETE", "/calibrations/ID/data"): b"",
    ("GET", "/calibrations/ID/data"): b'{"prompt": "a"}\n',
    ("GET", "/calibrations/ID/report"): {"risk": 0.5},
    ("PATCH", "/calibrations/ID/rows"): JOB,
    ("POST", "/evaluate"): JOB,
    ("GET", "/evaluations/job_ID/report"): {"verdict": []},
    ("GET", "/healthz"): HEALTH,
    ("GET", "/jobs"): [JOB],
    ("DELETE", "/jobs/ID"): JOB,
    ("GET", "/jobs/ID"): DONE,
    ("POST", "/jobs/ID/retry"): JOB,
    ("GET", "/keys"): [KEY],
    ("POST", "/keys"): KEY | {"key": "ek_1secret", "warnings": []},
    ("DELETE", "/keys/ID"): b"",
    ("GET", "/metrics"): b"eigencal_up 1\n",
    ("GET", "/readyz"): {"parts": {"llm": "ok"}, "status": "ready"},
    ("POST", "/score"): SCORE,
    ("POST", "/score/batch"): line(0),
    ("GET", "/scores/ID"): SCORE | {"status": "scored"},
    ("POST", "/v1/chat/completions"): CHAT,
    ("GET", "/v1/models"): {"data": [{"id": "m"}]},
    ("POST", "/verify"): VERIFIED,
}


def test_every_operation_is_reached_by_a_method(drive: Driver) -> None:
    reached = list[tuple[str, str]]()

    def answer(request: httpx.Request) -> httpx.Response:
        reached.append((request.method, request.url.path))
        body = ANSWERS[reached[-1]]
        return httpx.Response(200, **({"content": body} if isinstance(body, bytes) else {"json": body}))

    with drive("http://host", answer=answer) as client:
        assert client.health().status == "ok"
        assert client.ready().parts == {"llm": "ok"}
        assert "eigencal" in client.metrics()
        assert client.score("What?").answer == client.get_score("ID").answer == "Eight"
        assert [item.ok for item in client.score_batch(["a"])] == [True]
        assert client.calibrate([{"prompt": "a"}]).id == client.evaluate([], []).id == "job_1"
        assert [one.finished for one in client.events("ID")] == [True]
        assert client.wait("ID").succeeded
        assert client.job("ID").id == "ID" and client.jobs(limit=1)[0].id == client.cancel("ID").id
        assert client.retry("ID").id == "job_1"
        assert client.calibration("ID") == client.activate("ID") == client.calibrations()[0]
        assert client.active_calibrations()[0].active and client.activations()[0].by == "no key"
        assert client.correct_rows("ID", [{"line": 1, "correct": False}]).state == "queued"
        assert client.report("ID")["risk"] == 0.5
        assert json.loads(client.report_page("ID")) == {"risk": 0.5}
        assert client.report("job_ID") == {"verdict": []}
        assert [row["prompt"] for row in client.data("ID")] == ["a"]
        assert client.delete_data("ID") is None and client.revoke_key("ID") is None
        assert client.chat([], model="m").uncertainty.status == "pending"
        assert client.models()[0].id == "m"
        assert not client.verify("Which?", "Paris", threshold=0.5).should_escalate
        assert client.create_key("n").key == "ek_1secret" and client.keys()[0].name == "n"
    generic = {(method, re.sub("(job_)?ID", "{id}", path)) for method, path in reached}
    contract = {(method, re.sub(r"\{\w+\}", "{id}", path)) for method, path in OPERATIONS}
    assert contract - generic == NOT_CALLED
