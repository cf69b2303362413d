"""Dev files in memory, and the result of reading them."""

import io
import json

import pytest

from service.calibration.files import UploadLimits, read_file
from service.errors import InvalidDevData

ONE = UploadLimits(min_rows=1)


def jsonl(rows):
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def good(count, start=0):
    return [{"id": i, "prompt": f"Q{i}?", "reference": "yes"} for i in range(start, start + count)]


def rows_of(data, limits=ONE, **options):
    return list(read_file(io.BytesIO(data), limits, **options).rows())


def refused(data, limits=ONE, **options):
    with pytest.raises(InvalidDevData) as caught:
        read_file(io.BytesIO(data), limits, **options)
    return caught.value
