"""Generate the API reference as Markdown from the contract: a page for each tag, and one for errors.

A test checks that every field and operation of the contract is on the pages.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tools.site.schema_words import REF, cell, field_table, type_words

# Tag -> title of its page, in order. A tag without a title here is placed last, under its own name.
TITLES = {
    "score": "Scores",
    "jobs": "Calibrating, and jobs",
    "calibrations": "Calibrations",
    "drop-in": "The drop-in",
    "gateways": "Gateways",
    "keys": "Keys",
    "health": "Health and metrics",
}
SHARED, ERRORS = "shapes", "errors"
PROBLEM = "application/problem+json"


class ContractPages:
    """Generates the pages of one OpenAPI document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._schemas: Mapping[str, Any] = document["components"]["schemas"]
        self._operations = [
            (path, method, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]
        self._home, self._sent = self._homes(), self.sent()

    def pages(self) -> dict[str, str]:
        """Return the Markdown of each page by its name, without folder and suffix."""
        used = dict.fromkeys(tag_of(operation) for _, _, operation in self._operations)
        tags = [tag for tag in TITLES if tag in used] + [tag for tag in used if tag not in TITLES]
        pages = {tag: self._tag_page(tag) for tag in tags}
        pages[SHARED] = self._shared_page()
        pages[ERRORS] = self._errors_page()
        return pages

    def sent(self) -> set[str]:
        """Return the names of the schemas that callers send; all others are parts of responses."""
        bodies = [operation.get("requestBody") for _, _, operation in self._operations]
        return set(self._reachable(bodies))

    def _homes(self) -> dict[str, str]:
        """Return the page of each schema: its tag's page if only one tag needs it, else the shared page."""
        users: dict[str, set[str]] = {name: set() for name in self._schemas}
        for _, _, operation in self._operations:
            for name in self._reachable(operation):
                users[name].add(tag_of(operation))
        return {name: tags.pop() if len(tags) == 1 else SHARED for name, tags in users.items()}

    def _reachable(self, node: object) -> dict[str, None]:
        """Return the names of all schemas that a part of the document needs, in order of appearance."""
        names: dict[str, None] = {}
        waiting = list(named_schemas(node))
        while waiting:
            if (name := waiting.pop(0)) not in names:
                names[name] = None
                waiting += named_schemas(self._schemas[name])
        return names

    def _link(self, name: str) -> str:
        return f"[{name}]({self._home[name]}.md#{name.lower()})"

    def _tag_page(self, tag: str) -> str:
        parts = [f"# {TITLES.get(tag, tag.capitalize())}\n"]
        parts += [
            self._operation(*operation) for operation in self._operations if tag_of(operation[2]) == tag
        ]
        return "\n".join([*parts, *self._shapes(tag)])

    def _operation(self, path: str, method: str, operation: Mapping[str, Any]) -> str:
        parts = [f"## `{method.upper()} {path}`\n", f"**{operation['summary']}.**\n"]
        parts += [operation.get("description", "") + "\n", *self._parameters(operation)]
        parts += [*self._request(operation), *self._answers(operation), *self._errors_of(operation)]
        return "\n".join(parts)

    def _parameters(self, operation: Mapping[str, Any]) -> Iterator[str]:
        if parameters := operation.get("parameters"):
            yield "| parameter | in | type | meaning |\n| --- | --- | --- | --- |"
            for field in parameters:
                meaning = ("**Required.** " if field.get("required") else "") + cell(
                    field.get("description", "")
                )
                yield (
                    f"| `{field['name']}` | {field['in']} "
                    f"| {type_words(field['schema'], self._link)} | {meaning} |"
                )
            yield ""

    def _request(self, operation: Mapping[str, Any]) -> Iterator[str]:
        for kind, body in operation.get("requestBody", {}).get("content", {}).items():
            yield from self._content("Request", kind, body)

    def _answers(self, operation: Mapping[str, Any]) -> Iterator[str]:
        for status, answer in operation["responses"].items():
            contents = {k: v for k, v in answer.get("content", {}).items() if k != PROBLEM}
            if contents or status.startswith(("2", "3")):
                yield f"**Answer `{status}`**: {_description(answer['description'])}\n"
                for header, definition in answer.get("headers", {}).items():
                    yield f"- header `{header}`: {definition.get('description', '')}"
                yield ""
            for kind, body in contents.items():
                yield from self._content("Body", kind, body)

    def _content(self, title: str, kind: str, body: Mapping[str, Any]) -> Iterator[str]:
        schema = body.get("schema", {})
        more = f" {schema['description']}" if schema.get("description") else ""
        yield f"{title} `{kind}`: {type_words(schema, self._link)}.{more}\n"
        yield field_table(schema, self._link, is_answer=title == "Body")
        examples = {name: example["value"] for name, example in body.get("examples", {}).items()}
        for name, value in (examples or ({"example": body["example"]} if "example" in body else {})).items():
            yield _example(f"{title}: {name}", value)

    def _errors_of(self, operation: Mapping[str, Any]) -> Iterator[str]:
        errors = [(status, code) for status, code, _ in problems(operation)]
        if errors:
            links = ", ".join(f"{status} [`{code}`]({ERRORS}.md#{code})" for status, code in errors)
            yield f"**Errors**: {links}.\n"

    def _shapes(self, home: str) -> Iterator[str]:
        for name in self._reachable([operation for _, _, operation in self._operations]):
            if self._home[name] == home:
                schema = self._schemas[name]
                yield f"## {name}\n"
                yield schema.get("description", "") + "\n"
                yield field_table(schema, self._link, is_answer=name not in self._sent)

    def _shared_page(self) -> str:
        head = "# Shapes that several pages share\n"
        return "\n".join([head, *self._shapes(SHARED)])

    def _errors_page(self) -> str:
        codes: dict[str, tuple[str, Mapping[str, Any], list[str]]] = {}
        for path, method, operation in self._operations:
            for status, code, example in problems(operation):
                codes.setdefault(code, (status, example, []))[2].append(f"`{method.upper()} {path}`")
        parts = ["# Errors\n", f"Every error has the fields of {self._link('Problem')}. By `code`:\n"]
        for code, (status, example, callers) in sorted(codes.items()):
            again = "may succeed later" if example["retryable"] else "fails again"
            parts += [
                f"## `{code}` {{ #{code} }}\n",
                f"Status {status}; the same request {again}. For example:",
            ]
            parts += [f"“{example['detail']}”\n", f"From {', '.join(callers)}.\n"]
        return "\n".join(parts)


def tag_of(operation: Mapping[str, Any]) -> str:
    """Return the tag of the page that describes an operation."""
    tag: str = operation["tags"][0]
    return tag


def named_schemas(node: object) -> Iterator[str]:
    """Yield the names of the schemas that a part of the document refers to."""
    if isinstance(node, Mapping):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix(REF)
        for value in node.values():
            yield from named_schemas(value)
    elif isinstance(node, list):
        for value in node:
            yield from named_schemas(value)


def problems(operation: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield status, code and example of each error of an operation."""
    for status, answer in operation["responses"].items():
        for code, example in answer.get("content", {}).get(PROBLEM, {}).get("examples", {}).items():
            yield status, code, example["value"]


def _description(description: str) -> str:
    return "" if description == "Successful Response" else description


def _example(title: str, value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    lines = [f'??? example "{title}"', "", "    ```json", *(f"    {line}" for line in text.splitlines())]
    return "\n".join([*lines, "    ```", ""])
