"""The committed OpenAPI document: made without loading a model, compared by a test."""

import json

from service.app import create_app
from service.settings import Settings


class _Nothing:
    """Stands where a part would: the document needs none."""

    def __getattr__(self, name: str) -> object:
        return None


def contract_text() -> str:
    """Return the OpenAPI document as it is committed in clients/openapi.json."""
    nothing: object = _Nothing()
    app = create_app(Settings(), llm=nothing, embedder=nothing)  # type: ignore[arg-type]
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
