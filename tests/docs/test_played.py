"""Commands, programs and figures of the documentation, run with the service of `make run`.

All tests are in one file, so that parallel test processes start that service only once.
"""

import json
import re
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
from tools.site.figures import NUMBERS, fetch

BLOCKS = {page: blocks(page) for page in pages()}
HERE = {
    page: [b for b in result if runs_here(b) and not needs_others_packages(b)]
    for page, result in BLOCKS.items()
}
OTHERS = {
    page: [b for b in result if runs_here(b) and needs_others_packages(b)] for page, result in BLOCKS.items()
}
# Figures may differ in the third digit with another BLAS.
CLOSE = 0.005


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
        assert "Use it. Activated: on held-out prompts it is better than the active" in calibrated


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
def test_figures_have_the_numbers_of_the_demonstration(demo: Demo) -> None:
    kept = json.loads(NUMBERS.read_text("utf-8"))
    with httpx.Client(base_url=demo.url, trust_env=False, timeout=60) as http:
        made = fetch(http)
    assert (made["from"], made["method"]) == (kept["from"], kept["method"])
    raw, ours = errors_of(kept)
    assert errors_of(made) == pytest.approx([raw, ours], abs=CLOSE)
    assert f"{raw:.3f}" in demo.said and f"{ours:.3f}" in demo.said


@pytest.mark.weights
def test_demonstration_succeeds(demo: Demo) -> None:
    """A calibration on other questions is activated; a right answer is let through, a wrong one withheld."""
    _, activated, after = demo.said.partition("Use it. Activated: ")
    assert activated
    right, unknown = re.findall(r"^    Decision: (\w+)\.", after, re.MULTILINE)
    assert (right, unknown) == ("answer", "abstain")


def errors_of(figures: dict[str, Any]) -> list[float]:
    """Return the projection ECE of the raw scores and of the served map."""
    served = {row["map"]: row["projection_ece"] for row in figures["served"]}
    return [served["raw"], served[figures["method"]]]


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
