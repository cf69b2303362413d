"""`evaluate --compare llm`: both kernels on the same rows, with an LLM that compares."""

import json
from dataclasses import replace

import pytest

from lab.command import Components, evaluate
from lab.command import Plan as FullPlan
from lab.page import render_evaluation
from service.errors import LLMError
from service.llm.prompt import Sampling
from service.scoring.score import Serving
from tests.support.comparing import ComparingLLM
from tests.support.fakes import FakeEmbedder
from tests.support.pages import section, words
from tests.support.reports import FEW
from tests.support.worlds import rows, write

SERVING = Serving(6, Sampling(), Sampling())
RIGHT = "auroc_probability_correct"


def city(first, second):
    """P(same): whether both texts name one city, with some doubt."""
    return 0.9 if first.split()[-1] == second.split()[-1] else 0.05


def parts(llm):
    return Components(llm, FakeEmbedder(16), SERVING)


def plan(folder):
    paths = []
    for name, seed in (("dev", 1), ("test", 2)):
        made = rows(32, 6, seed=seed)
        for i, row in enumerate(made):
            row |= {"prompt": f"Which city is it in {name} {i}?", "correct": i % 3 > 0}
        paths.append(write(folder / f"{name}.jsonl", made))
    return FullPlan(*paths, folder / "out", compare="llm", resamples=FEW)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    made = plan(tmp_path_factory.mktemp("kernels"))
    return made, ComparingLLM(city), evaluate(made, parts(ComparingLLM(city)))


def test_both_kernels_have_figures_with_paired_intervals(finished):
    _, _, results = finished
    compared = results["compared"]
    by_name = {row["figure"]: row for row in compared["rows"]}
    assert by_name.keys() == {"auroc_p_y", "auroc_lambda_max", RIGHT, "log_loss", "ece"}
    for row in by_name.values():
        gap = row["difference"]
        assert gap["value"] == pytest.approx(row["llm"] - row["facts"])
        assert row["real"] is (gap["low"] > 0 or gap["high"] < 0)
    assert compared["right"]["facts"] == compared["right"]["llm"]
    assert compared["model"] == "fake-llm"


def test_costs_are_shown(finished):
    _, _, results = finished
    compared = results["compared"]
    assert compared["calls_per_question"] > 1
    assert compared["tokens_per_question"] >= compared["calls_per_question"]
    text = words(section(render_evaluation(results), "kernels"))
    assert f"{compared['tokens_per_question']:.0f} tokens per question" in text


def test_second_run_asks_no_stored_question(finished, tmp_path):
    made, _, results = finished
    llm = ComparingLLM(city)
    again = evaluate(made, parts(llm))
    assert again["compared"] == results["compared"]
    stored = [json.loads(line) for line in (made.out / "compared.jsonl").read_text().splitlines()]
    first = len(stored[0]["replies"])
    assert len(llm.compared) <= 2 * first  # of the first row, before the model is known


def test_costs_are_of_the_rows_of_the_run(tmp_path):
    whole = replace(plan(tmp_path), num_samples=6)
    limited = replace(whole, limit=24)
    alone = evaluate(replace(limited, out=tmp_path / "alone"), parts(ComparingLLM(city)))["compared"]
    evaluate(whole, parts(ComparingLLM(city)))
    later = evaluate(limited, parts(ComparingLLM(city)))["compared"]
    for name in ("calls_per_question", "tokens_per_question"):
        assert later[name] == pytest.approx(alone[name])


def test_answers_that_no_llm_compares_are_an_error(tmp_path):
    with pytest.raises(LLMError, match="compared no answers"):
        evaluate(plan(tmp_path), parts(ComparingLLM(lambda _first, _second: None)))


def test_llm_is_not_asked_without_the_option(tmp_path):
    llm = ComparingLLM(city)
    assert evaluate(replace(plan(tmp_path), compare="embeddings"), parts(llm))["compared"] is None
    assert not llm.requests
