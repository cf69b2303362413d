"""What the tests of an evaluation share."""

import pytest

from service.evaluation import page


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the pictures empty: they take twice as long as all the rest, and have tests of their own.

    A run in a fixture of a wider scope is drawn as ever.
    """
    for table in (page.FIGURES, page.PANELS):
        for name in table:
            monkeypatch.setitem(table, name, lambda *_: "<svg/>")
