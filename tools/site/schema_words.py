"""Description of a contract's schema in words: type, bounds and fields."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
Link = Callable[[str], str]  # name of a schema -> Markdown link
# Keyword of JSON Schema -> description of its value.
BOUNDS = {
    "minimum": "from {}",
    "exclusiveMinimum": "above {}",
    "maximum": "to {}",
    "exclusiveMaximum": "below {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matching `{}`",
    "format": "{}",
}
REF = "#/components/schemas/"


def type_words(schema: Schema, link: Link) -> str:
    """Return the type of a schema's values as Markdown for a table cell."""
    if "$ref" in schema:
        return link(schema["$ref"].removeprefix(REF))
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return " or ".join(dict.fromkeys(type_words(option, link) for option in schema[keyword]))
    if "const" in schema or "enum" in schema:
        return " or ".join(code(value) for value in schema.get("enum", [schema.get("const")]))
    return ", ".join([_plain(schema, link), *_bounds(schema)])


def _plain(schema: Schema, link: Link) -> str:
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {type_words(schema.get('items', {}), link)}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {type_words(schema['additionalProperties'], link)}"
    return str(kind)


def _bounds(schema: Schema) -> Iterator[str]:
    for keyword, words in BOUNDS.items():
        if keyword in schema:
            yield words.format(cell(str(schema[keyword])))


def fields(schema: Schema, prefix: str = "") -> Iterator[tuple[str, Schema, bool]]:
    """Yield path, schema and whether required, for each field, including fields of inline objects."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        yield f"{prefix}{name}", field, name in required
        yield from fields(field, f"{prefix}{name}.")
        yield from fields(field.get("items", {}), f"{prefix}{name}[].")


def field_table(schema: Schema, link: Link, *, is_answer: bool = False) -> str:
    """Return the fields of an object as a table. Fields of responses are not marked as required."""
    head = "| field | type | meaning |\n| --- | --- | --- |\n"
    rows = [
        f"| `{path}` | {type_words(field, link)} | {_meaning(field, required=required and not is_answer)} |\n"
        for path, field, required in fields(schema)
    ]
    return head + "".join(rows) if rows else ""


def _meaning(field: Schema, *, required: bool) -> str:
    parts = ["**Required.**"] if required else []
    parts += [cell(field["description"])] if field.get("description") else []
    parts += [f"Default: {code(field['default'])}."] if "default" in field else []
    return " ".join(parts)


def code(value: object) -> str:
    """Return a value as JSON in a code span for a table cell."""
    return f"`{cell(json.dumps(value, ensure_ascii=False))}`"


def cell(text: str) -> str:
    """Return a text for a table cell: on one line, with escaped bars."""
    return " ".join(text.split()).replace("|", "\\|")
