"""Dev data: rows, files and formats, sizes, memory, and exports."""

import csv
import gzip
import io
import json
import tracemalloc

import pytest

from service.calibration.files import UploadLimits, check_size, read_examples, read_file
from service.calibration.rows import ClaimIn, DevRow, Verdict, write_row
from service.errors import BodyTooLarge, InvalidDevData
from service.llm.prompt import Message
from tests.support.devdata import ONE, good, jsonl, refused, rows_of


def csv_of(rows):
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def in_both_formats(reference):
    rows = [{"prompt": "Q?", "reference": reference}]
    return csv_of(rows), jsonl(rows)


def problems(data, limits=ONE):
    errors = refused(data, limits).extra["errors"]
    return [(error["line"], error["field"], error["reason"]) for error in errors]


class TestRows:
    @pytest.mark.parametrize("correct", [True, False])
    def test_an_answer_with_a_verdict_needs_no_reference(self, correct):
        row = {"prompt": "Q?", "answer": " Blue ", "correct": correct}
        for data in (jsonl([row]), csv_of([row])):
            [read] = rows_of(data, ONE)
            assert read.labelled("answer") and read.references == ()
            assert read.right_texts == (("Blue",) if correct else ())
            assert read.alike_by == {"blue"}
            assert json.loads(write_row(read)) == row
        assert problems(jsonl([{"prompt": "Q?", "answer": "Blue"}]))[0][1] == "reference"

    def test_a_right_answer_is_no_reference_of_its_claims(self):
        row = DevRow(
            1, None, (), prompt="Q?", answer="a", correct=True, claims=(ClaimIn(text="a", correct=False),)
        )
        assert row.right_texts == ()

    def test_every_field_is_read_and_written_back(self):
        claim = {"text": "a is b", "correct": True, "logprob": -1.0}
        row = {"id": 7.0, "prompt": "Ü?", "reference": ["a", "b"], "samples": ["a", ""], "answer": "a"}
        more = {"correct": True, "logprob": [-1.0, 0.01], "answer_logprob": -0.5, "claims": [claim]}
        (read,) = rows_of(jsonl([row | more | {"messages": None}]))
        assert read == DevRow(
            line=1,
            id="7",
            prompt="Ü?",
            references=("a", "b"),
            samples=("a", ""),
            logprobs=(-1.0, 0.01),
            answer="a",
            answer_logprob=-0.5,
            correct=True,
            claims=(ClaimIn(text="a is b", correct=True, logprob=-1.0),),
        )
        assert rows_of(write_row(read)) == [read]

    @pytest.mark.parametrize(
        ("changed", "field", "message"),
        [
            ({"prompt": ...}, "prompt", "neither"),
            ({"messages": [{"role": "user", "content": "Q?"}]}, "prompt", "both"),
            ({"reference": ...}, "reference", "missing"),
            ({"reference": ["a", ""]}, "reference", "1: must not be empty"),
            ({"samples": ["a"]}, "samples", "at least 2"),
            ({"correct": "true"}, "correct", "boolean"),
            ({"id": "x" * 201}, "id", "200"),
            ({"prompt": ..., "messages": [{"role": "bot", "content": ""}]}, "messages", "0.role"),
            (
                {"prompt": ..., "messages": [{"role": "user", "contents": "Q?"}]},
                "messages",
                "0.contents: is not a field",
            ),
            (
                {"prompt": ..., "messages": [{"role": "assistant", "content": "A"}]},
                "messages",
                "must not end with the assistant's turn",
            ),
            ({"claims": [{"text": "", "correct": True}]}, "claims", "0.text: must not be empty"),
            ({"samples": ["a", "b"], "logprobs": [-1.0] * 3}, "logprobs", "for each of the 2 samples, not 3"),
            ({"logprobs": [-1.0] * 2, "logprob": [-1.0] * 2}, "logprob", "another name of logprobs"),
            ({"samples": ["a", "b"], "logprob": [-1.0, 0.02]}, "logprob", "less than or equal to 0.01"),
            ({"answer_logprob": -1.0}, "answer_logprob", "needs answer"),
            (
                {"promt": "a", "other": 1},
                "promt",
                "unknown: 'promt', 'other'; known are prompt, messages, claims",
            ),
        ],
    )
    def test_invalid_field_is_named(self, changed, field, message):
        row = {"prompt": "Q?", "reference": "yes"} | changed
        ((line, named, reason),) = problems(jsonl([{k: v for k, v in row.items() if v is not ...}]))
        assert (line, named) == (1, field)
        assert message in reason

    def test_number_of_reported_errors_is_limited(self):
        turn = {f"f{n}": n for n in range(5_000)}
        ((_, _, reason),) = problems(jsonl([{"reference": "a", "messages": [turn]}]))
        assert "5002 faults" in reason

    @pytest.mark.parametrize(
        "line",
        [
            b"[1, 2]",
            b"{",
            b'{"prompt": "Q?", "reference": "a", "logprob": [NaN]}',
            b'{"prompt": "Q?", "reference": "a", "samples": ["a", "b"], "logprobs": [-1, -1e999]}',
            b'{"prompt": "Q?", "reference": "\\ud800"}',
            b'{"id": ' + b"9" * 5000 + b"}",
            b'{"samples": ' + b"[" * 200_000 + b"}",
        ],
    )
    def test_unreadable_line_is_reported_and_others_are_read(self, line):
        problems_ = problems(jsonl(good(1)) + line + b'\n{"prompt": "Q?"}\n')
        assert [(number, field) for number, field, _ in problems_[1:]] == [(3, "reference")]
        assert problems_[0][0] == 2


class TestErrors:
    def test_an_id_given_twice_names_both_lines(self):
        ((line, field, reason),) = problems(jsonl([*good(5), {"id": "3", "prompt": "Q?", "reference": "a"}]))
        assert (line, field) == (6, "id")
        assert "line 4" in reason

    def test_too_few_rows(self):
        assert "only 9 usable rows; at least 10" in refused(jsonl(good(9)), UploadLimits()).detail
        assert len(rows_of(jsonl(good(10)), UploadLimits())) == 10

    def test_examples_of_a_body_are_named_by_position(self):
        with pytest.raises(InvalidDevData) as caught:
            read_examples([{"prompt": "Q?", "reference": "a"}, 3], ONE)
        (problem,) = caught.value.extra["errors"]
        assert problem["loc"] == ["body", "examples", 2]


class TestCsv:
    def test_size_limit_applies_to_the_whole_multiline_row(self):
        text = b'prompt,reference\nQ?,a\n"' + b"Q?\n" * 30 + b'",a\n'
        ((line, _, reason),) = problems(text, UploadLimits(min_rows=1, max_row_bytes=60))
        assert line is not None and 3 < line < 33 and "longer than 60 bytes" in reason
        many = b"prompt,reference\n" + b"Q?,a\n" * 30
        assert len(rows_of(many, UploadLimits(min_rows=1, max_row_bytes=60))) == 30

    def test_every_column(self):
        text = (
            "id,messages,reference,samples,answer,correct,answer_logprob,logprob\r\n"
            '7,"[{""role"": ""user"", ""content"": ""Q?""}]","[""a"", ""b""]","[""a"", """"]",a,Yes,-0.5,'
            '"[-1, -2.5]"\r\n'
        )
        (row,) = rows_of(text.encode())
        assert row.messages == (Message("user", "Q?"),)
        assert (row.references, row.samples, row.logprobs) == (("a", "b"), ("a", ""), (-1.0, -2.5))
        assert (row.id, row.answer, row.correct, row.answer_logprob) == ("7", "a", True, -0.5)

    @pytest.mark.parametrize(
        "texts",
        [
            ["Paris", "City of Light"],
            ["d'Arc", 'a "b"', "Ü, [x], dtype=(y)"],
            ["\u200b\x00\n\\ True 1. 2", "\U000e0001"],
        ],
    )
    def test_json_lists_as_text_are_read(self, texts):
        for rows in in_both_formats(json.dumps(texts)):
            assert rows_of(rows)[0].references == tuple(texts)

    @pytest.mark.parametrize(
        "text",
        [
            "[sic] Churchill",
            "[REDACTED]",
            "[0, 1)",
            "(0, 1)",
            "(a) Paris",
            '("Paris")',
            '["Heroes"] by Bowie',
            "{x, y}",
            '{"city": "Paris"}',
            "array of bytes",
        ],
    )
    def test_text_that_only_starts_like_a_list_is_kept(self, text):
        for rows in in_both_formats(text):
            assert rows_of(rows)[0].references == (text,)

    @pytest.mark.parametrize(
        "text",
        [
            "[Paris, City of Light]",
            "['Paris', 'City of Light']",
            "('Paris', 'City of Light')",
            "['Paris' 'City of Light']",
            "array(['Paris', 'City of Light'], dtype=object)",
            "['Paris', 'City of Li",
            "['a' 'b' ... 'y' 'z']",
            "['Paris', nan]",
            "[1969, 1970]",
            "[['a', 'b']]",
            "{'Paris', 'City of Light'}",
            "{'aliases': ['Paris'], 'value': 'Paris'}",
            "array([1, 2])",
        ],
    )
    def test_unreadable_list_is_refused_with_the_right_format(self, text):
        for rows in in_both_formats(text):
            ((_, field, reason),) = problems(rows)
            assert field == "reference"
            assert 'write a list of texts as JSON, such as ["Paris", "City of Light"]' in reason
        (row,) = rows_of(jsonl([{"prompt": "Q?", "reference": [text]}]))
        assert row.references == (text,), "as a list of one"

    def test_cell_that_is_not_a_list_is_refused_with_the_right_format(self):
        ((_, field, reason),) = problems(csv_of([{"prompt": "Q?", "reference": "a", "samples": "a; b"}]))
        assert field == "samples"
        assert 'write a list as JSON, such as ["Paris", "Lyon"]' in reason

    @pytest.mark.parametrize("names", [("",), ("Unnamed: 0",), ("Unnamed: 0.1", "Unnamed: 0", "")])
    def test_pandas_index_column_is_ignored(self, names):
        header, cells = ",".join(names), ",".join("7" for _ in names)
        (row,) = rows_of(f"{header},prompt,reference,correct\n{cells},Q?,a,1.0\n".encode())
        assert (row.prompt, row.references, row.correct) == ("Q?", ("a",), True)
        ((line, field, reason),) = problems(f"{header},prompt,reference\n{cells}x,Q?,a\n".encode())
        assert (line, field) == (2, None)
        assert "name it" in reason

    @pytest.mark.parametrize("delimiter", [";", "\t"])
    def test_columns_may_be_separated_by_semicolons_or_tabs(self, delimiter):
        lines = ["prompt;reference;correct", '"How much; in total?";"1,5";yes']
        (row,) = rows_of(
            "\n".join(lines)
            .replace(";r", f"{delimiter}r")
            .replace(";c", f"{delimiter}c")
            .replace('";"', f'"{delimiter}"')
            .replace(";y", f"{delimiter}y")
            .encode()
        )
        assert (row.prompt, row.references, row.correct) == ("How much; in total?", ("1,5",), True)

    @pytest.mark.parametrize("cell", ["#VALUE!", "#REF!", "#N/A", "#NAME?", "#DIV/0!", "nan", "NaN", "<NA>"])
    @pytest.mark.parametrize("field", ["prompt", "reference"])
    def test_cell_without_a_value_is_refused(self, cell, field):
        row = {"prompt": "Q?", "reference": "a"} | {field: cell}
        ((_, named, reason),) = problems(csv_of([row]))
        assert named == field and "missing value" in reason
        assert rows_of(jsonl([row])), "in JSONL the text is meant"

    def test_several_references_in_a_cell_are_a_json_list(self):
        for cell in ("Paris|Lyon", "[Paris|Lyon", "[1] | [2]"):
            ((_, named, reason),) = problems(f"prompt,reference\nQ?,{cell}\n".encode())
            assert named == "reference" and "list" in reason
        (row,) = rows_of(b'prompt,reference\nQ?,"[""Paris|1"", ""Lyon""]"\n')
        assert row.references == ("Paris|1", "Lyon")

    @pytest.mark.parametrize(
        ("cell", "correct"),
        [("1.0", True), ("0.0", False), ("True", True), ("FALSE", False), ("yes", True), ("", None)],
    )
    def test_common_formats_of_verdicts_are_read(self, cell, correct):
        (row,) = rows_of(f"prompt,reference,correct\nQ?,a,{cell}\n".encode())
        assert row.correct is correct

    @pytest.mark.parametrize(
        ("header", "message"),
        [
            (b"context,prompt,reference,source", "unknown: 'context', 'source'; known are prompt"),
            (b"context,prompt,reference", "rename or remove others"),
            (b"prompt;reference;context;source", "unknown: 'context', 'source'; known are prompt"),
            (b"prompt,answer", "must name the columns prompt (or messages) and reference"),
            (b"prompt,reference,prompt", "twice"),
        ],
    )
    def test_wrong_columns(self, header, message):
        assert message in refused(header + b"\nQ?,a\n").detail

    @pytest.mark.parametrize(
        ("record", "field", "message"),
        [
            (b"Q?", None, "has 1 fields, the header has 3"),
            (b"Q?,a,maybe", "correct", "boolean"),
            (b",a,1", "prompt", "neither"),
        ],
    )
    def test_bad_record_is_reported_and_others_are_read(self, record, field, message):
        first, second = problems(b"prompt,reference,correct\n" + record + b'\n"Q\n?",a,1\nQ?,,0\n')
        assert first[:2] == (2, field)
        assert message in first[2]
        assert second[:2] == (5, "reference")


class TestFiles:
    @pytest.mark.parametrize("indent", [None, 2])
    def test_a_json_array_is_refused_with_the_way_to_convert_it(self, indent):
        data = b"\xef\xbb\xbf\n" + json.dumps(good(20), indent=indent).encode()
        ((_, _, reason),) = problems(data)
        assert "one JSON array" in reason and "jq -c '.[]'" in reason

    def test_multiline_object_is_refused_with_the_right_format(self):
        reason = problems(json.dumps(good(1)[0], indent=2).encode())[0][2]
        assert "each line must hold a whole row" in reason

    @pytest.mark.parametrize("data", [b"", b"\n\n"])
    def test_empty_file_is_refused(self, data):
        assert "the file is empty" in refused(data).detail

    @pytest.mark.parametrize(
        ("data", "line"),
        [
            (bytes(range(128, 256)) * 20, 1),
            (jsonl(good(40)).decode().encode("utf-16"), 1),
            (gzip.compress(jsonl(good(40)), mtime=0), 1),
            (jsonl(good(2)) + b'{"prompt": "caf\xe9?", "reference": "a"}\n', 3),
            (b'prompt,reference\nQ?,a\n"Q"?,a\n', 3),
            (b'prompt,reference\nQ?,a\n"Q?,a\n', 3),
            (jsonl(good(3)) + b'{"prompt": "' + b"x" * 2_000_000, 4),
        ],
    )
    def test_a_line_at_which_reading_ends_is_named(self, data, line):
        ((named, field, _),) = problems(data)
        assert (named, field) == (line, None)

    @pytest.mark.parametrize(
        ("data", "limits", "extra"),
        [
            (jsonl(good(100)), {"max_bytes": 1000}, {"limit_bytes": 1000}),
            (jsonl(good(11)), {"max_rows": 10}, {"limit_rows": 10}),
            (b"prompt,reference\n" + b"\r\n" * 30, {"max_lines": 30}, {"limit_lines": 30}),
        ],
    )
    def test_too_much(self, data, limits, extra):
        with pytest.raises(BodyTooLarge) as caught:
            rows_of(data, UploadLimits(**limits))
        assert caught.value.extra == extra

    def test_memory_stays_flat(self):
        line = json.dumps({"prompt": "x" * 100_000, "reference": "a"}).encode() + b"\n"
        file = io.BytesIO(line * 300)
        tracemalloc.start()
        try:
            assert sum(1 for _ in read_file(file).rows()) == 300
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()


class TestSize:
    @pytest.mark.parametrize(
        ("row", "num_samples", "texts"),
        [
            ({}, None, 20 + 1),  # drawn: the serving number
            ({}, 7, 7 + 1),  # drawn: as asked
            ({"samples": ["a"] * 5}, 4, 4 + 1),  # limited to the requested number
            ({"samples": ["a"] * 5, "reference": ["yes"] * 9}, 9, 5 + 9),  # never more than there are
            ({"samples": ["a"] * 5, "answer": "c"}, None, 5 + 1 + 1),
        ],
    )
    def test_answers_and_references_are_counted(self, row, num_samples, texts):
        rows = [{"prompt": "Q?", "reference": "yes"} | row] * 3
        assert read_examples(rows, ONE, num_samples=num_samples).num_texts == 3 * texts

    def test_the_limit_of_texts_is_named(self):
        limits = UploadLimits(min_rows=1, max_texts=100, num_samples=9)
        check_size(read_examples(good(10), limits), limits)
        with pytest.raises(InvalidDevData, match="11 rows make up to 110 answers and references"):
            check_size(read_examples(good(11), limits), limits)


class TestExport:
    def test_verdicts_are_exported_but_not_read(self):
        row = DevRow(1, "a", ("b",), "Ü?", verdict=Verdict("b", True, "equal"))
        content = json.loads(write_row(row))
        assert content == {
            "prompt": "Ü?",
            "reference": "b",
            "id": "a",
            "verdict": {"answer": "b", "correct": True, "rule": "equal"},
        }
        assert rows_of(write_row(row))[0].verdict is None
