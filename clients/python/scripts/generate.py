"""Writes the models of the client from the contract: `make openapi-models`, or `generate.py FOLDER`.

`_models.py` has the results, `_requests.py` the options of calls; both are changed in the contract alone.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "clients" / "python" / "src" / "eigencal"
CONTRACT = ROOT / "clients" / "openapi.json"
HEADER = "# Made from clients/openapi.json by `make openapi-models`; changed there alone.\n# ruff: noqa"
STYLE = [
    "--custom-file-header",
    HEADER,
    "--disable-future-imports",
    "--disable-timestamp",
    "--enum-field-as-literal",
    "all",
    "--formatters",
    "builtin",
    "--input-file-type",
    "openapi",
    "--keep-model-order",
    "--output-datetime-class",
    "datetime",
    "--target-python-version",
    "3.11",
    "--use-field-description",
    "--use-schema-description",
    "--use-single-line-docstring",
    "--use-standard-collections",
    "--use-union-operator",
]
PREFIX = "#/components/schemas/"
# What the names of the contract are in Python, where they are not the same.
RESULTS = {
    "Activation": "Activation",
    "CalibrationOut": "Calibration",
    "CalibrationUsed": "CalibrationUsed",
    "Candidate": "Candidate",
    "Claim": "Claim",
    "ClaimSupport": "ClaimSupport",
    "Decision": "Decision",
    "Evidence": "Evidence",
    "EvidenceParametersOut": "EvidenceParameters",
    "Health": "Health",
    "JobError": "JobError",
    "Job": "Job",
    "KeptScore": "KeptScore",
    "KeyOut": "Key",
    "KeyWarning": "KeyWarning",
    "MadeKey": "NewKey",
    "Mark": "Mark",
    "Mode": "Mode",
    "ParametersOut": "Parameters",
    "Problem": "Problem",
    "ProblemItem": "ProblemItem",
    "PromiseOut": "Promise",
    "Ready": "Ready",
    "Score": "Score",
    "FullSpectrum": "Spectrum",
    "SpectrumValues": "SpectrumValues",
    "Timings": "Timings",
    "TokenUsage": "Usage",
    "Verified": "Verified",
    "ScoreWarning": "ScoreWarning",
}
REQUESTS = {
    "CalibrateForm": "CalibrateOptions",
    "Correction": "Correction",
    "CorrectionsRequest": "CorrectOptions",
    "EvaluateForm": "EvaluateOptions",
    "MessageIn": "ChatMessage",
    "SamplingIn": "SamplingOptions",
    "ScoreRequest": "ScoreOptions",
    "TokenIn": "CandidateToken",
}
# Arguments of the call itself, and what has no name of its own in Python.
ARGUMENTS = {"CalibrateForm": ["file"], "CorrectionsRequest": ["rows"], "EvaluateForm": ["dev", "test"]}
ARGUMENTS["ScoreRequest"] = ["prompt"]
# A TypedDict of these says which members each of them must have; the others are keyword arguments.
MEMBERS = {"Correction", "MessageIn", "TokenIn"}
KEPT = {"$ref", "additionalProperties", "anyOf", "description", "enum", "format", "items", "properties"}
KEPT |= {"required", "type"}


def bare(schema: Any) -> Any:
    """Return the type that a schema tells, without names, bounds and conditions: the service checks those."""
    if not isinstance(schema, dict):
        return schema
    found = {name: value for name, value in schema.items() if name in KEPT}
    if "properties" in found:
        found.pop("anyOf", None)
        found.pop("additionalProperties", None)
        found["properties"] = {name: bare(one) for name, one in found["properties"].items()}
    if "anyOf" in found:
        found["anyOf"] = [bare(one) for one in found["anyOf"]]
    for name in ("items", "additionalProperties"):
        if name in found:
            found[name] = bare(found[name])
    if "$ref" in found:
        name = found["$ref"].removeprefix(PREFIX)
        found["$ref"] = PREFIX + (RESULTS | REQUESTS)[name]
    return found


def optional(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a field that may also be null."""
    described = {"description": schema["description"]} if "description" in schema else {}
    inner = {name: value for name, value in schema.items() if name != "description"}
    several = inner.get("anyOf", [inner])
    if {"type": "null"} not in several:
        several = [*several, {"type": "null"}]
    return {"anyOf": several, **described}


def open_ended(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a field of a result whose values may be those of a newer service."""
    if "enum" not in schema:
        return schema
    known = {"type": "string", "enum": schema["enum"]}
    return {"anyOf": [known, {"type": "string"}], "description": schema["description"]}


def results(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of results, by their names in Python."""
    found = {ours: bare(schemas[theirs]) for theirs, ours in RESULTS.items()}
    # The contract says of a kept score that it has the fields of a score, once it is scored.
    kept, warning = found["KeptScore"], {"anyOf": [{"$ref": f"{PREFIX}ScoreWarning"}, {"type": "null"}]}
    kept["properties"] |= {
        "warning": {**warning, "description": "Of not_scored and failed: why there is no score."},
        "withheld": {
            "anyOf": [{"type": "string"}, {"type": "null"}],
            "description": "The model's own answer, where a decision to abstain has replaced it.",
        },
    }
    fields = found["Score"]["properties"].items()
    kept["properties"] |= {name: optional(one) for name, one in fields if name != "id"}
    for schema in found.values():
        schema["properties"] = {name: open_ended(one) for name, one in schema["properties"].items()}
    return found


def requests(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of options, by their names in Python."""
    found = {}
    for theirs, ours in REQUESTS.items():
        schema = bare(schemas[theirs])
        for name in ARGUMENTS.get(theirs, ()):
            schema["properties"].pop(name)
        if "return" in schema["properties"]:  # a word of Python
            schema["properties"]["return_"] = schema["properties"].pop("return")
        if theirs not in MEMBERS:
            # None means left out: a caller may pass on what it was given.
            schema["properties"] = {name: optional(one) for name, one in schema["properties"].items()}
            schema.pop("required", None)
        found[ours] = schema
    return found


def write(path: Path, schemas: dict[str, Any], options: Iterable[str]) -> None:
    """Write the module with the models of these schemas."""
    document = {"openapi": "3.1.0", "info": {"title": "", "version": ""}, "paths": {}}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "openapi.json"
        source.write_text(json.dumps(document | {"components": {"schemas": schemas}}))
        run("datamodel_code_generator", "--input", str(source), "--output", str(path), *STYLE, *options)


def main(folder: Path) -> None:
    """Write both modules into a folder."""
    schemas = json.loads(CONTRACT.read_text())["components"]["schemas"]
    pydantic = ["--output-model-type", "pydantic_v2.BaseModel", "--base-class", "eigencal._result.Result"]
    write(folder / "_models.py", results(schemas), [*pydantic, "--strict-nullable"])
    # Results are frozen, and so are the lists in them.
    models = folder / "_models.py"
    models.write_text(re.sub(r"\blist\[([^\[\]]+)\]", r"tuple[\1, ...]", models.read_text()))
    typed_dict = ["--output-model-type", "typing.TypedDict", "--use-generic-container-types"]
    write(folder / "_requests.py", requests(schemas), typed_dict)
    style = ["--quiet", "--config", str(ROOT / "pyproject.toml")]
    run("ruff", "format", *style, str(folder / "_models.py"), str(folder / "_requests.py"))


def run(*command: str) -> None:
    """Run a module of Python. Raises CalledProcessError where it fails."""
    subprocess.run([sys.executable, "-m", *command], check=True)  # noqa: S603


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE)
