import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.calibration.files import read_file
from service.calibration.rows import DevRow, write_rows
from service.llm.port import Message
from tests.support.devdata import rows_of

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
filled = texts.filter(str.strip)
labels = {
    "references": st.lists(filled, min_size=1, max_size=4).map(tuple),
    "samples": st.lists(texts, min_size=2, max_size=5).map(tuple),
    "answer": st.none() | texts,
    "correct": st.none() | st.booleans(),
}
roles = st.sampled_from(["system", "user", "assistant"])
turns = st.lists(st.builds(Message, roles, texts), max_size=3).map(tuple)
last_turns = st.builds(Message, st.sampled_from(["system", "user"]), texts)
conversations = st.builds(lambda before, last: (*before, last), turns, last_turns)
dev_rows = st.builds(DevRow, line=st.just(0), id=st.just(None), prompt=filled, **labels) | st.builds(
    DevRow, line=st.just(0), id=st.just(None), messages=conversations, **labels
)


def without_line(row):
    return [getattr(row, name) for name in row.__slots__ if name != "line"]


class TestExport:
    @given(st.lists(dev_rows, min_size=1, max_size=5), st.booleans())
    def test_what_is_written_reads_the_same(self, rows, packed):
        data = b"".join(write_rows(rows))
        back = rows_of(gzip.compress(data) if packed else data)
        assert [without_line(row) for row in back] == [without_line(row) for row in rows]

    @given(filled.filter(lambda name: len(name) <= 200))
    def test_ids_are_kept(self, name):
        (row,) = rows_of(b"".join(write_rows([DevRow(1, name, ("a",), "Q?")])))
        assert row.id == name

    def test_rows_of_too_few_answers_are_left_out(self):
        rows = [DevRow(n, None, ("a",), "Q?", samples=("x",) * n) for n in range(4)]
        assert [row.samples for row in rows_of(b"".join(write_rows(rows)))] == [("x", "x"), ("x", "x", "x")]

    def test_half_a_surrogate_pair_can_be_written(self):
        row = DevRow(1, None, ("a",), "Q?", samples=("\ud83d", "x"))
        assert rows_of(b"".join(write_rows([row])))[0].samples == ("?", "x")

    def test_a_single_reference_is_a_string(self):
        (line,) = write_rows([DevRow(line=1, id="a", prompt="Ü?", references=("b",))])
        assert line == '{"id": "a", "prompt": "Ü?", "reference": "b"}\n'.encode()

    @pytest.mark.shared
    @pytest.mark.parametrize("name", ["triviaqa_test_smollm2_m20.jsonl", "triviaqa_dev_smollm2_m40.jsonl"])
    def test_recorded_data_reads_and_writes_the_same(self, shared_data, name):
        with (shared_data / name).open("rb") as file:
            rows = list(read_file(file).rows())
        assert len(rows) in (300, 400)
        assert rows_of(b"".join(write_rows(rows))) == rows
