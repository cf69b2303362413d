"""Base class of all results."""

from pydantic import BaseModel, ConfigDict


class Result(BaseModel):
    """A typed, frozen result. Fields of a newer service are kept in `model_extra`."""

    # String values are not cached: answers rarely repeat.
    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=(), cache_strings="keys")
