import gzip
import io
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from service.calibration.files import Recorded, read_evaluation_file
from tests.support.devdata import ONE, good, jsonl

ROOT = Path(__file__).resolve().parents[3]
BOUNDED = """
    import io, json, sys, resource
    import service.calibration.files as devdata
    from service.calibration.files import UploadLimits
    from service.errors import EigencalError
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    file = open(sys.argv[1], "rb")
    try:
        said = sum(1 for _ in devdata.read_file(file, UploadLimits(max_bytes=400 << 20)).rows())
    except EigencalError as error:
        said = error.code
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps([said, grown]))
"""


def said_and_grown_kib(path):
    """Read a file in a process of its own: what came out, and by how many KiB its peak memory grew."""
    command = [sys.executable, "-c", textwrap.dedent(BOUNDED), str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=120)
    return json.loads(done.stdout)


class TestMemory:
    def test_two_hundred_megabytes(self, tmp_path):
        path = tmp_path / "large.jsonl"
        line = json.dumps({"prompt": "x" * 100_000, "reference": "a"}).encode() + b"\n"
        with path.open("wb") as file:
            for _ in range(2_000):
                file.write(line)
        said, grown = said_and_grown_kib(path)
        assert said == 2_000
        assert grown < 16 << 10

    def test_a_gzip_bomb(self, tmp_path):
        path = tmp_path / "bomb.gz"
        with gzip.open(path, "wb", compresslevel=1) as file:
            for _ in range(500):
                file.write(b"{" + b" " * ((1 << 20) - 1))
        said, grown = said_and_grown_kib(path)
        assert path.stat().st_size < 10 << 20
        assert said == "body_too_large"
        assert grown < 16 << 10

    @pytest.mark.parametrize(
        "block",
        [
            b'"Q?,a\n' * 400 + b" " * 700_000,
            b"Q?,a\n" * 400 + b" " * 700_000,
            b'"Q"?,a\n' * 400 + b" " * 700_000,
            b"ab," * 200_000 + b"\n",
        ],
        ids=["quotes left open", "one quote left open", "text after quotes", "fields without end"],
    )
    def test_a_csv_that_is_none(self, tmp_path, block):
        path = tmp_path / "bad.csv"
        with path.open("wb") as file:
            file.write(b'prompt,reference\n"')
            for _ in range(200):
                file.write(block)
        said, grown = said_and_grown_kib(path)
        assert said == "invalid_dev_data"
        assert grown < 32 << 10

    def test_one_line_without_end(self, tmp_path):
        path = tmp_path / "line.jsonl"
        with path.open("wb") as file:
            file.write(b"{")
            file.truncate(1)
            for _ in range(200):
                file.write(b" " * (1 << 20))
        said, grown = said_and_grown_kib(path)
        assert said == "invalid_dev_data"
        assert grown < 16 << 10


class TestRecorded:
    @pytest.mark.parametrize(
        ("sent", "kept"),
        [
            ({"logprob": [0, -1.5]}, Recorded(logprob=(0.0, -1.5))),  # a sure answer has log 1
            ({"logprobs": [0.01, -1.5]}, Recorded(logprob=(0.0, -1.5))),  # rounded
            ({"tokens": [1, 7]}, Recorded(tokens=(1.0, 7.0))),
            ({"tokens": [1, 0]}, Recorded()),
            ({"tokens": [1, True]}, Recorded()),
        ],
        ids=str,
    )
    def test_only_numbers_that_can_be_are_taken(self, sent, kept):
        row = good(1)[0] | {"samples": ["a", "b"]} | sent
        found = read_evaluation_file(io.BytesIO(jsonl([row])), limits=ONE)
        assert found.recorded == {1: kept}
        assert found.supplied
