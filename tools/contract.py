"""The committed OpenAPI document, generated without loading a model. A test compares it with the service.

python -m tools.contract    writes clients/openapi.json and the hash of its version (make openapi)
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
    """The contract changed without a new version."""


class _Stub:
    """Replaces a component; each attribute is the stub itself. The document needs no component."""

    def __getattr__(self, name: str) -> object:
        return self


def contract_text() -> str:
    """Return the OpenAPI document in the format of clients/openapi.json."""
    stub: Any = _Stub()
    app = create_app(Settings(get_to_know=False), embedder=stub, store=stub)
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def contract_hash(text: str) -> str:
    """Return the hash of a document without its version."""
    document = json.loads(text)
    del document["info"]["version"]
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def commit(folder: Path) -> None:
    """Write the document, and its hash under its version in openapi.versions.json.

    Raises UnbumpedError if the version has another hash: a changed contract needs a new version.
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
