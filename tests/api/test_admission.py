"""Admission control: requests over the limits are refused early, and samples for chats are dropped first."""

import asyncio
import json

from tests.support.drop_in import QUESTION, DropIn, before
from tests.support.openai_server import answers, hang, once

IN_FLIGHT = 17  # with one slot: 16 wait


async def head_only(made: DropIn, path: str) -> tuple[int, dict[str, str], dict[str, object]]:
    """Send only the head of a request; return the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", made.http.base_url.port)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 9"
    writer.write(f"{head}\r\n\r\n".encode())
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    content = json.loads(await reader.readexactly(int(headers["content-length"])))
    writer.close()
    return int(first.split(" ")[1]), headers, content


async def gauge(made: DropIn, name: str, kind: str) -> float:
    lines = (await made.http.get("/metrics")).text.splitlines()
    return sum(float(line.split(" ")[1]) for line in lines if line.startswith(f'{name}{{kind="{kind}"}}'))


async def settled(made: DropIn, kind: str, number: int) -> None:
    async with asyncio.timeout(60):
        while await gauge(made, "eigencal_requests_in_flight", kind) != number:
            await asyncio.sleep(0.01)


async def test_request_over_the_limit_is_refused_before_its_body_is_read() -> None:
    async with before(hang, hang, llm_slots=1) as made:
        held = [asyncio.create_task(made.ask("off")) for _ in range(IN_FLIGHT)]
        await settled(made, "chat", IN_FLIGHT)
        for path in ("/score", "/verify", "/v1/chat/completions", "/v1/responses"):
            code, headers, content = await head_only(made, path)
            assert (code, int(headers["retry-after"]) >= 1) == (503, True), path
            error = content["error"] if path.startswith("/v1/") else content
            assert isinstance(error, dict) and error["code"] == "overloaded"
        assert await gauge(made, "eigencal_requests_refused_total", "chat") == 2
        assert await gauge(made, "eigencal_requests_refused_total", "score") == 1
        assert (await made.http.get("/healthz")).status_code == 200
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await settled(made, "chat", 0)


async def test_batches_have_their_own_limit_and_items_alternate() -> None:
    async with before(hang, hang, llm_slots=1) as made:
        batch = {"items": [{"prompt": f"{i}"} for i in range(20)]}
        held = [asyncio.create_task(made.http.post("/score/batch", json=batch)) for _ in range(16)]
        await settled(made, "batch", 16)
        code, _, content = await head_only(made, "/score/batch")
        assert (code, content["code"]) == (503, "overloaded")
        response = await made.http.post("/score", json={"samples": ["a", "b"]})
        assert response.status_code == 200  # the items of batches leave slots for others
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
        await settled(made, "batch", 0)


async def test_samples_for_a_chat_are_dropped_when_an_answer_waits() -> None:
    gate = asyncio.Event()
    async with before(once(gate, answers("Paris")), llm_slots=1) as made:
        first = asyncio.create_task(made.ask("on"))
        await settled(made, "chat", 1)
        while not made.server.requests:
            await asyncio.sleep(0.01)
        second = asyncio.create_task(made.ask("on"))
        await settled(made, "chat", 2)
        gate.set()
        shed, scored = [(await item).json() for item in (first, second)]
        text = (await made.http.get("/metrics")).text
    for answered in (shed, scored):
        assert answered["choices"][0]["message"]["content"] == "Paris"
    assert (shed["uncertainty"]["status"], shed["uncertainty"]["warning"]["code"]) == ("failed", "overloaded")
    assert scored["uncertainty"]["status"] == "scored"
    assert "eigencal_chat_scores_shed_total 1.0" in text


async def test_samples_wait_like_answers_if_the_service_abstains() -> None:
    settings = {"llm_slots": 1, "abstain": True, "target_error": 0.2}
    async with before(answers("Paris"), **settings) as made:
        results = await asyncio.gather(*(made.ask("on") for _ in range(4)))
    assert {result.json()["uncertainty"]["status"] for result in results} == {"scored"}
    assert QUESTION["model"] == results[0].json()["model"]


async def test_a_busy_key_leaves_room_for_another() -> None:
    keys = {"score_key": "busy", "admin_key": "other"}
    async with before(hang, hang, llm_slots=1, **keys) as made:
        made.http.headers["X-API-Key"] = "other"
        busy = {"X-API-Key": "busy"}
        chat = {"messages": [{"role": "user", "content": QUESTION}]}
        batch = {"items": [{"prompt": "p"}]}
        calls = [
            *(made.http.post("/v1/chat/completions", json=chat, headers=busy) for _ in range(30)),
            *(made.http.post("/score/batch", json=batch, headers=busy) for _ in range(20)),
        ]
        held = [asyncio.create_task(call) for call in calls]
        await settled(made, "chat", 13)
        await settled(made, "batch", 12)
        held += [asyncio.create_task(made.http.post("/score", json={"prompt": f"{i}"})) for i in range(2)]
        held += [asyncio.create_task(made.http.post("/score/batch", json=batch)) for _ in range(2)]
        await settled(made, "score", 2)
        await settled(made, "batch", 14)
        assert await gauge(made, "eigencal_requests_refused_total", "score") == 0
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)
