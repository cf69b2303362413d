"""The reference has every operation, field, error and example of the contract."""

import json
from html import unescape
from typing import Any

import pytest

from tests.support.built_site import ROOT, Site
from tools.site.contract_pages import ContractPages, problems, tag_of
from tools.site.schema_words import cell, fields

pytestmark = pytest.mark.site
CONTRACT: dict[str, Any] = json.loads((ROOT / "clients" / "openapi.json").read_text("utf-8"))
OPERATIONS = [
    (path, method, operation)
    for path, methods in CONTRACT["paths"].items()
    for method, operation in methods.items()
]
SENT = ContractPages(CONTRACT).sent()
SCHEMAS = CONTRACT["components"]["schemas"]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return ContractPages(CONTRACT).pages()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: f"{one[1]} {one[0]}")
def test_every_operation_is_told(operation: tuple[str, str, Any], pages: dict[str, str], site: Site) -> None:
    path, method, told = operation
    text = section(pages[tag_of(told)], f"`{method.upper()} {path}`")
    assert told["summary"] in text
    assert told.get("description", "") in text
    for parameter in told.get("parameters", ()):
        assert f"| `{parameter['name']}` | {parameter['in']} |" in text
        assert cell(parameter["description"]) in text
    for status, code, _ in problems(told):
        assert f"{status} [`{code}`](errors.md#{code})" in text
    for status in told["responses"]:
        assert status in text
    shown = (site.folder / "api" / f"{tag_of(told)}.html").read_text("utf-8")
    assert f"{method.upper()} {path}" in unescape(shown)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_field_of_every_shape_is_told(name: str, pages: dict[str, str]) -> None:
    (home,) = [text for text in pages.values() if f"\n## {name}\n" in text]
    text = section(home, name)
    assert SCHEMAS[name].get("description", "") in text
    for path, field, required in fields(SCHEMAS[name]):
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{path}` |")]
        assert cell(field.get("description", "")) in row
        assert ("**Required.**" in row) == (required and name in SENT)


def test_only_what_callers_send_is_said_to_be_required() -> None:
    assert {"ScoreRequest", "MessageIn", "ExampleIn"} <= SENT
    assert not {"Score", "Job", "Problem"} & SENT


def test_every_error_has_its_example(pages: dict[str, str]) -> None:
    found = {code: example for *_, operation in OPERATIONS for _, code, example in problems(operation)}
    assert found
    for code in found:
        text = section(pages["errors"], f"`{code}` {{ #{code} }}")
        assert any(
            example["detail"] in text
            for *_, operation in OPERATIONS
            for _, other, example in problems(operation)
            if other == code
        )


def test_no_row_is_lost_on_the_way_to_the_site(pages: dict[str, str], site: Site) -> None:
    for name, text in pages.items():
        rows = sum(line.startswith("| ") and not line.startswith("| ---") for line in text.splitlines())
        assert site.pages[f"api/{name}.html"].tags.count("tr") == rows, name


def test_examples_are_shown_whole(pages: dict[str, str]) -> None:
    body = CONTRACT["paths"]["/score"]["post"]["requestBody"]["content"]["application/json"]
    text = section(pages["score"], "`POST /score`")
    for name, example in body["examples"].items():
        lines = json.dumps(example["value"], indent=2, ensure_ascii=False).splitlines()
        assert f'??? example "Request: {name}"' in text
        assert "\n".join(f"    {line}" for line in lines) in text


def section(page: str, heading: str) -> str:
    """Return the text below a heading of the second level."""
    return page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
