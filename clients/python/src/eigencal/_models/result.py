"""What every result has in common."""

from pydantic import BaseModel, ConfigDict


class Result(BaseModel):
    """A result: typed, frozen, and open to fields of a newer service, which it keeps (`model_extra`)."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())
