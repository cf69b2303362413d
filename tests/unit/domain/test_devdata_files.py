import gzip

import pytest

from service.calibration.files import UploadLimits
from service.errors import BodyTooLarge
from tests.support.devdata import good, jsonl, refused, rows_of


class TestFiles:
    # Without the time in them: tests have the same names in every process that runs some of them.
    @pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
    def test_empty(self, data):
        assert "the file is empty" in refused(data).detail

    @pytest.mark.parametrize(
        ("data", "found"),
        [
            (bytes(range(256)) * 20, "binary data"),
            (jsonl(good(40)).decode().encode("utf-16"), "UTF-16"),
            (jsonl(good(40)).decode().encode("utf-16-le"), "binary data"),
            (jsonl(good(40)).decode().encode("utf-32"), "UTF-32"),
            (gzip.compress(gzip.compress(jsonl(good(40)))), "binary data"),
            (gzip.compress(b"PK\x03\x04....", mtime=0), "ZIP archive"),
            (b"PK\x03\x04....", "ZIP archive"),
            (b"PAR1....", "Parquet"),
        ],
    )
    def test_what_is_no_text_is_named(self, data, found):
        error = refused(data)
        assert found in error.detail
        assert error.extra["errors"][0]["loc"] == ["file"]

    def test_gzip(self):
        assert len(rows_of(gzip.compress(jsonl(good(40))))) == 40
        assert len(rows_of(gzip.compress(jsonl(good(2))) + gzip.compress(jsonl(good(2, 2))))) == 4
        assert len(rows_of(gzip.compress(b"prompt,reference\nQ?,a\n"))) == 1

    def test_gzip_cut_short_or_damaged(self):
        packed = gzip.compress(jsonl(good(400)))
        assert "cut" in refused(packed[:-20]).detail
        assert "damaged" in refused(packed[:-6] + b"\x00" * 6).detail
        assert "damaged" in refused(packed[:20] + b"\xff" * 20 + packed[40:]).detail
        assert "cut" in refused(b"\x1f\x8b").detail

    def test_too_many_bytes_as_they_came_or_unpacked(self):
        limits = UploadLimits(max_bytes=1000, min_rows=1)
        with pytest.raises(BodyTooLarge) as caught:
            rows_of(jsonl(good(100)), limits)
        assert caught.value.extra == {"limit_bytes": 1000}
        with pytest.raises(BodyTooLarge):
            rows_of(gzip.compress(b"{" + b" " * 1001 + b"}"), limits)

    def test_too_many_rows(self):
        with pytest.raises(BodyTooLarge) as caught:
            rows_of(jsonl(good(11)), UploadLimits(max_rows=10))
        assert caught.value.extra == {"limit_rows": 10}

    @pytest.mark.parametrize("pack", [bytes, gzip.compress])
    @pytest.mark.parametrize(
        "data",
        [
            jsonl(good(1)) + b"\n" * 2_000_000,
            b"prompt,reference\n" + b"\r\n" * 1_000_000,
            b'prompt,reference\n"' + b"\n" * 600_000 + b'",a\n',
        ],
        ids=["empty lines", "empty lines of a CSV", "a field of many lines"],
    )
    def test_too_many_lines_whatever_they_hold(self, data, pack):
        with pytest.raises(BodyTooLarge) as caught:
            rows_of(pack(data))
        assert caught.value.extra == {"limit_lines": 500_000}

    def test_lines_up_to_the_bound_are_read(self):
        lines = UploadLimits(max_lines=30, min_rows=1)
        data = jsonl(good(31))
        assert data.count(b"\n") == 31
        assert len(rows_of(jsonl(good(30)), lines)) == 30
        with pytest.raises(BodyTooLarge):
            rows_of(data, lines)

    def test_a_row_may_be_as_long_as_the_limit_its_line_end_included(self):
        row = jsonl(good(1))
        assert len(rows_of(row, UploadLimits(max_row_bytes=len(row), min_rows=1))) == 1
        assert refused(row, UploadLimits(max_row_bytes=len(row) - 1, min_rows=1)).extra["total_bad"] == 1

    def test_a_row_over_the_limit_is_told_by_its_line_and_the_others_are_read(self):
        rows = [*good(3), {"prompt": "x" * 2_000_000, "reference": "a"}, {"prompt": "Q?"}]
        error = refused(jsonl(rows))
        found = [(e["line"], e["reason"]) for e in error.extra["errors"]]
        assert found == [(4, "is longer than 1048576 bytes"), (5, "is missing")]
