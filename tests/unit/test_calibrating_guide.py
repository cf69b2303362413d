"""docs/calibrating.md matches the code: complete tables, accepted files."""

import inspect
import io
import re
from pathlib import Path

import numpy as np

from service.calibration.files import UploadLimits, read_file
from service.calibration.rows import ROW_FIELDS, DevRow
from service.report.words import about_data, about_fit, about_improvement, about_verdicts, few_of_a_kind

GUIDE = (Path(__file__).parents[2] / "docs" / "calibrating.md").read_text("utf-8")


def table(heading: str) -> set[str]:
    """Return the code names in the first column of the table with this header."""
    _, _, rest = GUIDE.partition(f"\n{heading}")
    assert rest, heading
    lines = rest.partition("\n\n")[0].splitlines()[2:]
    return {name for line in lines for name in re.findall(r"`([^`]+)`", line.split("|")[1])}


def rows(kind: str) -> list[DevRow]:
    match_ = re.search(rf"```{kind}\n(.*?)```", GUIDE, re.DOTALL)
    assert match_
    return list(read_file(io.BytesIO(match_[1].encode()), UploadLimits(min_rows=1)).rows())


def test_both_files_are_accepted_and_mean_the_same() -> None:
    assert len(rows("jsonl")) == 2
    strip = [(row.id, row.prompt, row.references) for row in rows("jsonl")]
    assert strip == [(row.id, row.prompt, row.references) for row in rows("csv")]


def test_every_field_of_a_row_is_documented() -> None:
    assert table("| field |") == {*ROW_FIELDS}


def test_every_warning_is_documented() -> None:
    source = "".join(
        inspect.getsource(about) for about in (about_data, about_verdicts, about_fit, about_improvement)
    )
    few = {warning["code"] for warning in few_of_a_kind(np.array([True, True, False]))}
    assert table("| code |") == set(re.findall(r'caution\(\s*"(\w+)"', source)) | few
