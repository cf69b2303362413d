"""What a reader meets in the house: files of one screen or two, and comments that say why."""

import io
import tokenize
from pathlib import Path

import pytest

SERVICE = Path(__file__).parents[2] / "service"
SOURCES = {path: path.read_text(encoding="utf-8") for path in sorted(SERVICE.rglob("*.py"))}
LONG = 200  # lines; nine files of ten are at most that long
LEAST_COMMENTS = 0.02  # of all lines; the codebases that this one learns from have 2 to 5 %
FOR_TOOLS = ("# noqa", "# type:", "# fmt:", "# pragma:")


def comments_in(source: str) -> int:
    """Return how many comments are for a reader; those for tools alone are not counted."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(t.type == tokenize.COMMENT and not t.string.startswith(FOR_TOOLS) for t in tokens)


def percentile_90(sizes: list[int]) -> int:
    """Return the least size that nine of ten do not exceed."""
    return sorted(sizes)[-(-9 * len(sizes) // 10) - 1]


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("x = 1  # why\n# and why\n", 2),
        ("x = 1  # noqa: E731\n# fmt: off\ny: int = x  # type: ignore[misc]\n", 0),
        ('x = "# no comment"\n"""# nor this"""\n', 0),
    ],
)
def test_comments_are_counted_for_readers(source: str, number: int) -> None:
    assert comments_in(source) == number


def test_a_tenth_of_the_files_may_be_long() -> None:
    assert percentile_90(list(range(1, 11))) == 9
    assert percentile_90([5]) == 5


def test_files_are_short() -> None:
    sizes = [len(source.splitlines()) for source in SOURCES.values()]
    longest = sorted(zip(sizes, map(str, SOURCES), strict=True))[-5:]
    assert percentile_90(sizes) <= LONG, f"the longest: {longest}"


def test_comments_say_why() -> None:
    comments = sum(map(comments_in, SOURCES.values()))
    lines = sum(len(source.splitlines()) for source in SOURCES.values())
    assert comments / lines >= LEAST_COMMENTS, f"{comments} comments in {lines} lines"
