"""Pages without their plots, which take most of a page's time and have their own tests."""

from html import escape

import pytest

from service.report import plots


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the plots by their texts. Fixtures of a wider scope still draw."""

    def words(plot: plots.Plot, paint: object) -> str:
        name = plot.name
        return (
            f'<svg aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{escape(plot.title)}'
            f'</title><desc id="{name}-desc">{escape(plot.description)}</desc></svg>'
        )

    monkeypatch.setattr(plots, "draw", words)
