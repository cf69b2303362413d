"""The docstring examples run."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

from service import spectral

NAMES = [module.name for module in pkgutil.iter_modules(spectral.__path__)]


@pytest.mark.parametrize("name", NAMES)
def test_docstring_examples_are_correct(name: str) -> None:
    module = importlib.import_module(f"service.spectral.{name}")
    assert doctest.testmod(module, extraglobs={"np": np}).failed == 0


def test_there_are_examples() -> None:
    modules = [importlib.import_module(f"service.spectral.{name}") for name in NAMES]
    results = [item for module in modules for item in doctest.DocTestFinder().find(module) if item.examples]
    assert len(results) >= 10
