"""The committed OpenAPI document: made without loading a model, compared by a test.

python -m tools.contract    writes clients/openapi.json and its version's hash (make openapi)
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from service import __version__
from service.app import create_app
from service.settings import Settings


class UnbumpedError(Exception):
    """The contract changed under a version that was released with another."""


class _Nothing:
    """Stands in for every component, and for whatever is asked of it: the document needs none."""

    def __getattr__(self, name: str) -> object:
        return self


def contract_text() -> str:
    """Return the OpenAPI document as it is committed in clients/openapi.json."""
    nothing: Any = _Nothing()
    app = create_app(Settings(default_calibration=False), llm=nothing, embedder=nothing, store=nothing)
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def contract_hash(text: str) -> str:
    """Return the hash of a document with its version left out."""
    document = json.loads(text)
    del document["info"]["version"]
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def commit(folder: Path) -> None:
    """Write the document and, in openapi.versions.json, its hash under the version.

    Raises UnbumpedError when the version stands there with another hash: a changed contract needs a new one.
    """
    text = contract_text()
    ledger = folder / "openapi.versions.json"
    versions = json.loads(ledger.read_text()) if ledger.exists() else {}
    if versions.setdefault(__version__, contract_hash(text)) != contract_hash(text):
        raise UnbumpedError(
            f"The contract changed since {__version__}: raise __version__ in service/__init__.py."
        )
    ledger.write_text(json.dumps(versions, indent=1) + "\n")
    (folder / "openapi.json").write_text(text)


if __name__ == "__main__":
    try:
        commit(Path(__file__).parents[1] / "clients")
    except UnbumpedError as error:
        sys.exit(str(error))
