"""The docstring examples run."""

import doctest
import importlib
import pkgutil

import pytest

import lab


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(lab.__path__)])
def test_docstring_examples_are_correct(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"lab.{name}")).failed == 0
