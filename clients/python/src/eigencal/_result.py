"""What every result has in common."""

from pydantic import BaseModel, ConfigDict


class Result(BaseModel):
    """A result: typed, frozen, and open to fields of a newer service, which it keeps (`model_extra`)."""

    # Texts are not kept for later ones that are equal: answers hardly are, and the cache would only grow.
    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=(), cache_strings="keys")
