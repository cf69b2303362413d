"""The same clients, directly and through our service, with a real vLLM server and model; greedy decoding.

No seed is sent: any seed stops vLLM's engine on a CPU.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.conftest import behind, litellm_proxy
from tests.clients.environments import LITELLM_KEY, SCORE_KEY, SCRIPTS, printed
from tests.e2e.conftest import WEIGHTS, VllmServer
from tests.support.services import ready

pytestmark = [pytest.mark.clients, pytest.mark.vllm]
MODEL, ANY_KEY = "smollm2", "sk-none"


@pytest.fixture(scope="module")
def behind_us(vllm: VllmServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of our service in front of the server."""
    env = {
        "EIGENCAL_LLM_URL": f"{vllm.url}/v1",
        "EIGENCAL_EMBEDDER": str(WEIGHTS / "all-MiniLM-L6-v2"),
        "EIGENCAL_SCORE_KEY": SCORE_KEY,
        "EIGENCAL_NUM_SAMPLES": "4",
        "EIGENCAL_MAX_TOKENS": "24",
        "EIGENCAL_CHAT_DEADLINE_S": "120",  # the scores are to be seen, however busy the machine
    }
    with ready(tmp_path_factory.mktemp("ours"), env) as url:
        yield f"{url}/v1"


@pytest.fixture(scope="module")
def proxy(vllm: VllmServer, behind_us: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    models = [behind("direct", f"{vllm.url}/v1", ANY_KEY, MODEL), behind("ours", behind_us, SCORE_KEY, MODEL)]
    with litellm_proxy(tmp_path_factory.mktemp("litellm"), {"model_list": models}) as url:
        yield f"{url}/v1"


# Kinds of calls per client. Tools and JSON take seconds, so only one client sends them.
ASKED = {client: ("text", "tools", "json") if client == "openai_sync" else ("text",) for client in SCRIPTS}


@pytest.mark.parametrize("client", SCRIPTS)
def test_client_gets_the_same_answers_through_the_service(
    client: str, vllm: VllmServer, behind_us: str, request: pytest.FixtureRequest
) -> None:
    kinds = ASKED[client]
    if client == "litellm_proxy":
        url = request.getfixturevalue("proxy")
        direct = printed(client, url, LITELLM_KEY, "direct", *kinds)
        behind_ = printed(client, url, LITELLM_KEY, "ours", *kinds)
    else:
        direct = printed(client, f"{vllm.url}/v1", ANY_KEY, MODEL, *kinds)
        behind_ = printed(client, behind_us, SCORE_KEY, MODEL, *kinds)
    assert bare(direct) == bare(behind_)
    assert len(direct) >= 2 * len(kinds)
    for case, claim in direct.items():
        if case.endswith("-tools"):
            [[name, _]] = claim["calls"]
            assert name == "weather"
        else:
            assert claim["text"], case
    for case, claim in behind_.items():
        seen = statuses(claim)
        assert seen <= {"not_scored" if case.endswith("-tools") else "scored"}, (case, claim)
        if (client, case) == ("litellm_proxy", "helper-text"):
            continue  # LiteLLM's proxy drops it from streams of this server; `stream()` shows no headers
        # Clients that do not read the body have the headers.
        assert seen or claim["ways"].get("headers"), (case, claim)


def bare(result: dict[str, Any]) -> dict[str, Any]:
    """Return a client's result without the uncertainty."""
    return {case: {name: item[name] for name in item if name != "ways"} for case, item in result.items()}


def statuses(result: dict[str, Any]) -> set[str]:
    """Return the statuses of all uncertainties that a client read in bodies."""
    return {way["status"] for way in result["ways"].values() if way and "status" in way}
