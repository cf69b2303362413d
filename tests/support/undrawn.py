"""Pages without their drawings, which take nearly all of a page's time and have tests of their own."""

from html import escape

import pytest

from service.report import plots


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the pictures empty but for their words. What a fixture of a wider scope renders is drawn."""

    def words(plot: plots.Plot, paint: object) -> str:
        name = plot.name
        return (
            f'<svg aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{escape(plot.title)}'
            f'</title><desc id="{name}-desc">{escape(plot.description)}</desc></svg>'
        )

    monkeypatch.setattr(plots, "draw", words)
