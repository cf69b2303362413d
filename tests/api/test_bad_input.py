"""Bad input is refused with a 4xx status and an explanation."""

import json

import pytest

from service.http.problems import MAX_LISTED
from service.llm.sse import MAX_VALUES
from tests.api.conftest import Client

BAD = {
    "nothing": ({}, "send `prompt`"),
    "both": ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "not both"),
    "blank prompt": ({"prompt": " \n"}, "prompt"),
    "null": ({"prompt": None}, "must not be null"),
    "no sample": ({"samples": []}, "at least 1"),
    "none to draw": ({"prompt": "a", "num_samples": 0}, "num_samples` 0 draws no answers"),
    "fewer than none to draw": ({"prompt": "a", "num_samples": -1}, "num_samples: Input should be greater"),
    "a billion to draw": ({"prompt": "a", "num_samples": 10**9}, "num_samples: Input should be less than"),
    "a float to draw": ({"prompt": "a", "num_samples": 2.5}, "valid integer"),
    "another word to draw": ({"prompt": "a", "num_samples": "many"}, "num_samples: "),
    "unknown field": ({"promt": "a"}, "promt: is not a field"),
    "unknown field beside a missing one": ({"samples": 7, "x-y": "a"}, "x-y: is not a field"),
    "unknown field below": (
        {"prompt": "a", "sampling": {"temprature": 1}},
        "sampling.temprature: is not a field",
    ),
    "unknown field in a list": (
        {"messages": [{"rol": "user", "content": "a"}]},
        "messages.0.rol: is not a field",
    ),
    "drawing with samples": ({"samples": ["a", "b"], "num_samples": 2}, "`num_samples` applies to drawing"),
    "log-probabilities alone": ({"prompt": "a", "logprobs": [-1.0, -2.0]}, "`logprobs` needs `samples`"),
    "a log-probability too few": (
        {"samples": ["a", "b", "c"], "logprobs": [-1.0, -2.0]},
        "one number for each of the 3 samples, not 2",
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


async def test_bad_item_of_a_batch_is_explained(client: Client) -> None:
    async with client() as http:
        lines = (await http.post("/score/batch", json={"items": [{"promt": "a"}]})).text.splitlines()
    error = json.loads(lines[0])["error"]
    assert error["errors"][0] == {"loc": ["body", "promt"], "msg": "is not a field"}


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b'{"prompt":"a","sampling":{"temperature":NaN}}', "temperature"),
        (b'{"samples":["a","b"],"logprobs":[-1,NaN]}', "logprobs.1"),
        (b'{"samples":["a","b"],"logprobs":[-1,-1e999]}', "logprobs.1"),
        (b'{"prompt":"\xff\xfe"}', "not valid JSON"),
        (b'{"prompt":"\\ud800"}', "unicode"),
        (b'{"prompt":"a"', "not valid JSON"),
        (b"", "Field required"),
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
    content = b'{"items": [' + b"[]," * (MAX_VALUES + 1) + b"[]]}"
    async with client() as http:
        response = await http.post(path, content=content, headers={"content-type": "application/json"})
    assert (response.status_code, response.json()["code"]) == (422, "invalid_request")
    assert "00000 values" in response.json()["detail"]


async def test_only_some_of_many_errors_in_a_body_are_listed(client: Client) -> None:
    faults = {f"k{i}": 1 for i in range(100)}
    async with client() as http:
        problem = (await http.post("/score", json=faults)).json()
    assert (problem["status"], problem["code"]) == (422, "invalid_request")
    assert "(and 99 more)" in problem["detail"] and len(problem["errors"]) == MAX_LISTED


async def test_an_object_of_far_too_many_fields_is_one_error(client: Client) -> None:
    """Describing 400,000 unknown fields took seconds, and blocked other requests."""
    faults = {f"k{i}": 1 for i in range(90_000)}
    async with client() as http:
        for body in (faults, {"messages": [{"role": "user", "content": "x", **faults}]}):
            problem = (await http.post("/score", json=body)).json()
            assert (problem["status"], len(problem["errors"])) == (422, 1)
            assert "has more than" in problem["detail"]
