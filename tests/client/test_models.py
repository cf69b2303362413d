"""The results are the contract's: a field that it has, and they lack, fails here."""

import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

import eigencal
from eigencal._models import requests
from eigencal._models.result import Result

ROOT = Path(__file__).parents[2]
SCHEMAS: dict[str, Any] = json.loads((ROOT / "clients" / "openapi.json").read_text())["components"]["schemas"]
RESULTS = {
    "CalibrationOut": "Calibration", "CalibrationUsed": "CalibrationUsed", "CandidateOut": "Candidate",
    "ActivationOut": "Activation", "PromiseOut": "Promise",
    "DecisionOut": "Decision", "EvidenceOut": "Evidence", "EvidenceParametersOut": "EvidenceParameters",
    "GuardrailVerdict": "GuardrailVerdict", "Health": "Health", "KeyOut": "Key", "KeyWarning": "KeyWarning",
    "MadeKey": "NewKey", "JobErrorOut": "JobError", "JobOut": "Job",
    "ModeOut": "Mode", "ParametersOut": "Parameters", "Problem": "Problem", "ProblemItem": "ProblemItem",
    "Ready": "Ready", "Root": "Root", "ScoreResponse": "Score", "SpectrumOut": "Spectrum",
    "SpectrumValues": "SpectrumValues", "TimingsOut": "Timings", "UsageOut": "Usage", "Verified": "Verified",
    "WarningOut": "ScoreWarning",
}  # fmt: skip
REQUESTS = {
    "ScoreRequest": (requests.ScoreOptions, {"prompt"}), "SamplingIn": (requests.SamplingOptions, set()),
    "CalibrateForm": (requests.CalibrateOptions, {"file"}),
    "CorrectionsRequest": (requests.CorrectOptions, {"rows"}), "CorrectionIn": (requests.Correction, set()),
    "EvaluateForm": (requests.EvaluateOptions, {"dev", "test"}), "MessageIn": (requests.ChatMessage, set()),
}  # fmt: skip
# Of these the client knows the fields by another way.
ELSEWHERE = {
    "KeyRequest": "parameters of Client.create_key",
    "KeptScore": "test_a_kept_score_has_what_a_score_has", "VerifyRequest": "parameters of Client.verify",
    "GuardrailCall": "parameters of Client.guardrail", "BatchRequest": "Client.score_batch makes it",
    "CalibrateRequest": "the form is sent", "EvaluateRequest": "the form is sent",
    "ExampleIn": "rows as they are", "ExampleMessage": "rows as they are",
}  # fmt: skip


def test_every_schema_of_the_contract_is_known() -> None:
    assert SCHEMAS.keys() == RESULTS.keys() | REQUESTS.keys() | ELSEWHERE.keys()


def shape(schema: Mapping[str, Any]) -> Any:
    """Return the bare type of a schema: what is allowed, without names, descriptions and bounds."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return RESULTS.get(name, name)
    if "anyOf" in schema:
        flat = [shape(one) for one in schema["anyOf"]]
        return tuple(
            sorted({repr(one) for many in flat for one in (many if isinstance(many, tuple) else [many])})
        )
    if schema.get("type") == "array":
        return ["array", shape(schema["items"])]
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return ["object", shape(inner) if isinstance(inner, dict) else True]
    return "string" if schema.keys() & {"enum", "const"} else schema.get("type")


def loosened(found: Any) -> Any:
    """Return a shape in which `Literal[...] | str` is a string: values of a newer service are taken, too."""
    if isinstance(found, list):
        return [found[0], loosened(found[1])]
    if isinstance(found, tuple):
        return loosened(ast.literal_eval(found[0])) if len(found) == 1 else found
    return found


@pytest.mark.parametrize(("schema", "name"), RESULTS.items(), ids=str)
def test_a_result_has_every_field_of_the_contract(schema: str, name: str) -> None:
    kind: type[BaseModel] = getattr(eigencal, name)
    theirs, ours = SCHEMAS[schema], TypeAdapter(kind).json_schema()
    assert ours["properties"].keys() == theirs["properties"].keys()
    assert set(ours.get("required", ())) == set(theirs.get("required", ()))
    for field, told in theirs["properties"].items():
        assert loosened(shape(ours["properties"][field])) == loosened(shape(told)), field


def documented(path: Path) -> dict[str, dict[str, str]]:
    """Return what the source says of every field of every class, in one line each."""
    found: dict[str, dict[str, str]] = {}
    for kind in ast.parse(path.read_text()).body:
        if isinstance(kind, ast.ClassDef):
            fields = found.setdefault(kind.name, {})
            for one, after in zip(kind.body, kind.body[1:], strict=False):
                if isinstance(one, ast.AnnAssign) and isinstance(after, ast.Expr):
                    fields[ast.unparse(one.target)] = " ".join(ast.literal_eval(after.value).split())
    return found


FILES = sorted(Path(eigencal.__file__).parent.joinpath("_models").glob("*.py"))
TOLD = {name: fields for path in FILES for name, fields in documented(path).items()}


@pytest.mark.parametrize(("schema", "name"), RESULTS.items(), ids=str)
def test_a_field_is_described_as_in_the_contract(schema: str, name: str) -> None:
    bases = [base.__name__ for base in getattr(eigencal, name).__mro__]
    assert {field: said for base in bases for field, said in TOLD.get(base, {}).items()} == {
        field: " ".join(one["description"].split()) for field, one in SCHEMAS[schema]["properties"].items()
    }


def test_every_field_is_described() -> None:
    results = [one for one in vars(eigencal).values() if isinstance(one, type) and issubclass(one, Result)]
    own = {
        one.__name__: {n for n in vars(one).get("__annotations__", {}) if not n.startswith("_")}
        for one in results
    }
    assert {name: fields - TOLD.get(name, {}).keys() for name, fields in own.items() if fields} == {
        name: set() for name, fields in own.items() if fields
    }


@pytest.mark.parametrize("schema", REQUESTS)
def test_every_field_of_a_request_can_be_sent(schema: str) -> None:
    kind, apart = REQUESTS[schema]
    ours = {name.removesuffix("_") for name in kind.__annotations__}
    assert ours | apart == SCHEMAS[schema]["properties"].keys()
    assert TOLD[kind.__name__].keys() == set(kind.__annotations__)


def test_a_kept_score_has_what_a_score_has() -> None:
    kept, score = eigencal.KeptScore.model_fields, eigencal.Score.model_fields
    assert kept.keys() - {"status", "warning", "withheld"} == score.keys()
    for name, field in score.items():
        theirs = set(get_args(kept[name].annotation)) or {kept[name].annotation}
        ours = set(get_args(field.annotation)) or {field.annotation}
        assert ours <= theirs, name
    assert kept.keys() >= SCHEMAS["KeptScore"]["properties"].keys()


EXAMPLE = json.loads((ROOT / "service" / "api" / "examples.json").read_text())


@pytest.mark.parametrize("name", EXAMPLE)
def test_real_answers_are_read_whole(name: str) -> None:
    said = EXAMPLE[name]["response"]
    score = eigencal.Score.model_validate_json(json.dumps(said))
    assert json.loads(score.model_dump_json(exclude_unset=True)) == said
    assert hash(score) == hash(eigencal.Score.model_validate(said))


def test_a_newer_services_fields_and_values_are_kept() -> None:
    said = EXAMPLE["prompt"]["response"] | {"of_tomorrow": {"a": 1}}
    said["calibration"] = {
        "id": "cal_1", "method": "of_tomorrow", "temperature": 1.0, "depolarization": 0.0,
        "created_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    score = eigencal.Score.model_validate(said)
    assert (score.model_extra or {})["of_tomorrow"] == {"a": 1}
    assert score.calibration is not None and score.calibration.method == "of_tomorrow"


def test_a_result_cannot_be_changed() -> None:
    score = eigencal.Score.model_validate(EXAMPLE["prompt"]["response"])
    with pytest.raises(ValidationError, match="frozen"):
        score.lambda_max = 1.0  # the plugin of mypy would tell, but tests are not checked by it
