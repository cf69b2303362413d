"""The hash of an upload, by which a repeated one is known."""

import asyncio
import hashlib
import json
from dataclasses import asdict, replace

from service.calibration.calibration import CalibrateOptions
from service.calibration.rows import DevRow
from service.jobs.intake import digest_of

OPTIONS = CalibrateOptions()
ROW = DevRow(1, "a", ("b",), prompt="Q?", samples=("x", "y"))


def digest(row: DevRow) -> str:
    return asyncio.run(digest_of([row], OPTIONS))


def test_a_row_without_log_probabilities_hashes_as_before_there_were_any() -> None:
    content = asdict(ROW)
    del content["logprobs"], content["verdict"]
    parts = [json.dumps(part, sort_keys=True) for part in (asdict(OPTIONS), content)]
    assert digest(ROW) == hashlib.sha256(f"{parts[0]}{parts[1]}\n".encode()).hexdigest()


def test_log_probabilities_make_it_another_upload() -> None:
    found = {digest(replace(ROW, logprobs=values)) for values in (None, (-1.0, -2.0), (-2.0, -1.0))}
    assert len(found) == 3
