"""Unknown fields of JSON bodies, and the fields that were probably meant."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel

MAX_NAME_CHARS = 40  # of an unknown field that is compared


def describe_unknown(model: type[BaseModel], loc: Sequence[int | str]) -> str:
    """Return the message for an unknown field of a body, with the field of a similar name.

    The fields of objects in the body are compared, too: `temperature` may mean `sampling.temperature`.

    model: of the body. loc: the place of the unknown field in the body, as pydantic has it.
    """
    *outer, name = loc
    for part in outer:
        annotation = _annotations(model).get(str(part))
        model = next(_models(annotation, in_lists=True), model)
    annotations = _annotations(model)
    similar = {
        inner: f"{field}.{inner}"
        for field, annotation in annotations.items()
        for below in _models(annotation, in_lists=False)
        for inner in _annotations(below)
    } | {field: field for field in annotations}
    near = get_close_matches(str(name).strip().lower()[:MAX_NAME_CHARS], similar, n=1)
    if near:
        return f"is not a field; did you mean `{similar[near[0]]}`?"
    return f"is not a field; known are {', '.join(annotations)}"


def _annotations(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _models(annotation: Any, *, in_lists: bool) -> Iterator[type[BaseModel]]:
    """Yield the models that a type holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    if in_lists or get_origin(annotation) is not list:
        for part in get_args(annotation):
            yield from _models(part, in_lists=in_lists)
