"""Real client packages: behind our service they get what the LLM server gives them, and the uncertainty."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.environments import LLM_KEY, SCRIPTS
from tests.clients.upstream import ARGUMENTS, GREEDY, JSON_TEXT
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.clients
Both = Callable[[str], tuple[dict[str, Any], dict[str, Any]]]
KINDS = ("text", "tools", "json")


def bare(told: dict[str, Any]) -> dict[str, Any]:
    """Return what a client tells, without the uncertainty."""
    return {case: {name: one[name] for name in one if name != "ways"} for case, one in told.items()}


def scores(told: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every uncertainty that a client read in bodies."""
    found = [way for case in told.values() for way in case.get("ways", {}).values()]
    return [one for one in found if one and "status" in one]


@pytest.mark.parametrize("client", SCRIPTS)
def test_behind_us_a_client_gets_the_same(client: str, told: Both) -> None:
    direct, behind = told(client)
    if client == "litellm_proxy":
        # Both are names of one proxy, so that what it lists and refuses is its own affair.
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
            assert direct[case]["finish"] in ("tool_calls", "tool-calls")
        if "usage" in direct[case]:
            assert direct[case]["usage"][0] == 21


@pytest.mark.parametrize("client", SCRIPTS)
def test_the_server_itself_tells_no_uncertainty(client: str, told: Both) -> None:
    """Else what the next tests read would not be ours."""
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
