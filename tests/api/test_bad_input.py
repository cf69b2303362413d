"""Bad input is refused with a 4xx status and an explanation."""

import json
from typing import Any

import pytest

from service.heavy_json import MAX_BATCH_VALUES
from tests.api.conftest import Client

BAD = {
    "nothing": ({}, "send `prompt`"),
    "both": ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "not both"),
    "blank prompt": ({"prompt": " \n"}, "prompt"),
    "null": ({"prompt": None}, "must not be null"),
    "no sample": ({"samples": []}, "at least 1"),
    "none to draw": ({"prompt": "a", "num_samples": 0}, "greater than or equal to 1"),
    "a billion to draw": ({"prompt": "a", "num_samples": 10**9}, "less than or equal to 256"),
    "a float to draw": ({"prompt": "a", "num_samples": 2.5}, "valid integer"),
    "unknown field": ({"promt": "a"}, "promt: is not a field; did you mean `prompt`?"),
    "unknown field in camel case": ({"prompt": "a", "numSamples": 5}, "did you mean `num_samples`?"),
    "unknown field of a reserved name": ({"prompt": "a", "returns": []}, "did you mean `return`?"),
    "unknown field like none": (
        {"prompt": "a", "zzz": 5},
        "zzz: is not a field; known are prompt, messages,",
    ),
    "unknown field below": (
        {"prompt": "a", "sampling": {"temprature": 1}},
        "sampling.temprature: is not a field; did you mean `temperature`?",
    ),
    "unknown field in a list": (
        {"messages": [{"rol": "user", "content": "a"}]},
        "messages.0.rol: is not a field; did you mean `role`?",
    ),
    "a field of the level below": ({"prompt": "a", "max_tokens": 5}, "did you mean `sampling.max_tokens`?"),
    "drawing with samples": ({"samples": ["a", "b"], "num_samples": 2}, "`num_samples` applies to drawing"),
    "log-probabilities alone": ({"prompt": "a", "logprobs": [-1.0, -2.0]}, "`logprobs` needs `samples`"),
    "a log-probability too few": (
        {"samples": ["a", "b", "c"], "logprobs": [-1.0, -2.0]},
        "one number for each of the 3 samples, not 2",
    ),
    "the name of a row": (
        {"samples": ["a", "b"], "logprob": [-1.0, -2.0]},
        "logprob: is not a field; did you mean `logprobs`?",
    ),
    "a probability": ({"samples": ["a", "b"], "logprobs": [-1.0, 0.5]}, "less than or equal to 0.01"),
    "no log-probability": ({"samples": ["a", "b"], "logprobs": [-1.0, None]}, "logprobs.1"),
    "bad role": ({"messages": [{"role": "root", "content": "a"}]}, "messages.0.role"),
    "no calibration id": ({"prompt": "a", "calibration": "latest"}, "calibration"),
    "a list": ([], "object"),
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_field_is_explained(client: Client, name: str) -> None:
    sent, message = BAD[name]
    async with client() as http:
        response = await http.post("/score", json=sent)
    assert response.status_code == 422, response.text
    assert message in response.json()["detail"]
    assert response.json()["errors"][0]["msg"]


@pytest.mark.parametrize(
    ("method", "path", "sent", "said"),
    [
        ("POST", "/score/batch", {"item": []}, "did you mean `items`?"),
        ("POST", "/keys", {"name": "a", "scop": "score"}, "did you mean `scope`?"),
        ("POST", "/calibrate", {"examples": [], "activat": "never"}, "did you mean `activate`?"),
        ("PATCH", "/calibrations/cal_01ARZ3NDEKTSV4RRFFQ69G5FAV/rows", {"row": []}, "did you mean `rows`?"),
        (
            "PATCH",
            "/calibrations/cal_01ARZ3NDEKTSV4RRFFQ69G5FAV/rows",
            {"rows": [{"lin": 1, "correct": True}]},
            "rows.0.lin: is not a field; did you mean `line`?",
        ),
        ("POST", "/v1/chat/completions", {"eigencal": {"efort": "low"}}, "did you mean `effort`?"),
    ],
)
async def test_unknown_field_suggests_the_probable_name(
    client: Client, method: str, path: str, sent: dict[str, Any], said: str
) -> None:
    async with client() as http:
        response = await http.request(method, path, json=sent)
    assert response.status_code == 422
    problem = response.json()
    assert said in (problem["error"]["message"] if "error" in problem else problem["detail"])


async def test_unknown_field_of_a_batch_item_suggests_the_probable_name(client: Client) -> None:
    async with client() as http:
        lines = (await http.post("/score/batch", json={"items": [{"promt": "a"}]})).text.splitlines()
    error = json.loads(lines[0])["error"]
    assert error["errors"][0]["msg"] == "is not a field; did you mean `prompt`?"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"prompt":"a","sampling":{"temperature":NaN}}', "temperature"),
        (b'{"samples":["a","b"],"logprobs":[-1,NaN]}', "logprobs.1"),
        (b'{"samples":["a","b"],"logprobs":[-1,-1e999]}', "logprobs.1"),
        (b'{"prompt":"\xff\xfe"}', "unicode"),
        (b'{"prompt":"\\ud800"}', "not valid JSON"),
        (b'{"prompt":"a"', "not valid JSON"),
        (b"", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
async def test_broken_bodies(client: Client, raw: bytes, said: str) -> None:
    async with client() as http:
        response = await http.post("/score", content=raw, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert said in response.json()["detail"]


async def test_ten_megabytes_are_too_much(client: Client) -> None:
    async def chunks():
        for _ in range(10):
            yield b"x" * 2**20

    async with client() as http:
        declared = await http.post("/score", json={"prompt": "x" * 10_000_000})
        streamed = await http.post("/score", content=chunks(), headers={"content-type": "application/json"})
    for response in (declared, streamed):
        assert (response.status_code, response.json()["code"]) == (413, "body_too_large")


async def test_other_media_types_are_refused(client: Client) -> None:
    async with client() as http:
        response = await http.post("/score", content=b"prompt=a", headers={"content-type": "text/plain"})
    assert (response.status_code, response.json()["code"]) == (415, "unsupported_media_type")


async def test_a_bad_request_id_is_replaced(client: Client) -> None:
    async with client() as http:
        bad = await http.get("/healthz", headers={"X-Request-ID": "a b"})
        good = await http.get("/healthz", headers={"X-Request-ID": "trace-1:2"})
    assert bad.headers["x-request-id"].startswith("req_")
    assert good.headers["x-request-id"] == "trace-1:2"


async def test_the_prompt_is_never_in_an_error(client: Client) -> None:
    async with client() as http:
        response = await http.post("/score", json={"prompt": "hush", "messages": "hush"})
    assert "hush" not in json.dumps(response.json())


@pytest.mark.parametrize("path", ["/score", "/score/batch", "/verify"])
async def test_body_with_too_many_values_is_refused_unparsed(client: Client, path: str) -> None:
    content = b'{"items": [' + b"[]," * MAX_BATCH_VALUES + b"[]]}"
    async with client() as http:
        response = await http.post(path, content=content, headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["code"]) == (422, "invalid_request")
    assert "00000 values" in response.json()["detail"]


async def test_only_some_of_many_errors_in_a_body_are_listed(client: Client) -> None:
    """Regression: formatting 100,000 errors took seconds, and blocked other requests."""
    faults = {f"k{i}": 1 for i in range(90_000)}
    # The first also has nothing to score, but this is checked only after all fields are valid.
    bodies = [(faults, 90_000), ({"messages": [{"role": "user", "content": "x", **faults}]}, 90_000)]
    async with client() as http:
        for body, number in bodies:
            problem = (await http.post("/score", json=body)).json()
            assert (problem["status"], problem["code"]) == (422, "invalid_request")
            assert f"{number} faults" in problem["detail"]
            assert len(problem["errors"]) == 1
