"""Dev data: rows, files and their formats, sizes, memory, and what is written back."""

import gzip
import io
import json
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.calibration.files import UploadLimits, check_size, read_examples, read_file
from service.calibration.rows import DevRow, write_row
from service.errors import BodyTooLarge, InvalidDevData
from service.llm.port import Message
from tests.support.devdata import ONE, good, jsonl, only_reason, refused, rows_of


class TestRows:
    def test_every_field_is_read(self):
        row = {"id": 7, "prompt": "Q?", "reference": ["a", "b"], "samples": ["a", ""], "answer": "a"}
        more = {"correct": True, "logprob": [-1.0, -2.0], "answer_logprob": -0.5}
        (read,) = rows_of(jsonl([row | more]))
        assert read == DevRow(
            line=1,
            id="7",
            prompt="Q?",
            references=("a", "b"),
            samples=("a", ""),
            logprobs=(-1.0, -2.0),
            answer="a",
            answer_logprob=-0.5,
            correct=True,
        )
        assert list(rows_of(write_row(read))) == [read]

    def test_log_probabilities_have_two_names(self):
        row = {"prompt": "Q?", "reference": "a", "samples": ["a", ""]}
        one, other = (rows_of(jsonl([row | {name: [-1, 0.01]}])) for name in ("logprobs", "logprob"))
        assert one == other
        assert one[0].logprobs == (-1.0, 0.01)

    @pytest.mark.parametrize(
        ("changed", "field", "said"),
        [
            ({"logprobs": [-1.0]}, "logprobs", "must hold 2 to 256 numbers, not 1"),
            ({"logprobs": [-1.0] * 3}, "logprobs", "must hold one number for each of the 2 samples, not 3"),
            ({"logprobs": [-1.0] * 2, "samples": ...}, "logprobs", "goes with samples"),
            ({"logprobs": [-1.0] * 2, "logprob": [-1.0] * 2}, "logprob", "another name of logprobs"),
            ({"logprob": [-1.0, 0.02]}, "logprob", "natural logarithms of probabilities: none is above 0"),
            ({"logprobs": [-1.0, "-1"]}, "logprobs", "must hold numbers, not a string"),
            ({"logprobs": [-1.0, None]}, "logprobs", "must hold numbers, not null"),
            ({"logprobs": [-1.0, False]}, "logprobs", "must hold numbers, not a boolean"),
            ({"logprobs": -1.0}, "logprobs", "must be a list of numbers, not a number"),
            ({"answer_logprob": -1.0}, "answer_logprob", "goes with answer"),
            ({"answer": "a", "answer_logprob": 0.02}, "answer_logprob", "none is above 0"),
            ({"answer": "a", "answer_logprob": [-1.0]}, "answer_logprob", "must be a number, not an array"),
        ],
    )
    def test_log_probabilities_that_do_not_fit_are_explained(self, changed, field, said):
        got_field, reason = only_reason({"samples": ["a", "b"]}, **changed)
        assert got_field == field
        assert said in reason

    def test_log_probabilities_are_finite(self):
        (problem,) = refused(
            b'{"prompt": "Q?", "reference": "a", "samples": ["a", "b"], "logprobs": [-1, -1e999]}'
        ).extra["errors"]
        assert (problem["field"], problem["reason"]) == ("logprobs", "must hold finite numbers")

    def test_messages_stand_for_a_prompt(self):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Q?"}]
        (read,) = rows_of(jsonl([{"messages": messages, "reference": "a"}]))
        assert read.messages == (Message("system", "Be brief."), Message("user", "Q?"))
        assert read.prompt is None

    def test_null_counts_as_absent(self):
        (read,) = rows_of(jsonl([{"prompt": "Q?", "messages": None, "reference": "a", "samples": None}]))
        assert (read.messages, read.samples) == (None, None)

    def test_blank_lines_and_other_line_ends_do_not_matter_but_count(self):
        read = rows_of(
            b"\r\n" + jsonl(good(1)).replace(b"\n", b"\r\n") + b"\n  \n" + jsonl(good(1, 1)).rstrip()
        )
        assert [row.line for row in read] == [2, 5]

    def test_a_byte_order_mark_is_passed_over(self):
        assert len(rows_of(b"\xef\xbb\xbf" + jsonl(good(2)))) == 2
        assert len(rows_of(b"\xef\xbb\xbfprompt,reference\nQ?,a\n")) == 1

    def test_rows_can_be_read_more_than_once(self):
        data = read_file(io.BytesIO(jsonl(good(3))), ONE)
        for _ in range(2):
            assert [row.line for row in data.rows()] == [1, 2, 3]
        assert (data.num_rows, data.num_texts) == (3, 3 * (20 + 1))

    @pytest.mark.parametrize(
        ("changed", "field", "said"),
        [
            ({"prompt": ...}, "prompt", "neither"),
            ({"messages": [{"role": "user", "content": "Q?"}]}, "prompt", "both"),
            ({"prompt": " "}, "prompt", "not be empty"),
            ({"prompt": 3}, "prompt", "not a number"),
            ({"reference": ...}, "reference", "missing"),
            ({"reference": ""}, "reference", "not be empty"),
            ({"reference": []}, "reference", "1 to 64"),
            ({"reference": ["a", ""]}, "reference", "not empty"),
            ({"reference": ["a"] * 65}, "reference", "1 to 64"),
            ({"reference": {"a": 1}}, "reference", "not an object"),
            ({"samples": ["a"]}, "samples", "2 to 256"),
            ({"samples": ["a"] * 257}, "samples", "2 to 256"),
            ({"samples": ["a", 1]}, "samples", "not a number"),
            ({"samples": "a"}, "samples", "list of strings"),
            ({"answer": True}, "answer", "not a boolean"),
            ({"correct": "true"}, "correct", "true or false"),
            ({"id": 1.5}, "id", "whole number"),
            ({"id": False}, "id", "whole number"),
            ({"id": "x" * 201}, "id", "200"),
            ({"samples": ["a", "\ud800"]}, "samples", "surrogate"),
            (
                {"prompt": ..., "messages": [{"role": "bot", "content": ""}]},
                "messages",
                "of role (system, user",
            ),
            ({"prompt": ..., "messages": [{"role": "user"}]}, "messages", "and content"),
            ({"prompt": ..., "messages": []}, "messages", "1 to"),
            (
                {
                    "prompt": ...,
                    "messages": [{"role": "user", "content": "Q?"}, {"role": "assistant", "content": "A"}],
                },
                "messages",
                "must not end with the assistant's turn",
            ),
        ],
    )
    def test_a_field_that_does_not_fit_is_named(self, changed, field, said):
        got_field, reason = only_reason(changed)
        assert got_field == field
        assert said in reason

    def test_an_unknown_field_is_named_with_the_known_ones(self):
        field, reason = only_reason({"refrence": "a"})
        assert field == "refrence"
        assert "known are prompt, messages, claims, reference" in reason

    def test_an_unknown_field_of_half_a_surrogate_can_be_shown(self):
        field, _ = only_reason({"\ud800": 1})
        assert field == "?"

    def test_every_field_that_does_not_fit_is_told_once(self):
        row = {"prompt": "Q?", "refrence": 1, "reference": ["", 1], "id": [], "samples": [1, 2], "correct": 1}
        error = refused(jsonl([row]))
        assert [(e["field"], e["reason"]) for e in error.extra["errors"]][1:] == [
            ("reference", "must hold strings that are not empty"),
            ("id", "must be a string or a whole number, not an array"),
            ("samples", "must hold strings, not a number"),
            ("correct", "must be true or false, not a number"),
        ]
        assert error.extra["errors"][0]["field"] == "refrence"

    @pytest.mark.parametrize("inside", [False, True])
    def test_unknown_fields_without_end_take_no_memory_each(self, inside):
        many = {f"f{n}": n for n in range(50_000)}
        row = {"reference": "a", "messages": [many]} if inside else {"reference": "a", "prompt": "Q?"} | many
        tracemalloc.start()
        try:
            with pytest.raises(InvalidDevData) as caught:
                read_examples([row], ONE)
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()
        assert len(caught.value.extra["errors"]) == (1 if inside else 3)

    def test_a_whole_number_may_be_written_with_a_point(self):
        (row,) = rows_of(b'{"id": 7.0, "prompt": "Q?", "reference": "a"}\n')
        assert row.id == "7"

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            (b"[1, 2]", "not an array"),
            (b'"text"', "not a string"),
            (b"{", "no valid JSON"),
            (b'{"prompt": "Q?", "reference": "a", "logprob": [NaN]}', "NaN"),
            (b'{"prompt": "Q?", "reference": "a", "logprob": [-Infinity]}', "-Infinity"),
            (b'{"prompt": "Q?", "prompt": "R?", "reference": "a"}', "twice"),
            (b'{"prompt": "caf\xe9?", "reference": "a"}', "not UTF-8: byte 0xE9 at position 16"),
            (b'{"id": ' + b"9" * 5000 + b"}", "too many digits"),
            (b'{"samples": ' + b"[" * 200_000 + b"}", "nested too deeply"),
            (b'{"samples": ' + b'{"a":' * 200_000 + b"}", "nested too deeply"),
        ],
    )
    def test_a_line_that_cannot_be_read_is_explained(self, line, said):
        error = refused(jsonl(good(1)) + line + b"\n")
        (problem,) = error.extra["errors"]
        assert (problem["line"], problem["field"]) == (2, None)
        assert said in problem["reason"]


class TestErrors:
    def test_one_bad_row_in_ten_thousand_is_found_and_nothing_given_out(self):
        rows = good(10_000)
        rows[6_665]["reference"] = 3
        error = refused(jsonl(rows))
        assert error.code == "invalid_dev_data"
        assert error.extra["total_bad"] == 1
        assert error.extra["errors"] == [
            {
                "line": 6_666,
                "field": "reference",
                "reason": "must be a string or a list of strings, not a number",
                "loc": ["file", 6_666, "reference"],
                "msg": "must be a string or a list of strings, not a number",
            }
        ]

    def test_the_first_twenty_bad_rows_are_listed_and_all_counted(self):
        error = refused(jsonl({"prompt": "Q?", "answer": 3} for _ in range(50)))
        assert error.extra["total_bad"] == 50
        assert [e["line"] for e in error.extra["errors"]] == [n for n in range(1, 21) for _ in range(2)]
        assert {e["field"] for e in error.extra["errors"]} == {"reference", "answer"}

    def test_an_id_given_twice_names_both_lines(self):
        error = refused(jsonl([*good(5), {"id": "3", "prompt": "Q?", "reference": "a"}]))
        (problem,) = error.extra["errors"]
        assert (problem["line"], problem["field"]) == (6, "id")
        assert "line 4" in problem["reason"]

    def test_no_text_of_a_row_is_told(self):
        error = refused(jsonl([{"prompt": "my secret", "reference": ["secret", ""], "id": "secret" * 50}]))
        assert "secret" not in json.dumps(error.extra) + error.detail

    def test_too_few_rows(self):
        error = refused(jsonl(good(9)), UploadLimits())
        assert "only 9 usable rows; at least 10" in error.detail
        assert len(rows_of(jsonl(good(10)), UploadLimits())) == 10

    def test_examples_of_a_body_are_named_by_their_place(self):
        with pytest.raises(InvalidDevData) as caught:
            read_examples([{"prompt": "Q?", "reference": "a"}, 3], ONE)
        (problem,) = caught.value.extra["errors"]
        assert problem["loc"] == ["body", "examples", 2]
        assert "not a number" in problem["msg"]

    def test_examples_become_rows(self):
        data = read_examples([{"prompt": "Q?", "reference": "a"}], ONE)
        assert list(data.rows()) == [DevRow(line=1, id=None, prompt="Q?", references=("a",))]


class TestCsv:
    def test_quotes_commas_and_newlines_inside_quotes(self):
        text = 'prompt,reference,id\n"Who said ""hi"",\nand\r\nwhen?",she,1\n\n"",x,2\n'
        error = refused(text.encode())
        assert [(e["line"], e["field"]) for e in error.extra["errors"]] == [(6, "prompt")]
        (row,) = rows_of(text.replace('\n"",x,2', "").encode())
        assert row.prompt == 'Who said "hi",\nand\r\nwhen?'
        assert (row.line, row.id, row.references) == (2, "1", ("she",))

    def test_every_column(self):
        text = (
            "id,messages,reference,samples,answer,correct,answer_logprob,logprob,tokens\r\n"
            '7,"[{""role"": ""user"", ""content"": ""Q?""}]","[""a"", ""b""]","[""a"", """"]",a,Yes,-0.5,'
            '"[-1, -2.5]",[]\r\n'
        )
        (row,) = rows_of(text.encode())
        assert row.messages == (Message("user", "Q?"),)
        assert (row.references, row.samples, row.logprobs) == (("a", "b"), ("a", ""), (-1.0, -2.5))
        assert (row.id, row.answer, row.correct, row.answer_logprob) == ("7", "a", True, -0.5)

    @pytest.mark.parametrize(
        ("cell", "correct"),
        [
            ("true", True),
            ("1", True),
            ("yes", True),
            ("FALSE", False),
            ("0", False),
            ("no", False),
            ("", None),
        ],
    )
    def test_correct(self, cell, correct):
        (row,) = rows_of(f"prompt,reference,correct\nQ?,a,{cell}\n".encode())
        assert row.correct is correct

    def test_a_reference_that_only_looks_like_a_list_is_a_string(self):
        (row,) = rows_of(b"prompt,reference\nQ?,[sic] Churchill\n")
        assert row.references == ("[sic] Churchill",)

    @pytest.mark.parametrize(
        ("header", "said"),
        [
            (
                b"question,answer",
                "columns 'question' (did you mean 'prompt'?) in the header; known are",
            ),
            (b"promt,reference", "'promt' (did you mean 'prompt'?)"),
            (b"zzz,reference", "unknown columns 'zzz' in the header"),
            (b"prompt,answer", "must name the columns prompt (or messages) and reference"),
            (b"prompt;reference", "must be separated by commas"),
            (b'"prompt";"reference"', "must be separated by commas"),
            (b"prompt,reference,prompt", "twice"),
            (b'"prompt"x,reference', "header cannot be read"),
            (b'"prompt', "header cannot be read"),
        ],
    )
    def test_wrong_columns(self, header, said):
        assert said in refused(header + b"\nQ?,a\n").detail

    @pytest.mark.parametrize(
        ("record", "field", "said"),
        [
            (b"Q?", None, "has 1 fields, the header has 3"),
            (b"Q?,a,b,c", None, "has 4 fields"),
            (b'"Q"?,a,', None, "no valid CSV: ',' expected after '\"'"),
            (b"Q?,caf\xe9,", None, "not UTF-8"),
            (b'"Q\n\xe9?",a,', None, "not UTF-8"),
            (b"Q?,a,maybe", "correct", "must be one of true, 1"),
            (b",a,1", "prompt", "neither"),
            (b"Q?,a\rQ?,a", None, "no valid CSV: new-line character"),
        ],
    )
    def test_a_bad_record_does_not_spoil_the_next(self, record, field, said):
        error = refused(b"prompt,reference,correct\n" + record + b'\n"Q\n?",a,1\nQ?,,0\n')
        first, second = error.extra["errors"]
        assert (first["line"], first["field"]) == (2, field)
        assert said in first["reason"]
        assert (second["line"], second["field"]) == (5 + record.count(b"\n"), "reference")

    def test_a_quote_inside_a_bare_field_is_text(self):
        (row,) = rows_of(b'prompt,reference\nA 5" disk?,a\n')
        assert row.prompt == 'A 5" disk?'

    def test_a_quote_left_open(self):
        error = refused(b'prompt,reference\nQ?,a\n"Q?,a\nQ?,a\n')
        assert [(e["line"], e["reason"]) for e in error.extra["errors"]] == [
            (3, "is no valid CSV: unexpected end of data")
        ]

    def test_a_quote_left_open_over_the_limit_is_named_by_its_line(self):
        error = refused(b'prompt,reference\n"Q?,a\n' + b"Q?\n" * 1000, UploadLimits(max_row_bytes=100))
        first = error.extra["errors"][0]
        assert first["line"] == 2
        assert "longer than 100 bytes (a quote left open?)" in first["reason"]

    def test_a_row_of_several_lines_is_measured_in_bytes(self):
        row = 'Q?,"ääää\nääääää"\n'.encode()
        data = b"prompt,reference\n" + row
        assert len(rows_of(data, UploadLimits(max_row_bytes=len(row), min_rows=1))) == 1
        assert refused(data, UploadLimits(max_row_bytes=len(row) - 1, min_rows=1)).extra["total_bad"] == 1

    def test_a_long_line_does_not_spoil_the_next(self):
        data = b"prompt,reference\n" + b"x" * 200 + b",a\nQ?,a\nQ?\n"
        assert [e["line"] for e in refused(data, UploadLimits(max_row_bytes=100)).extra["errors"]] == [2, 4]

    def test_many_lines_in_one_field_take_linear_work(self):
        lines = "\n" * 100_000
        (row,) = rows_of(f'prompt,reference\n"Q{lines}?",a\n'.encode())
        assert row.prompt == f"Q{lines}?"

    def test_a_field_may_be_as_long_as_a_row(self):
        (row,) = rows_of(b'prompt,reference\n"' + b"x" * 900_000 + b'",a\n')
        assert row.prompt == "x" * 900_000

    def test_carriage_returns_at_the_end_of_a_line_are_part_of_it(self):
        rows = rows_of(b"prompt,reference\nQ?,a\r\r\nQ?,b\r")
        assert [(row.line, row.references) for row in rows] == [(2, ("a",)), (3, ("b",))]


class TestFiles:
    # Without the time in them: tests have the same names in every process that runs some of them.
    @pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
    def test_empty(self, data):
        assert "the file is empty" in refused(data).detail

    @pytest.mark.parametrize(
        ("data", "found"),
        [
            (bytes(range(256)) * 20, "binary data"),
            (jsonl(good(40)).decode().encode("utf-16"), "binary data"),
            (gzip.compress(gzip.compress(jsonl(good(40)))), "binary data"),
            (b"PK\x03\x04....", "binary data"),
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


class TestSize:
    @pytest.mark.parametrize(
        ("row", "asked", "texts"),
        [
            ({}, None, 20 + 1),  # drawn: the serving number
            ({}, 7, 7 + 1),  # drawn: as asked
            ({"samples": ["a"] * 5}, None, 5 + 1),
            ({"samples": ["a"] * 5}, 4, 4 + 1),  # cut to what is asked
            ({"samples": ["a"] * 5, "reference": ["yes"] * 9}, 9, 5 + 9),  # never more than there are
            ({"samples": ["a"] * 5, "answer": "c"}, None, 5 + 1 + 1),
        ],
    )
    def test_answers_and_references_are_counted(self, row, asked, texts):
        rows = [{"prompt": "Q?", "reference": "yes"} | row] * 3
        assert read_examples(rows, ONE, num_samples=asked).num_texts == 3 * texts

    def test_the_files_of_one_job_count_together_and_the_limit_is_named(self):
        limits = UploadLimits(min_rows=1, max_texts=100, num_samples=9)
        five, six = read_examples(good(5), limits), read_examples(good(6), limits)
        check_size([five, five], limits)
        with pytest.raises(InvalidDevData) as caught:
            check_size([five, six], limits)
        assert "11 rows make up to 110 answers and references, more than the 100 " in caught.value.detail


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
        data = b"".join(map(write_row, rows))
        back = rows_of(gzip.compress(data) if packed else data)
        assert [without_line(row) for row in back] == [without_line(row) for row in rows]

    @given(filled.filter(lambda name: len(name) <= 200))
    def test_ids_are_kept(self, name):
        (row,) = rows_of(write_row(DevRow(1, name, ("a",), "Q?")))
        assert row.id == name

    def test_half_a_surrogate_pair_can_be_written(self):
        row = DevRow(1, None, ("a",), "Q?", samples=("\ud83d", "x"))
        assert rows_of(write_row(row))[0].samples == ("?", "x")

    def test_a_single_reference_is_a_string(self):
        line = write_row(DevRow(line=1, id="a", prompt="Ü?", references=("b",)))
        assert line == '{"id": "a", "prompt": "Ü?", "reference": "b"}\n'.encode()

    @pytest.mark.shared
    @pytest.mark.parametrize("name", ["triviaqa_test_smollm2_m20.jsonl", "triviaqa_dev_smollm2_m40.jsonl"])
    def test_recorded_data_reads_and_writes_the_same(self, shared_data, name):
        with (shared_data / name).open("rb") as file:
            rows = list(read_file(file).rows())
        assert len(rows) in (300, 400)
        assert rows_of(b"".join(map(write_row, rows))) == rows


ROOT = Path(__file__).resolve().parents[3]
BOUNDED = """
    import io, json, sys, resource
    from service.calibration.files import UploadLimits, read_file
    from service.errors import EigencalError
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    file = open(sys.argv[1], "rb")
    try:
        said = sum(1 for _ in read_file(file, UploadLimits(max_bytes=400 << 20)).rows())
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
            b"ab," * 200_000 + b"\n",
        ],
        ids=["quotes left open", "one quote left open", "fields without end"],
    )
    def test_a_csv_that_is_none(self, tmp_path, block):
        path = tmp_path / "bad.csv"
        with path.open("wb") as file:
            file.write(b'prompt,reference\n"')
            for _ in range(100):
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
