"""`eigencal.compat.tlm.TLM`, as programs of Cleanlab's TLM call it, on the real application."""

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eigencal
from eigencal.compat.tlm import TLM, ValidationError
from service.app.parts import serving_of
from service.settings import Settings
from tests.support.fakes import FakeLLM
from tests.support.in_thread import serving_app
from tests.support.memory_store import MemoryStore
from tests.support.replica_apps import ORTHOGONAL, deciding, orthogonal

PROMPT = "What is the capital of France?"
EFFORTS = {"effort_low": 2, "effort_medium": 4, "effort_high": 5}
RIGHT = 0.5 * 0.75 + 0.5 / ORTHOGONAL  # P(correct) of what three of four answers mean


@pytest.fixture
def llm() -> FakeLLM:
    return FakeLLM({PROMPT: ["Paris", "Paris", "Lyon", "Paris"]})


@pytest.fixture(params=[True, False], ids=["verdicts", "raw"])
def verdicts(request: pytest.FixtureRequest) -> bool:
    """Whether a calibration tells P(correct)."""
    return bool(request.param)


@pytest.fixture
def url(llm: FakeLLM, tmp_path: Path, verdicts: bool) -> Iterator[str]:
    store, embedder = MemoryStore(), orthogonal()

    async def activate() -> None:
        for one in deciding(serving_of(Settings(data_dir=tmp_path)), llm, embedder):
            await store.calibrations.add(one, {})
            await store.calibrations.activate(one.id)

    if verdicts:
        asyncio.run(activate())
    with serving_app(tmp_path, llm=llm, embedder=embedder, store=store, **EFFORTS) as found:
        yield found


@pytest.fixture
def tlm(url: str) -> Iterator[TLM]:
    with TLM(url=url) as made:
        yield made


def test_a_prompt_gets_an_answer_and_a_score_that_says_what_it_is(tlm: TLM, verdicts: bool) -> None:
    found = tlm.prompt(PROMPT)
    assert found["response"] == "Paris"
    assert found.keys() == {"response", "trustworthiness_score", "score_is", "score_id"}
    if verdicts:
        assert found["score_is"] == "probability_correct"
        assert found["trustworthiness_score"] == pytest.approx(RIGHT)
    else:
        assert found["score_is"] == "lambda_max"
        assert found["trustworthiness_score"] == pytest.approx(0.75)


def test_a_response_of_yours_is_judged(tlm: TLM, verdicts: bool) -> None:
    paris = tlm.get_trustworthiness_score(PROMPT, "Paris")
    lyon = tlm.get_trustworthiness_score(prompt=PROMPT, response="Lyon")
    nobody = tlm.get_trustworthiness_score(PROMPT, "Nice")
    meaning = "probability_correct" if verdicts else "candidate_probability"
    assert [each["score_is"] for each in (paris, lyon, nobody)] == [meaning, meaning, "no_support"]
    scores = [each["trustworthiness_score"] for each in (paris, lyon, nobody)]
    expected = [RIGHT, 0.5 * 0.25 + 0.5 / ORTHOGONAL, 0.0] if verdicts else [0.75, 0.25, 0.0]
    assert scores == pytest.approx(expected)
    assert "response" not in paris


def test_lists_keep_their_order_and_errors_stand_in_their_place(tlm: TLM, llm: FakeLLM) -> None:
    prompts = [f"prompt {i}" for i in range(20)]
    llm.answers |= {prompt: [f"Answer to {prompt}"] for prompt in prompts}
    found = tlm.prompt(prompts)
    assert [each["response"] for each in found] == [f"Answer to {prompt}" for prompt in prompts]
    with pytest.warns(UserWarning, match=r"prompt\[1\] failed \(retrying will not help\)"):
        found = tlm.prompt([PROMPT, "", PROMPT])
    assert [each["response"] for each in found] == ["Paris", None, "Paris"]
    bad = found[1]
    assert (bad["trustworthiness_score"], bad["score_is"]) == (None, None)
    assert bad["log"]["error"]["retryable"] is False
    assert "invalid_request" in bad["log"]["error"]["message"]
    with pytest.warns(UserWarning, match=r"prompt\[0\] failed"):
        scores = tlm.get_trustworthiness_score(["", PROMPT], ["Paris", "Paris"])
    assert scores[0]["trustworthiness_score"] is None
    assert "response" not in scores[0]
    assert scores[1]["trustworthiness_score"] is not None


def test_one_prompt_that_fails_raises(url: str, llm: FakeLLM) -> None:
    with TLM(url=url) as tlm, pytest.raises(eigencal.InvalidRequest):
        tlm.prompt("")
    llm.gate = asyncio.Event()  # which nobody sets
    with TLM(url=url, timeout=0.3) as tlm:
        with pytest.raises(eigencal.TimedOut):
            tlm.get_trustworthiness_score(PROMPT, "Paris")
        with pytest.warns(UserWarning, match=r"prompt\[[01]\] failed \(worth retrying\)"):
            found = tlm.prompt([PROMPT, PROMPT])
    assert [each["response"] for each in found] == [None, None]


async def in_one_loop(tlm: TLM) -> list[Any]:
    return [
        await tlm.prompt_async(PROMPT),
        await tlm.prompt_async([PROMPT, PROMPT]),
        await tlm.get_trustworthiness_score_async(PROMPT, "Lyon"),
        await tlm.get_trustworthiness_score_async([PROMPT, PROMPT], ["Paris", "Lyon"]),
    ]


def test_awaited_it_is_the_same(tlm: TLM) -> None:
    def alike(found: Any) -> Any:
        if isinstance(found, list):
            return [alike(each) for each in found]
        return {name: value for name, value in found.items() if name != "score_id"}

    expected = [
        tlm.prompt(PROMPT),
        tlm.prompt([PROMPT, PROMPT]),
        tlm.get_trustworthiness_score(PROMPT, "Lyon"),
        tlm.get_trustworthiness_score([PROMPT, PROMPT], ["Paris", "Lyon"]),
    ]
    for _ in range(2):  # each time in another event loop
        assert alike(asyncio.run(in_one_loop(tlm))) == alike(expected)
    with pytest.warns(UserWarning, match=r"prompt\[1\] failed"):
        bad = asyncio.run(tlm.prompt_async([PROMPT, ""]))[1]
    assert (bad["response"], bad["trustworthiness_score"]) == (None, None)


def test_deprecated_names_are_there(tlm: TLM) -> None:
    with pytest.warns(DeprecationWarning, match="Use prompt"):
        assert tlm.try_prompt([PROMPT])[0]["response"] == "Paris"
    with pytest.warns(DeprecationWarning, match="Use get_trustworthiness_score"):
        assert tlm.try_get_trustworthiness_score([PROMPT], ["Paris"])[0]["trustworthiness_score"]


@pytest.mark.parametrize(
    ("preset", "count"), [("base", 2), ("low", 2), ("medium", 4), ("high", 5), ("best", 5)]
)
def test_presets_are_efforts(url: str, llm: FakeLLM, preset: Any, count: int) -> None:
    with TLM(preset, url=url) as tlm:
        tlm.prompt(PROMPT)
    assert llm.requests[-1].num_samples == count


def test_options_that_are_honoured(url: str, llm: FakeLLM) -> None:
    options = {"model": "ours", "max_tokens": 64, "num_consistency_samples": 3, "log": ["explanation"]}
    with TLM(options=options, url=url) as tlm:
        assert tlm.get_model_name() == "ours"
        found = tlm.prompt(PROMPT)
    request = llm.requests[-1]
    assert (request.num_samples, request.model, request.sampling.max_tokens) == (3, "ours", 64)
    said = "Of 3 answers, 2 distinct, 67% mean 'Paris', 33% mean 'Lyon'."
    assert found["log"] == {"explanation": said}


def test_explanations_can_be_asked_for_later(tlm: TLM, url: str) -> None:
    found = tlm.get_trustworthiness_score(PROMPT, "Nice")
    said = tlm.get_explanation(prompt=PROMPT, response="Nice", tlm_result=found)
    assert said.endswith("None of them says what the response says.")
    assert found["log"]["explanation"] == said
    lyon = tlm.get_trustworthiness_score(PROMPT, "Lyon")
    said = tlm.get_explanation(prompt=PROMPT, tlm_result=lyon)
    with eigencal.Client(url) as client:
        judged = client.get_score(str(lyon["score_id"])).candidate
    assert judged is not None and 0.2 < judged.probability < 0.3
    share = f"{judged.probability:.0%}"
    assert said.endswith(f"The response is nearest to 'Lyon'; it has {share} of the answers' meaning.")


@pytest.mark.parametrize(
    "result",
    [
        {"response": "Paris", "trustworthiness_score": 0.9},  # TLM's own
        {"trustworthiness_score": None, "score_is": None, "score_id": None},
        [{"trustworthiness_score": 0.9, "score_is": "lambda_max", "score_id": "scr_1"}],
        None,
    ],
)
def test_what_has_no_score_cannot_be_explained(tlm: TLM, result: Any) -> None:
    with pytest.raises(ValidationError, match="tlm_result"):
        tlm.get_explanation(prompt=PROMPT, tlm_result=result)


def test_a_server_that_names_no_model_is_told(tlm: TLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eigencal.Client, "models", lambda _client: [])
    with pytest.raises(eigencal.UnexpectedAnswer, match="names no model"):
        tlm.get_model_name()


@pytest.mark.parametrize(
    "arguments",
    [
        {"quality_preset": "lowest"},
        {"task": "classification"},
        {"task": "summary"},
        {"timeout": 0},
        {"options": {"custom_eval_criteria": [{"name": "x", "criteria": "y"}]}},
        {"options": {"disable_trustworthiness": True}},
        {"options": {"num_candidate_responses": 4}},
        {"options": {"num_consistency_samples": 0}},
        {"options": {"log": ["perplexity"]}},
        {"options": {"modle": "x"}},
    ],
)
def test_what_cannot_be_honoured_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        TLM(**arguments)
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, eigencal.EigencalError)


@pytest.mark.parametrize("option", ["num_self_reflections", "reasoning_effort", "similarity_measure"])
def test_what_means_nothing_here_is_ignored_with_a_warning(option: str) -> None:
    with pytest.warns(UserWarning, match=f"{option} is ignored"):
        TLM(options={option: "high"}).close()
    with pytest.warns(UserWarning, match="code_generation.* is ignored"):
        TLM(task="code_generation").close()


def test_calls_that_do_not_fit_are_refused() -> None:
    with TLM() as tlm:
        for call in (
            lambda: tlm.prompt(PROMPT, constrain_outputs=["a", "b"]),
            lambda: tlm.prompt(PROMPT, temperature=1),
            lambda: tlm.prompt([PROMPT, 7]),
            lambda: tlm.prompt(7),
            lambda: tlm.get_trustworthiness_score(PROMPT, ["Paris"]),
            lambda: tlm.get_trustworthiness_score([PROMPT], "Paris"),
            lambda: tlm.get_trustworthiness_score([PROMPT], ["Paris", "Lyon"]),
        ):
            with pytest.raises(ValidationError):
                call()


def test_parameters_are_named_and_ordered_as_in_cleanlabs() -> None:
    """Held against cleanlab-tlm 1.1.39, written down here: it is not installed."""
    theirs = {
        "__init__": ["quality_preset", "task", "api_key", "options", "timeout", "verbose"],
        "prompt": ["prompt", "kwargs"],
        "prompt_async": ["prompt", "kwargs"],
        "try_prompt": ["prompt", "kwargs"],
        "get_trustworthiness_score": ["prompt", "response", "kwargs"],
        "get_trustworthiness_score_async": ["prompt", "response", "kwargs"],
        "try_get_trustworthiness_score": ["prompt", "response", "kwargs"],
        "get_model_name": [],
    }
    for name, parameters in theirs.items():
        ours = [each for each in inspect.signature(getattr(TLM, name)).parameters if each != "self"]
        assert ours[: len(parameters)] == parameters, name
