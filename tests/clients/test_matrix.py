"""Real client packages: behind our service they get what the LLM server gives them, and the uncertainty.

By which ways they get it, the table of docs/recipes says, for the versions that are installed.
"""

from collections.abc import Callable
from typing import Any

import httpx2 as httpx
import pytest

from tests.clients.environments import LLM_KEY, SCORE_KEY, SCRIPTS, versions
from tests.clients.recipes import PAGES
from tests.clients.upstream import ARGUMENTS, GREEDY, JSON_TEXT
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.clients
Both = Callable[[str], tuple[dict[str, Any], dict[str, Any]]]
# For each row of the table: its scripts, their name for it, and the packages that were tried.
PYTHON, NODE = "OpenAI, Python (sync and async)", "OpenAI, Node"
PROXY = "OpenAI, Python, through LiteLLM's proxy"
AI, AI_OPENAI = ("npm:ai", "npm:@ai-sdk/openai-compatible"), ("npm:ai", "npm:@ai-sdk/openai")
LANGCHAIN = "LangChain `ChatOpenAI`, `use_responses_api`"
LLAMA_INDEX = ("llama-index-llms-openai-like",)
ROWS: dict[tuple[str, str], tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    **{
        (label, call): (clients, case, packages)
        for label, clients, packages in (
            (PYTHON, ("openai_sync", "openai_async"), ("openai",)),
            (NODE, ("openai_node",), ("npm:openai",)),
            (PROXY, ("litellm_proxy",), ("litellm",)),
        )
        for call, case in (
            ("`create`", "create"),
            ("`create`, streamed", "streamed"),
            ("`stream()`", "helper"),
        )
    },
    **{
        (label, call): ((client,), case, (package,))
        for label, client, package in (
            ("OpenAI, Python", "openai_responses", "openai"),
            (NODE, "openai_node_responses", "npm:openai"),
        )
        for call, case in (
            ("`responses.create`", "create"),
            ("`responses.create`, streamed", "streamed"),
            ("`responses.stream`", "helper"),
            ("`responses.parse`", "parsed"),
        )
    },
    ("OpenAI's Agents SDK", "`Runner.run`"): (("agents_sdk",), "run", ("openai-agents",)),
    ("OpenAI's Agents SDK", "`Runner.run_streamed`"): (("agents_sdk",), "streamed", ("openai-agents",)),
    ("AI SDK, openai", "`generateText`"): (("ai_sdk_openai",), "generate", AI_OPENAI),
    ("AI SDK, openai", "`streamText`"): (("ai_sdk_openai",), "streamed", AI_OPENAI),
    ("AI SDK, openai-compatible", "`generateText`"): (("ai_sdk",), "generate", AI),
    ("AI SDK, openai-compatible", "`streamText`"): (("ai_sdk",), "streamed", AI),
    ("LangChain `ChatOpenAI`", "`invoke`"): (("langchain",), "invoke", ("langchain-openai",)),
    ("LangChain `ChatOpenAI`", "`stream`"): (("langchain",), "streamed", ("langchain-openai",)),
    (LANGCHAIN, "`invoke`"): (("langchain_responses",), "invoke", ("langchain-openai",)),
    (LANGCHAIN, "`stream`"): (("langchain_responses",), "streamed", ("langchain-openai",)),
    ("LlamaIndex `OpenAILike`", "`chat`"): (("llama_index",), "chat", LLAMA_INDEX),
    ("LlamaIndex `OpenAILike`", "`stream_chat`"): (("llama_index",), "streamed", LLAMA_INDEX),
    ("LiteLLM, Python", "`completion`"): (("litellm_sdk",), "create", ("litellm",)),
    ("LiteLLM, Python", "`completion`, streamed"): (("litellm_sdk",), "streamed", ("litellm",)),
}
# The end of a tool call, in the words of chats, of the AI SDK and of responses. The Agents SDK has none.
CALLED = ("tool_calls", "tool-calls", "completed")
ORDER = ("answer", "last chunk", "delta", "message", "metadata", "id")


def bare(told: dict[str, Any]) -> dict[str, Any]:
    """Return a client's output, without the uncertainty."""
    return {case: {name: one[name] for name in one if name != "ways"} for case, one in told.items()}


def scores(told: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every uncertainty that a client read in bodies."""
    found = [way for case in told.values() for way in case.get("ways", {}).values()]
    return [one for one in found if one and "status" in one]


@pytest.mark.parametrize("client", SCRIPTS)
def test_behind_us_a_client_gets_the_same(client: str, told: Both) -> None:
    direct, behind = told(client)
    if client == "litellm_proxy":
        # Both are names of one proxy, which decides about its lists and refusals.
        assert direct.pop("listed") == behind.pop("listed")
    assert bare(behind) == bare(direct)
    said = {case: direct[case]["text"] for case in direct if case.endswith(("-text", "-json"))}
    assert said == {case: GREEDY if case.endswith("-text") else JSON_TEXT for case in said}
    assert len(said) >= 4
    for case in direct:
        if case.endswith("-tools"):
            [[name, arguments]] = direct[case]["calls"]
            assert name == "weather" and arguments in (ARGUMENTS, {"city": "Zürich", "days": 3})
            assert not direct[case]["text"]
            assert direct[case].get("finish") in (*CALLED, None)
        if "usage" in direct[case]:
            assert direct[case]["usage"][0] == 21


@pytest.mark.parametrize("client", SCRIPTS)
def test_the_server_itself_tells_no_uncertainty(client: str, told: Both) -> None:
    """Otherwise the next tests would not test our service."""
    ways = [way for case in told(client)[0].values() for way in case.get("ways", {}).values()]
    assert ways and not any(ways)


@pytest.mark.parametrize("client", SCRIPTS)
def test_what_has_a_text_is_scored_and_what_has_none_says_why(client: str, told: Both) -> None:
    behind = told(client)[1]
    for case, one in behind.items():
        kind = case.rpartition("-")[2]
        for uncertainty in scores({case: one}):
            assert uncertainty["id"].startswith("scr_")
            if kind == "tools":
                assert uncertainty["status"] == "not_scored", case
                assert uncertainty["warning"]["message"]
            else:
                assert uncertainty["status"] == "scored", (case, uncertainty)
                assert 0 < uncertainty["lambda_max"] <= 1


def test_the_callers_key_stays_with_us(told: Both, server: OpenAIServer) -> None:
    told("openai_sync")
    assert {one.headers["authorization"] for one in server.requests if "chat" in one.path} == {
        f"Bearer {LLM_KEY}"
    }


def table() -> dict[tuple[str, str], tuple[str, str]]:
    """Return version and ways of each client and call, as the page has them."""
    lines = (PAGES / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {
        (client, call): (version, seen)
        for client, version, calls in rows[2:]
        for call, seen in (entry.split(": ") for entry in calls.split("; "))
    }


def ways(told: dict[str, Any], case: str) -> str:
    """Return by which ways a client read the uncertainty of a text, in the page's words."""
    found = told[f"{case}-text"]["ways"]
    names = {"body": "last chunk" if case == "streamed" else "answer", "chunk": "last chunk"}
    seen = {names.get(way, way) for way, value in found.items() if way != "headers" and value}
    if found.get("headers"):
        seen.add("id")
    return ", ".join(way for way in ORDER if way in seen)


@pytest.mark.parametrize("row", ROWS, ids=", ".join)
def test_the_table_says_what_is_seen(row: tuple[str, str], told: Both) -> None:
    clients, case, packages = ROWS[row]
    tried = ", ".join(f"{name.removeprefix('npm:')} {versions()[name]}" for name in packages)
    for client in clients:
        assert table()[row] == (tried, ways(told(client)[1], case)), client


def test_the_table_has_no_other_row() -> None:
    assert table().keys() == ROWS.keys()


@pytest.mark.parametrize("client", SCRIPTS)
def test_every_id_leads_to_its_score(client: str, told: Both, ours: str) -> None:
    """However little of the uncertainty a client lets through."""
    found = 0
    for case, one in told(client)[1].items():
        for way, uncertainty in one.get("ways", {}).items():
            score_id = uncertainty and uncertainty.get("x-score-id" if way == "headers" else "id")
            if not score_id:
                continue
            headers = {"Authorization": f"Bearer {SCORE_KEY}"}
            kept = httpx.get(f"{ours}/scores/{score_id}", headers=headers, timeout=60)
            assert kept.status_code == 200, kept.text
            if case.endswith("-tools"):
                assert kept.json()["status"] == "not_scored"
            else:
                assert kept.json()["status"] == "scored"
                if way != "headers":
                    assert kept.json()["lambda_max"] == uncertainty["lambda_max"]
            found += 1
    assert found >= 4
