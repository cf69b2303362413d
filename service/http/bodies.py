"""Bodies of requests: the base of their models, and a limit on the values in a body."""

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from service.errors import InvalidRequest
from service.llm.sse import MAX_VALUES

MAX_FIELDS = 200
BAD_BODY = ("invalid_request", "body_too_large", "unsupported_media_type")


class RequestModel(BaseModel):
    """Base of request bodies: strict types, no unknown fields, no NaN, no null (leave the field out)."""

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, frozen=True, hide_input_in_errors=True
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema without nulls: None means a field that is left out, and is never on the wire."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        for name, field in schema.get("properties", {}).items():
            kinds = [kind for kind in field.pop("anyOf", ()) if kind != {"type": "null"}]
            if field.get("default", "") is None:
                del field["default"]
            more = {"anyOf": kinds} if len(kinds) > 1 else next(iter(kinds), {})
            schema["properties"][name] = {**field, **more}
        schema["additionalProperties"] = False
        return schema

    @model_validator(mode="before")
    @classmethod
    def of_few_fields(cls, value: object) -> object:
        """Refuse an object with far more fields than there are: pydantic would describe each one."""
        if isinstance(value, dict) and len(value) > MAX_FIELDS:
            raise ValueError(f"has more than {MAX_FIELDS} fields")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def as_json_means_it(cls, value: object) -> object:
        """Refuse null (leave the field out instead); convert 14.0 to 14, as in JSON Schema."""
        if value is None:
            raise ValueError("must not be null; leave the field out")
        return int(value) if isinstance(value, float) and value.is_integer() else value


def refuse_heavy(body: bytes) -> None:
    """Raise InvalidRequest for a body that would take too long to parse."""
    if body.count(b",") > MAX_VALUES:
        msg = f"holds more than {MAX_VALUES} values"
        raise InvalidRequest(f"The body {msg}.", [{"loc": ["body"], "msg": msg}])
