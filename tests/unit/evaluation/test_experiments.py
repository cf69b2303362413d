"""Every experiment on small made-up files."""

import json

import numpy as np
import pytest

from service.evaluation import experiments as study_parts
from service.evaluation.baselines import (
    Likelihoods,
    baselines,
    by_embedding,
    by_entailment,
    choose_sampling,
    drawn,
    judge_sampling,
    not_drawn,
    recorded,
)
from service.evaluation.files import Recorded
from service.evaluation.results import MAPS, DataFile, provenance
from service.evaluation.study import FileFacts, Inputs, make_results, run_all
from service.report.diagnostics import GRID, NAIVE, STANDARD, EvaluationContext
from service.spectral.algorithm1 import algorithm1, cluster_prompts
from service.spectral.correctness import auroc
from service.spectral.dev_set import risk
from service.spectral.text_scores import lexical_similarity
from tests.support.reports import FEW
from tests.support.worlds import rows, split

TEST_ROWS = rows(45, seed=2)


def context(dev, test):
    return EvaluationContext(dev, test, resamples=FEW)


@pytest.fixture(scope="module")
def bench():
    return context(split(rows(40, seed=1)), split(TEST_ROWS))


@pytest.fixture(scope="module")
def likelihoods(bench):
    return recorded(bench.test, {i + 1: Recorded(row["logprob"]) for i, row in enumerate(TEST_ROWS)})


@pytest.fixture(scope="module")
def experiments(bench, likelihoods):
    other = context(split(rows(40, seed=1), 16), split(TEST_ROWS, 16))
    choice = choose_sampling({0.3: bench.dev, 0.9: bench.dev})
    inputs = Inputs(
        {"one": bench, "two": other}, None, likelihoods, judge_sampling(choice, bench.test, 0, FEW.nulls)
    )
    return {one["name"]: one for one in run_all(inputs)}


def one_of(results, name):
    return next(one for one in results["experiments"] if one["name"] == name)


def column(experiment, name, **where):
    return [row[name] for row in experiment["points"] if all(row[k] == v for k, v in where.items())]


def test_every_experiment_runs_and_is_json(experiments):
    assert len(experiments) == 19
    for one in experiments.values():
        assert one["ran"], one["reason"]
        assert one["points"]
        assert one["headline"]
    json.dumps(experiments, allow_nan=False)


def test_equal_seeds_give_equal_results(bench, experiments):
    fresh = context(bench.dev, bench.test)
    again = {one["name"]: one for one in run_all(Inputs({"one": fresh}, None, None, not_drawn("no")))}
    for name in ("algorithm1_diagram", "auroc", "comparison", "constant_predictor", "risk_and_entropy"):
        assert again[name] == experiments[name]


def test_progress_counts_every_experiment(bench):
    told = []
    found = run_all(Inputs({"one": bench}, None, None, not_drawn("no")), lambda *step: told.append(step))
    assert {total for _, total, _ in told} == {len(found)}
    assert [done for done, _, _ in told] == list(range(len(found) + 1))
    assert told[-1][2] == "done"


def test_what_found_nothing_did_not_run_and_says_why(bench):
    """Answers that share nothing: in no setting has a cluster two members, so nothing can be read."""
    alone = [
        {**row, "samples": [f"{i} {k} apart" for k in range(8)], "reference": f"{i} other"}
        for i, row in enumerate(TEST_ROWS[:12])
    ]
    one = context(bench.dev, split(alone))
    found = {e["name"]: e for e in run_all(Inputs({"one": one}, None, None, not_drawn("no")))}
    for name in ("algorithm1_diagram", "similarity"):
        assert found[name] == {**found[name], "ran": False, "headline": {}, "points": []}
        assert "No cluster has two members" in found[name]["reason"]
    assert all(any(v is not None for v in e["headline"].values()) for e in found.values() if e["ran"])


def test_convergence_falls_towards_all_answers(bench, experiments):
    found = experiments["estimator_convergence"]
    means = column(found, "mean")
    assert means == sorted(means, reverse=True)
    raw = [s.eigenvalues[0] for s in bench.test.spectra]
    assert means[-1] == pytest.approx(np.mean(raw))
    assert column(found, "deviation")[-1] == pytest.approx(0.0, abs=1e-12)


def test_the_constant_predictor_has_its_optimum_at_one(experiments):
    headline = experiments["constant_predictor"]["headline"]
    assert headline["one_within"] is True
    assert headline["best_temperature"] == pytest.approx(1.0, abs=1e-3)
    points = experiments["constant_predictor"]["points"]
    lowest = min(points, key=lambda row: row["risk"])
    assert lowest["temperature"] == pytest.approx(1.0, rel=0.1)
    assert lowest["risk"] == pytest.approx(headline["risk_at_one"], abs=0.01)


def test_risk_and_entropy_meet_at_the_fit(bench, experiments):
    headline = experiments["risk_and_entropy"]["headline"]
    assert headline["dev_risk"] == pytest.approx(headline["dev_entropy"], abs=1e-6)
    assert headline["low"] <= headline["temperature"] <= headline["high"]
    curve = experiments["risk_and_entropy"]["points"]
    assert min(row["dev_risk"] for row in curve) >= headline["dev_risk"] - 1e-9
    assert headline["test_risk"] == pytest.approx(risk(bench.maps["temperature"], bench.test.dev))


def test_the_depolarized_fit_is_the_least_of_its_curve(experiments):
    found = experiments["depolarized_map"]
    assert min(column(found, "dev_risk")) >= found["headline"]["dev_risk"] - 1e-9


@pytest.mark.parametrize(("name", "setting"), [("naive_diagram", NAIVE), ("algorithm1_diagram", STANDARD)])
def test_diagrams_are_those_of_the_algorithm(bench, experiments, name, setting):
    bins, clusters = setting
    for map_name, served in bench.served.items():
        clustered = cluster_prompts(bench.test.stack, served.lambda_max, num_bins=bins, num_clusters=clusters)
        expected = algorithm1(clustered, bench.test.targets)
        headline = experiments[name]["headline"]
        assert headline[f"{map_name}_ece"] == pytest.approx(expected.ece, abs=1e-6)
        assert headline[f"{map_name}_band_low"] <= headline[f"{map_name}_band_high"]
        counts = column(experiments[name], "count", map=map_name)
        assert sum(counts) == len(bench.test)


def test_every_ece_has_its_null(bench, experiments):
    projection = experiments["projection_reliability"]["headline"]
    paper = experiments["algorithm1_diagram"]["headline"]
    for name in MAPS:
        assert projection[f"{name}_draws"] == FEW.band
        assert 0 < projection[f"{name}_band_low"] < projection[f"{name}_band_mean"]
        assert 0 < projection[f"{name}_p_value"] <= 1
        assert paper[f"{name}_draws"] == paper[f"{name}_rescaled_draws"] == FEW.nulls
        assert paper[f"{name}_rescaled_low"] < paper[f"{name}_rescaled_mean"] < paper[f"{name}_rescaled_high"]
        assert 0 < paper[f"{name}_rescaled_p_value"] <= 1


def test_both_nulls_of_algorithm_1_wherever_it_is_read(experiments):
    """In every setting, of every embedder, and of the answers at another sampling temperature."""
    rows = [
        *((row, "") for row in experiments["sensitivity"]["points"]),
        *((row, "algorithm1_") for row in experiments["embedders"]["points"]),
        (experiments["sampling_temperature"]["headline"], ""),
    ]
    read = [(row, prefix) for row, prefix in rows if row[f"{prefix}band_low"] is not None]
    assert len(read) > 20
    for row, prefix in read:
        for null in ("band", "rescaled"):
            assert 0 < row[f"{prefix}{null}_low"] < row[f"{prefix}{null}_high"] < 1


def test_singletons_and_cluster_sizes_are_told_and_add_up(bench, experiments):
    found = experiments["algorithm1_diagram"]
    for name in MAPS:
        rows = [row for row in found["points"] if row["map"] == name]
        sizes = [int(size) for row in rows for size in row["cluster_sizes"].split()]
        alone = sum(row["singletons"] for row in rows)
        assert alone == found["headline"][f"{name}_singletons"]
        assert sum(sizes) + alone == len(bench.test)
        assert len(sizes) == found["headline"][f"{name}_clusters"]
        assert min(sizes) == found["headline"][f"{name}_cluster_size_least"] >= 2


def test_results_have_a_verdict_and_cautions(bench):
    lopsided = split([{**row, "answer": "zzz"} if i > 6 else row for i, row in enumerate(TEST_ROWS)])
    one = context(bench.dev, lopsided)
    inputs = Inputs({"one": one}, None, None, not_drawn("no"))
    origin = provenance(
        {"dev": DataFile(supplied=True), "test": DataFile(supplied=True)}, None, [], version="1"
    )
    found = make_results(inputs, (FileFacts(40, 8), FileFacts(45, 8)), origin)
    assert len(found["verdict"]) == 4
    assert found["verdict"][-1] == one_of(found, "answers")["headline"]["recommendation"]
    codes = [caution["code"] for caution in found["cautions"]]
    assert codes == ["few_right", "few_wrong", "few_right", "files_differ_accuracy"]
    of_files = [one["text"] for one in found["cautions"][:3]]
    assert ["dev file" in one for one in of_files] == [True, True, False]
    assert "test file" in of_files[2]
    assert all(caution["text"] in found["warnings"] for caution in found["cautions"])


def test_sensitivity_covers_the_grid_and_agrees_with_the_diagram(experiments):
    found = experiments["sensitivity"]
    cells = [(row["map"], row["bins"], row["clusters"]) for row in found["points"]]
    assert cells == [(name, b, c) for name in MAPS for b, c in GRID]
    for name in MAPS:
        [ece] = column(found, "ece", map=name, bins=8, clusters=5)
        assert ece == experiments["algorithm1_diagram"]["headline"][f"{name}_ece"]


def test_without_a_table_of_cosines_the_readings_are_the_same(bench):
    lean = context(bench.dev, bench.test)
    lean.__dict__["cosines"] = None
    for name in MAPS:
        bench.algorithm1(name, NAIVE)  # all settings, from the table
        left, right = (one.algorithm1(name) for one in (lean, bench))
        assert left.diagram.ece == pytest.approx(right.diagram.ece, abs=1e-9)


def test_clusters_are_more_alike_than_bins(experiments):
    headline = experiments["similarity"]["headline"]
    for name in MAPS:
        assert headline[f"{name}_within_cluster"] > headline[f"{name}_within_bin"]
    assert 0 < headline["all_pairs"] < 1


def test_scaled_measures_span_zero_to_one(experiments):
    found = experiments["co_minimised"]
    for measure in ("cal_s", "risk", "eigenvalue_ece"):
        scaled = column(found, f"{measure}_scaled")
        assert (min(scaled), max(scaled)) == (0.0, 1.0)
        lowest = found["points"][int(np.argmin(column(found, measure)))]
        assert found["headline"][f"{measure}_lowest_at"] == lowest["temperature"]


def test_too_many_prompts_for_all_pairs_are_said_so(bench):
    lean = context(bench.dev, bench.test)
    lean.__dict__["cosines"] = None
    assert "at most" in study_parts.cominimised(lean)["reason"]


def test_aurocs_are_those_of_the_scores(bench, experiments):
    right = bench.test.labels.right
    for name, served in bench.served.items():
        [row] = [r for r in experiments["auroc"]["points"] if (r["map"], r["score"]) == (name, "entropy")]
        assert row["auroc"] == pytest.approx(auroc(-served.entropy, right))
        assert row["low"] <= row["auroc"] <= row["high"]
        assert row["standard_error"] == pytest.approx((row["high"] - row["low"]) / 3.92, rel=0.5)


def test_rejection_begins_at_the_accuracy_of_all(bench, experiments):
    found = experiments["accuracy_rejection"]
    for name in MAPS:
        first = column(found, "accuracy", map=name, score="lambda_max")[0]
        assert first == pytest.approx(bench.test.labels.right.mean())


def test_baselines_are_named_and_computed(bench, experiments):
    found = {row["score"]: row for row in experiments["baselines"]["points"]}
    assert len(found) == 15
    values = [lexical_similarity(t, c) for t, c in zip(bench.test.texts, bench.test.counts, strict=True)]
    expected = auroc(values, bench.test.labels.right)
    assert found["lexical similarity"]["auroc"] == pytest.approx(expected)
    distinct = auroc([-len(t) for t in bench.test.texts], bench.test.labels.right)
    assert found["number of distinct answers"]["auroc"] == pytest.approx(distinct)
    assert "no NLI model" in found["discrete semantic entropy"]["note"]
    assert "no NLI model" in experiments["baselines"]["headline"]["meanings"]


def test_without_log_probabilities_their_scores_are_left_out_and_it_says_so(bench):
    found = baselines(bench, by_embedding(bench.test), None)
    assert not any("likelihood" in str(row["score"]) for row in found["points"])
    assert found["headline"]["log_probabilities"] == "not run: the answers carry no log-probabilities"


def test_one_class_of_answers_has_no_auroc(bench):
    wrong = [{**row, "answer": "zzz"} for row in TEST_ROWS]
    one = context(bench.dev, split(wrong))
    found = {e["name"]: e for e in run_all(Inputs({"one": one}, None, None, not_drawn("no")))}
    assert not found["auroc"]["ran"]
    assert "All answers of the test file are wrong" in found["baselines"]["reason"]
    assert found["algorithm1_diagram"]["ran"]
    assert found["embedders"]["reason"].startswith("Only one embedder")


def test_recorded_log_probabilities_need_every_sample(bench, likelihoods):
    assert isinstance(likelihoods, Likelihoods)
    assert likelihoods.unit == "word"
    assert recorded(bench.test, {1: Recorded([-1.0])}) is None
    assert drawn(bench.test) is None  # supplied samples have none of their own


def test_recorded_tokens_divide_where_every_row_has_them(bench):
    rows_ = {i + 1: Recorded(row["logprob"], [2.0] * 8) for i, row in enumerate(TEST_ROWS)}
    found = recorded(bench.test, rows_)
    assert found.unit == "token"
    assert found.normalised[0] == pytest.approx(np.array(TEST_ROWS[0]["logprob"]) / 2)
    assert recorded(bench.test, rows_ | {1: Recorded(TEST_ROWS[0]["logprob"])}).unit == "word"


class Nli:
    """Entailment where the last word is the same; keeps what it was asked."""

    name = "last-word"

    def __init__(self):
        self.pairs = []

    def probabilities(self, pairs):
        self.pairs += pairs
        same = np.array([a.split()[-1] == b.split()[-1] for a, b in pairs], dtype=float)
        return np.stack([same, 0.5 * (1 - same), 0.5 * (1 - same)], axis=1)


def test_an_entailment_model_is_asked_both_ways_and_named(bench):
    model = Nli()
    found = by_entailment(bench.test, model)
    assert found.source == "entailment both ways by last-word"
    one, texts = found.prompts[0], bench.test.texts[0]
    last = [text.split()[-1] for text in texts]
    assert one.equivalent.tolist() == [[a == b for b in last] for a in last]
    assert (one.similarity == one.similarity.T).all()
    assert set(model.pairs) >= {(b, a) for a, b in model.pairs}
    assert all(a.startswith("q") for a, _ in model.pairs)  # answers follow their prompt


def test_the_sampling_temperature_of_least_ece_is_chosen(bench):
    sure = [{**row, "samples": [row["samples"][0]] * 8} for row in rows(40, seed=1)]
    choice = choose_sampling({0.2: split(sure), 0.8: bench.dev})
    by_temperature = {p["sampling_temperature"]: p["class_share_ece"] for p in choice.points}
    assert by_temperature[choice.sampling_temperature] == min(by_temperature.values())
    found = judge_sampling(choice, bench.test, 0, FEW.nulls)
    assert found["headline"]["sampling_temperature"] == choice.sampling_temperature
    assert "tried is the best" in found["headline"]["at_bound"]
    clustered = cluster_prompts(bench.test.stack, bench.served["raw"].lambda_max)
    expected = algorithm1(clustered, bench.test.targets).ece
    assert found["headline"]["test_eigenvalue_ece"] == pytest.approx(expected, abs=1e-6)


def test_comparison_is_of_the_served_maps(bench, experiments):
    found = experiments["comparison"]
    [gap] = column(found, "difference", second="depolarized", first="raw", figure="test_risk")
    expected = risk(bench.maps["depolarized"], bench.test.dev) - risk(bench.maps["raw"], bench.test.dev)
    assert gap == pytest.approx(expected)
    for row in found["points"]:
        assert row["real"] is (row["low"] > 0 or row["high"] < 0)


def test_embedders_stand_side_by_side(experiments):
    found = experiments["embedders"]
    assert [(r["embedder"], r["map"]) for r in found["points"]] == [
        (e, m) for e in ("one", "two") for m in MAPS
    ]
    one = column(found, "algorithm1_ece", embedder="one")
    assert one == pytest.approx([experiments["algorithm1_diagram"]["headline"][f"{m}_ece"] for m in MAPS])


def test_embedders_have_the_bands_and_intervals_that_the_others_have(experiments):
    found, projection = experiments["embedders"], experiments["projection_reliability"]["headline"]
    for end in ("low", "high"):
        told = column(found, f"projection_band_{end}", embedder="one")
        assert told == [projection[f"{m}_band_{end}"] for m in MAPS]
        ranked = column(experiments["auroc"], end, score="lambda_max")
        assert column(found, f"auroc_{end}", embedder="one") == ranked
    assert column(found, "projection_p_value", embedder="one") == [projection[f"{m}_p_value"] for m in MAPS]
