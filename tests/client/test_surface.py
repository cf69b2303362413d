"""The public surface of the package: exact names, equal clients, and no exposed key."""

import inspect
from typing import Any

import pytest

import eigencal
from eigencal import AsyncClient, Client


def test_all_exported_names_exist() -> None:
    assert [name for name in eigencal.__all__ if not hasattr(eigencal, name)] == []


def public(kind: type[Any]) -> dict[str, Any]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def test_both_have_the_same_names_parameters_and_defaults() -> None:
    assert set(public(AsyncClient)) - {"aclose"} == set(public(Client)) - {"close"}
    for name, method in public(Client).items():
        if not inspect.isfunction(method) or name == "close":
            continue
        other = public(AsyncClient)[name]
        ours, theirs = (
            [
                (parameter.name, parameter.kind, parameter.default)
                for parameter in inspect.signature(result).parameters.values()
            ]
            for result in (method, other)
        )
        assert ours == theirs, name
        yields = inspect.isgeneratorfunction(method)
        assert inspect.isasyncgenfunction(other) if yields else inspect.iscoroutinefunction(other), name


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_key_is_never_shown(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EIGENCAL_KEY", "secret-of-environment")
    for client in (kind("http://127.0.0.1:1", key="secret-of-mine"), kind("http://127.0.0.1:1")):
        assert "secret" not in repr(client) + repr(vars(client)) + str(client)
    made = eigencal.NewKey.model_validate(
        {"id": "k", "name": "n", "scope": "score", "prefix": "ek", "created_at": "2026-01-01T00:00:00Z",
         "expires_at": None, "revoked_at": None, "key": "secret", "state": "valid", "warnings": []}
    )  # fmt: skip
    assert made.key == "secret" and "secret" not in repr(made) + str(made)


@pytest.mark.parametrize(
    ("url", "key"),
    [("127.0.0.1:8000", None), ("ftp://host", None), ("http://", None), (None, "a b"), (None, "é")],
)
def test_invalid_setup_is_refused(url: str | None, key: str | None) -> None:
    with pytest.raises(eigencal.InvalidSetupError):
        Client(url, key=key)


def test_url_and_key_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EIGENCAL_URL", raising=False)
    assert Client().url == "http://127.0.0.1:8000"
    monkeypatch.setenv("EIGENCAL_URL", "https://eigencal.example/base/")
    assert Client().url == "https://eigencal.example/base"
