"""The OpenAPI document: what FastAPI derives, and the bodies that the routes read themselves."""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from service.api.http.auth import SECURITY_SCHEMES

REF = "#/components/schemas/{model}"


def recorded(file: str) -> dict[str, dict[str, Any]]:
    """Return real requests and responses by name, as recorded from a running service."""
    examples: dict[str, dict[str, Any]] = json.loads(
        files("service.api.routes").joinpath(file).read_text("utf-8")
    )
    return examples


def ok(model: type[BaseModel], examples: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI entry of a successful response, with examples."""
    shown = {name: {"value": value} for name, value in examples.items()}
    return {"model": model, "content": {"application/json": {"examples": shown}}}


def json_body(model: str, examples: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the OpenAPI entry of a JSON body that the route reads by `read_json`."""
    content: dict[str, Any] = {"schema": {"$ref": REF.format(model=model)}}
    if examples:
        content["examples"] = {name: {"value": value} for name, value in examples.items()}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


class Described(FastAPI):
    """An application whose document holds `body_models`, too: the bodies that routes read by `read_json`."""

    body_models: Sequence[type[BaseModel]] = ()

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document; made once."""
        if self.openapi_schema is None:
            self.openapi_schema = document(self, self.body_models)
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
    # FastAPI's own form of a validation error is never sent.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for path in openapi["paths"].values():
        for operation in path.values():
            if "security" in operation:
                openapi["components"]["securitySchemes"] = SECURITY_SCHEMES
            if "422" in operation["responses"] and _is_fastapi_error(operation["responses"]["422"]):
                del operation["responses"]["422"]
    openapi["components"]["schemas"] = dict(sorted(schemas.items()))
    return openapi


def _is_fastapi_error(response: dict[str, Any]) -> bool:
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    return bool(schema.get("$ref", "").endswith("/HTTPValidationError"))
