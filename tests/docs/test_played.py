"""Commands and programs of the documentation, run with the service of `make run`.

All tests are in one file, so that parallel test processes start that service only once.
"""

import json
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.clients.environments import BIN
from tests.docs import shown
from tests.docs.blocks import SHELL, Block, blocks, pages, runs_here
from tests.docs.conftest import Demo
from tests.docs.playing import needs_others_packages, play, prepared

BLOCKS = {page: blocks(page) for page in pages()}
HERE = {
    page: [b for b in result if runs_here(b) and not needs_others_packages(b)]
    for page, result in BLOCKS.items()
}
OTHERS = {
    page: [b for b in result if runs_here(b) and needs_others_packages(b)] for page, result in BLOCKS.items()
}


@pytest.mark.weights
@pytest.mark.parametrize("page", [page for page, result in HERE.items() if result])
def test_commands_and_programs_of_a_page_work(page: str, demo: Demo, tmp_path: Path) -> None:
    here = HERE[page]
    # The client is a separate package, which may be missing.
    done = play(here, demo.url, prepared(tmp_path, demo.url))
    assert done.returncode == 0, f"{here[done.last].where}\n{done.printed[done.last]}\n{done.errors}"
    assert len(done.printed) == len(here)
    for number, block in enumerate(here):
        for output in outputs(block):
            parsed, printed = shown.parsed(output.code), real(done.printed[number])
            missing = shown.missing(parsed, printed)
            assert not missing, (
                f"{output.where} shows what {block.where} did not print: {missing}\n{done.printed[number]}"
            )
            if "action" in parsed.get("decision", {}):
                assert printed["decision"]["action"] == parsed["decision"]["action"], printed["decision"]
    if page == "README.md":  # the first page: only `make run` has calibrated
        [calibrated] = [done.printed[n] for n, block in enumerate(here) if "calibrate " in block.code]
        assert "ctivated: " in calibrated


def outputs(block: Block) -> list[Block]:
    """Return the JSON block right below a command, with its output."""
    answers_ = BLOCKS[block.page]
    below = answers_[answers_.index(block) + 1 :][:1]
    return [item for item in below if item.follows and item.language == "json" and block.language in SHELL]


def real(printed: str) -> Any:
    """Return the JSON printed by a command, from its last line if there are several."""
    try:
        return json.loads(printed)
    except ValueError:
        return json.loads(printed.splitlines()[-1])


@pytest.mark.clients
@pytest.mark.parametrize("page", [page for page, result in OTHERS.items() if result])
def test_programs_with_third_party_packages_run(page: str, demo: Demo, tmp_path: Path) -> None:
    if not BIN.exists():
        pytest.fail("the clients' environment is missing: make test-clients")
    done = play(OTHERS[page], demo.url, prepared(tmp_path, demo.url), BIN / "python")
    assert done.returncode == 0, f"{OTHERS[page][done.last].where}\n{done.printed[done.last]}\n{done.errors}"


@pytest.mark.weights
def test_a_chat_with_the_demonstration_is_scored(demo: Demo) -> None:
    """README's drop-in prints a number. On a busy machine the score arrives after the answer."""
    requests = [{"role": "user", "content": "What is the capital of Germany?"}]
    with httpx.Client(base_url=demo.url, trust_env=False, timeout=120) as http:
        body = {
            "model": http.get("/v1/models").json()["data"][0]["id"],
            "messages": requests,
            "temperature": 0,
        }
        answered = http.post("/v1/chat/completions", json=body).raise_for_status().json()
        score = answered["uncertainty"]
        while score["status"] == "pending":
            time.sleep(0.2)
            score = http.get(f"/scores/{score['id']}").json()
    assert score["status"] == "scored", answered
    assert "Berlin" in answered["choices"][0]["message"]["content"]
