"""The OpenAPI document: FastAPI's part, the bodies of uploads, and all errors."""

import json
from collections.abc import Sequence
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from service.http.problems import MEDIA_TYPE

SECURITY_SCHEMES: dict[str, Any] = {"bearer": {"type": "http", "scheme": "bearer"}}
# Optional: the routes that need a key depend on the keys that exist.
BEARER: dict[str, Any] = {"security": [{}, {"bearer": []}]}
# `store_unavailable`, since the store is asked for unknown keys.
KEY_CODES = ("missing_key", "bad_key", "scope_required", "store_unavailable")
REF = "#/components/schemas/{model}"


class ProblemItem(BaseModel):
    """One fault of the request."""

    model_config = ConfigDict(extra="allow")

    loc: list[str | int] = Field(description="Place of the fault: body, query or path, then the field.")
    msg: str = Field(description="Description of the fault.")


class Problem(BaseModel):
    """An error (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Kind of the error. All errors with the same code have the same type.")
    title: str = Field(description="Name of the HTTP status.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="Explanation in plain English.")
    code: str = Field(description="Stable code of the error, for programs.")
    retryable: bool = Field(description="Whether the same request may succeed later.")
    request_id: str | None = Field(None, description="Id of the request, also in the header `X-Request-ID`.")
    errors: list[ProblemItem] | None = Field(None, description="For invalid requests: the list of faults.")


def recorded(file: str) -> dict[str, dict[str, Any]]:
    """Return real requests and responses by name, recorded from a running service."""
    examples: dict[str, dict[str, Any]] = json.loads(files("service.http").joinpath(file).read_text("utf-8"))
    return examples


def ok(model: type[BaseModel], examples: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI entry of a successful response, with examples."""
    shown = {name: {"value": value} for name, value in examples.items()}
    return {"model": model, "content": {"application/json": {"examples": shown}}}


def json_or_page(model: dict[str, Any], description: str) -> dict[str, Any]:
    """Return the OpenAPI entry of a response as JSON or a page. `model`: the entry of the JSON."""
    content = {**model.get("content", {}), "text/html": {"schema": {"type": "string"}}}
    return {**model, "description": description, "content": content}


class OpenApiApp(FastAPI):
    """An application with `more_models` in its document: those that FastAPI does not find in the routes.

    Set them before the document is made.
    """

    more_models: list[type[BaseModel]]

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document. It is made once."""
        if self.openapi_schema is None:
            self.openapi_schema = document(self, self.more_models)
        return self.openapi_schema


def document(app: FastAPI, models: Sequence[type[BaseModel]]) -> dict[str, Any]:
    """Return the document of an application, with the schemas of `models` among its components."""
    openapi = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    pairs: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "validation") for model in models]
    _, definitions = models_json_schema(pairs, ref_template=REF)
    schemas = openapi.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(definitions["$defs"])
    # FastAPI's form of a validation error is never sent.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for path in openapi["paths"].values():
        for operation in path.values():
            if "security" in operation:
                openapi["components"]["securitySchemes"] = SECURITY_SCHEMES
            # FastAPI gives each route with parameters a 422 in its own form. The service's own 422 stays.
            content = operation["responses"].get("422", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema", {})
            if schema.get("$ref", "").endswith("/HTTPValidationError"):
                del operation["responses"]["422"]
    openapi["components"]["schemas"] = dict(sorted(schemas.items()))
    return openapi


EXAMPLES = recorded("problem_examples.json")  # of problems, by code


def responses(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries for error codes, one per status, each with an example of every code."""
    entries: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        status = EXAMPLES[code]["status"]
        entry = entries.setdefault(
            status, {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"examples": {}}}}
        )
        entry["content"][MEDIA_TYPE]["schema"] = {"$ref": "#/components/schemas/Problem"}
        entry["content"][MEDIA_TYPE]["examples"][code] = {"value": EXAMPLES[code]}
    return entries
