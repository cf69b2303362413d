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

from service.api.auth import SECURITY_SCHEMES
from service.api.errors import MEDIA_TYPE, STATUS, problem_body

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
    examples: dict[str, dict[str, Any]] = json.loads(files("service.api").joinpath(file).read_text("utf-8"))
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


def responses(*codes: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries for error codes, one per status, each with an example of every code."""
    entries: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        status = STATUS[code]
        entry = entries.setdefault(
            status, {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"examples": {}}}}
        )
        entry["content"][MEDIA_TYPE]["schema"] = {"$ref": "#/components/schemas/Problem"}
        entry["content"][MEDIA_TYPE]["examples"][code] = {"value": EXAMPLES[code]}
    return entries


def _example(code: str, detail: str, *, retryable: bool = False, **extra: object) -> dict[str, Any]:
    return problem_body(code, detail, retryable=retryable, request_id="req_01K9ZD3QW4", **extra)


EXAMPLES: dict[str, dict[str, Any]] = {
    example["code"]: example
    for example in (
        _example(
            "invalid_request",
            "num_samples: Input should be greater than or equal to 2",
            errors=[
                {"loc": ["body", "num_samples"], "msg": "Input should be greater than or equal to 2"},
            ],
        ),
        _example("bad_request", "There was an error parsing the body"),
        _example("too_few_samples", "At least two samples are needed."),
        _example(
            "invalid_dev_data",
            "2 of 60 rows cannot be used.",
            errors=[
                {"loc": ["line", 7], "line": 7, "field": "reference", "reason": "missing", "msg": "missing"},
            ],
            total_bad=2,
        ),
        _example("missing_key", "This route needs a bearer key."),
        _example("bad_key", "The bearer key is not valid."),
        _example("scope_required", "Without an admin key, this route accepts only requests on loopback."),
        _example("not_found", "No calibration has the id given in `calibration`."),
        _example("model_not_found", "The LLM server does not serve this model."),
        _example("method_not_allowed", "Method Not Allowed"),
        _example("conflict", "This Idempotency-Key was used for another file or other options."),
        _example("body_too_large", "The body is larger than 8388608 bytes."),
        _example("unsupported_media_type", "Send JSON or multipart/form-data."),
        _example("internal", "Something went wrong in the service.", retryable=True),
        _example(
            "damaged_row",
            "Row cal_01K9ZD3QW4 of the table calibrations is damaged. Restore it from a backup.",
        ),
        _example(
            "llm_error",
            "The LLM server answered with status 400.",
            llm_status=400,
            llm_message="max_tokens is too large",
        ),
        _example("llm_bad_response", "The LLM server's answer is not a completion.", retryable=True),
        _example(
            "no_usable_answers",
            "20 of 20 drawn answers have no text (only reasoning, a tool call, or nothing). A score needs "
            "two answers. The limit is 256 tokens per answer. Raise it for reasoning models "
            "(EIGENCAL_MAX_TOKENS or `sampling.max_tokens`).",
        ),
        _example("overloaded", "Too many requests are waiting.", retryable=True),
        _example("llm_unavailable", "The LLM server cannot be reached.", retryable=True),
        _example("embedder_unavailable", "The embedder cannot embed now.", retryable=True),
        _example("store_unavailable", "The store cannot be reached.", retryable=True),
        _example(
            "no_probability",
            "The probability that an answer is right is unknown: no calibration is applied.",
        ),
        _example(
            "deadline_exceeded",
            "The score was not ready before the deadline.",
            retryable=True,
        ),
    )
}
