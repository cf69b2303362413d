"""Writes the models of the client from the contract: `make openapi-models`, or `generate.py FOLDER`.

`types.py` has the results, `_requests.py` the options of calls; both are changed in the contract alone.
"""

import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "clients" / "python" / "src" / "eigencal"
CONTRACT = ROOT / "clients" / "openapi.json"
HEADER = "# Made from clients/openapi.json by `make openapi-models`; changed there alone.\n# ruff: noqa"
STYLE = shlex.split("""
--disable-future-imports --disable-timestamp --enum-field-as-literal all --formatters builtin
--input-file-type openapi --keep-model-order --output-datetime-class datetime --target-python-version 3.11
--use-field-description --use-schema-description --use-single-line-docstring --use-standard-collections
--use-union-operator
""")
RESULT = ["--output-model-type", "pydantic_v2.BaseModel", "--base-class", "eigencal._result.Result"]
OPTIONS = ["--output-model-type", "typing.TypedDict", "--use-generic-container-types"]
PREFIX = "#/components/schemas/"
# What the client returns, and takes: these, and what they are made of.
RESULTS = ["Activation", "CalibrationOut", "Health", "Job", "KeptScore", "KeyOut", "MadeKey", "Problem"]
RESULTS += ["Ready", "Score", "Verified"]
REQUESTS = ["CalibrateForm", "Correction", "CorrectionsRequest", "ScoreRequest"]
# What names of the contract are in Python; `Out` at their end is left out.
RENAMED = {
    "CalibrateForm": "CalibrateOptions",
    "CorrectionsRequest": "CorrectOptions",
    "MadeKey": "NewKey",
    "MessageIn": "ChatMessage",
    "SamplingIn": "SamplingOptions",
    "ScoreRequest": "ScoreOptions",
    "TokenIn": "CandidateToken",
    "TokenUsage": "Usage",
}
# Arguments of the call itself.
ARGUMENTS = {"CalibrateForm": ["file"], "CorrectionsRequest": ["rows"]}
ARGUMENTS["ScoreRequest"] = ["prompt"]
# A TypedDict of these says which members each of them must have; the others are keyword arguments.
MEMBERS = {"Correction", "MessageIn", "TokenIn"}
KEPT = {"additionalProperties", "anyOf", "description", "enum", "format", "items", "properties"}
KEPT |= {"required", "type"}
NULL = {"type": "null"}


def python_name(name: str) -> str:
    """Return the name in Python of a schema of the contract."""
    return RENAMED.get(name, name.removesuffix("Out"))


def reached(schemas: dict[str, Any], roots: list[str]) -> list[str]:
    """Return the names of these schemas and of those that they are made of, in order."""
    names, left = set(), [*roots]
    while left:
        names.add(name := left.pop())
        found = re.findall(f'"{PREFIX}(\\w+)"', json.dumps(schemas[name]))
        left += [one for one in found if one not in names]
    return sorted(names)


def bare(schema: Any) -> Any:
    """Return the type that a schema tells, without names, bounds and conditions: the service checks those."""
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        name = python_name(schema["$ref"].removeprefix(PREFIX))
        return {
            "$ref": PREFIX + name,
            **({"description": schema["description"]} if "description" in schema else {}),
        }
    found = {name: schema[name] for name in KEPT if name in schema}
    if "const" in schema:
        found["enum"] = [schema["const"]]
    if "properties" in found:
        found.pop("anyOf", None)
        found.pop("additionalProperties", None)
        found["properties"] = {name: bare(one) for name, one in found["properties"].items()}
    if "anyOf" in found:
        found["anyOf"] = [bare(one) for one in found["anyOf"]]
    return found | {name: bare(found[name]) for name in ("items", "additionalProperties") if name in found}


def either(schema: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return a field that may be of another type, too."""
    inner = {name: value for name, value in schema.items() if name != "description"}
    several = inner.get("anyOf", [inner])
    described = {"description": schema["description"]} if "description" in schema else {}
    return {"anyOf": several if other in several else [*several, other], **described}


def results(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of results, by their names in Python."""
    found = {python_name(name): bare(schemas[name]) for name in reached(schemas, RESULTS)}
    # A kept score has the fields of a score, which says what they are, once it is scored.
    warning = {
        "$ref": f"{PREFIX}ScoreWarning",
        "description": "Of not_scored and failed: why there is no score.",
    }
    withheld = {
        "type": "string",
        "description": "The model's own answer, where a decision to abstain has replaced it.",
    }
    fields = {
        name: {key: value for key, value in one.items() if key != "description"}
        for name, one in found["Score"]["properties"].items()
        if name != "id"
    }
    fields |= {"warning": warning, "withheld": withheld}
    found["KeptScore"]["properties"] |= {name: either(one, NULL) for name, one in fields.items()}
    for schema in found.values():
        # A newer service may have further values.
        schema["properties"] = {
            name: either(one, {"type": "string"}) if "enum" in one else one
            for name, one in schema["properties"].items()
        }
    return found


def requests(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of options, by their names in Python."""
    found = {}
    called = {**schemas}
    for name, arguments in ARGUMENTS.items():
        properties = {key: one for key, one in schemas[name]["properties"].items() if key not in arguments}
        called[name] = schemas[name] | {"properties": properties}
    for name in reached(called, REQUESTS):
        schema = bare(called[name])
        if "return" in schema["properties"]:  # a word of Python
            schema["properties"]["return_"] = schema["properties"].pop("return")
        if name not in MEMBERS:
            # None means left out: a caller may pass on what it was given.
            schema["properties"] = {key: either(one, NULL) for key, one in schema["properties"].items()}
            schema.pop("required", None)
        found[python_name(name)] = schema
    return dict(sorted(found.items()))


def write(path: Path, schemas: dict[str, Any], options: list[str]) -> None:
    """Write the module with the models of these schemas."""
    document = {"openapi": "3.1.0", "info": {"title": "", "version": ""}, "paths": {}}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "openapi.json"
        source.write_text(json.dumps(document | {"components": {"schemas": schemas}}))
        files = ["--input", str(source), "--output", str(path), "--custom-file-header", HEADER]
        run("datamodel_code_generator", *files, *STYLE, *options)


def main(folder: Path) -> None:
    """Write both modules into a folder."""
    schemas = json.loads(CONTRACT.read_text())["components"]["schemas"]
    models, options = folder / "types.py", folder / "_requests.py"
    write(models, results(schemas), [*RESULT, "--strict-nullable"])
    # Results are frozen, and so are the lists in them.
    models.write_text(re.sub(r"\blist\[([^\[\]]+)\]", r"tuple[\1, ...]", models.read_text()))
    write(options, requests(schemas), OPTIONS)
    run("ruff", "format", "--quiet", "--config", str(ROOT / "pyproject.toml"), str(models), str(options))


def run(*command: str) -> None:
    """Run a module of Python. Raises CalledProcessError where it fails."""
    subprocess.run([sys.executable, "-m", *command], check=True)  # noqa: S603


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE)
