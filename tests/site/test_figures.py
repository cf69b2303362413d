"""The figures are drawn from the numbers in the same folder, and the pages state these numbers."""

import json
from typing import Any

import pytest

from service.claims.verdicts import correct
from service.spectral.spectrum import DepolarizedMap
from tests.support.built_site import ROOT
from tools.site.figures import FOLDER, NUMBERS, figures, recorded

pytestmark = pytest.mark.site
FOUND: dict[str, Any] = json.loads(NUMBERS.read_text("utf-8"))
ROWS = recorded()


def test_the_figures_are_those_of_the_numbers() -> None:
    drawn = figures(FOUND)
    assert {path.stem for path in FOLDER.glob("*.svg")} == drawn.keys()
    for name, svg in drawn.items():
        assert (FOLDER / f"{name}.svg").read_text("utf-8") == svg, f"{name}: python -m tools.site.figures"


def test_the_numbers_are_of_the_bundled_questions() -> None:
    assert FOUND["from"]["rows"] == len(ROWS)
    shown = {one["id"]: one for one in FOUND["spectra"]}
    for row in ROWS:
        if row["id"] in shown:
            assert shown[row["id"]]["prompt"] == row["prompt"]
            assert len(shown[row["id"]]["eigenvalues"]) <= len(set(row["samples"]))


def page(name: str) -> str:
    return " ".join((ROOT / "docs" / name).read_text("utf-8").split())


def served(name: str) -> dict[str, Any]:
    return next(row for row in FOUND["served"] if row["map"] == name)


def told() -> list[tuple[str, str]]:
    """Return the statements of the pages about the numbers, made from the numbers."""
    raw, ours = served("raw"), served(FOUND["method"])
    null, decided = ours["projection_null"], FOUND["correctness"]
    g = FOUND["fits"]["depolarized"]["depolarization"]
    equal = DepolarizedMap(1.0, g["value"]).serve([1.0], FOUND["dimension"]).lambda_max
    last = decided["by_num_samples"][-1]
    at = {one["target_error"]: one for one in decided["promises"]}
    risks = [served(name)["risk"] for name in ("temperature", "depolarized", "evidence")]
    ece = f"{raw['projection_ece']:.3f}", f"{ours['projection_ece']:.3f}"
    auroc = f"{raw['auroc_lambda_max']['value']:.3f}", f"{ours['auroc_lambda_max']['value']:.3f}"
    return [
        ("concepts.md", f"falls from {ece[0]} to {ece[1]}"),
        ("concepts.md", f"{100 * FOUND['from']['accuracy']:.0f} % of its answers are right"),
        ("concepts.md", f"would read {null['low']:.3f} to {null['high']:.3f}"),
        (
            "concepts.md",
            f"g is {g['value']:.2f} ({g['low']:.2f} to {g['high']:.2f}), "
            f"so 20 equal answers score {equal:.2f}",
        ),
        ("concepts.md", f"is {auroc[0]} before and {auroc[1]} after"),
        (
            "concepts.md",
            "risk {:.3f} for `temperature`, {:.3f} for `depolarized`, {:.3f} for `evidence`".format(*risks),
        ),
        (
            "concepts.md",
            f"log loss is {last['log_loss']:.3f}; always telling the share of right answers would cost "
            f"{last['base_log_loss']:.3f}",
        ),
        ("concepts.md", f"at most 20 % wrong lets {100 * at[0.2]['coverage']:.0f} % of the answers through"),
        ("concepts.md", f"the lowest that can is {100 * last['lowest']['target_error']:.1f} %"),
        (
            "how-to/decide-with-a-target-error.md",
            f"a threshold of {at[0.2]['threshold']:.3f} and a coverage of {at[0.2]['coverage']:.3f}",
        ),
        ("how-to/decide-with-a-target-error.md", f"can be promised ({last['lowest']['target_error']:.3f})"),
    ]


@pytest.mark.parametrize(("name", "words"), told())
def test_pages_tell_the_numbers(name: str, words: str) -> None:
    assert words in page(name)


def test_unanimous_and_wrong_is_counted() -> None:
    alike = [row for row in ROWS if len(set(row["samples"])) == 1]
    wrong = [row for row in alike if not correct(row["samples"][0], as_list(row["reference"]))]
    assert (len(alike), len(wrong)) == (86, 10)
    assert "On 86 of the 271 questions" in page("concepts.md")
    assert "Ten of the 86 are wrong" in page("concepts.md")
    assert ("What is the capital of Australia?", "Sydney") in [(r["prompt"], r["samples"][0]) for r in wrong]


def as_list(reference: str | list[str]) -> list[str]:
    return [reference] if isinstance(reference, str) else reference
