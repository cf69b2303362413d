"""Dev data: rows, files and formats, sizes, memory, and exports."""

import csv
import gzip
import io
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.calibration.files import UploadLimits, check_size, read_examples, read_file
from service.calibration.rows import ClaimIn, DevRow, Verdict, write_row
from service.calibration.store import encode_row
from service.errors import BodyTooLarge, InvalidDevData
from service.llm.port import Message
from tests.support.devdata import ONE, good, jsonl, refused, rows_of


def csv_of(rows):
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def problems(data, limits=ONE):
    return [
        (error["line"], error["field"], error["reason"]) for error in refused(data, limits).extra["errors"]
    ]


class TestRows:
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

    def test_claims_of_earlier_versions_are_read_without_removed_logprobs(self):
        claim = {"text": "a is b", "correct": True}
        (read,) = rows_of(
            jsonl([{"prompt": "p", "claims": [claim | {"logprob_per_word": -1.0, "least_logprob": -2.0}]}])
        )
        assert read.claims == (ClaimIn(**claim),)
        of_facts = {"fact_logprob": -1.0, "least_logprob": -0.5}
        (read,) = rows_of(jsonl([{"prompt": "p", "claims": [claim | of_facts | {"logprob_per_word": -1.0}]}]))
        assert read.claims == (ClaimIn(**claim, **of_facts),)

    def test_messages_replace_a_prompt(self):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Q?"}]
        (read,) = rows_of(jsonl([{"messages": messages, "reference": "a"}]))
        assert read.messages == (Message("system", "Be brief."), Message("user", "Q?"))
        assert read.prompt is None
        assert rows_of(write_row(read)) == [read]

    def test_blank_lines_count_and_rows_can_be_read_more_than_once(self):
        text = b"\xef\xbb\xbf\r\n" + jsonl(good(1)).replace(b"\n", b"\r\n") + b"\n  \n" + jsonl(good(1, 1))
        data = read_file(io.BytesIO(text.rstrip()), ONE)
        for _ in range(2):
            assert [row.line for row in data.rows()] == [2, 5]
        assert (data.num_rows, data.num_texts) == (2, 2 * (20 + 1))

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
                "0.contents: is not a field; did you mean `content`?",
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
            ({"promt": "a"}, "promt", "(did you mean 'prompt'?); known are prompt, messages, claims"),
        ],
    )
    def test_invalid_field_is_named(self, changed, field, message):
        row = {"prompt": "Q?", "reference": "yes"} | changed
        ((line, named, reason),) = problems(jsonl([{k: v for k, v in row.items() if v is not ...}]))
        assert (line, named) == (1, field)
        assert message in reason

    def test_each_invalid_field_is_reported_once(self):
        row = {"prompt": "Q?", "reference": ["", 1], "id": [], "samples": [1] * 9, "correct": 1}
        problems_ = problems(jsonl([row]))
        assert sorted(field for _, field, _ in problems_) == ["correct", "id", "reference", "samples"]
        assert all(len(reason) < 150 for *_, reason in problems_)

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
    def test_the_first_twenty_bad_rows_are_listed_and_all_counted(self):
        error = refused(jsonl([*good(5), *({"prompt": "Q?", "answer": 3} for _ in range(50))]))
        assert (error.code, error.extra["total_bad"]) == ("invalid_dev_data", 50)
        assert [e["line"] for e in error.extra["errors"]] == [n for n in range(6, 26) for _ in range(2)]
        error_ = error.extra["errors"][0]
        assert error_["loc"] == ["file", 6, error_["field"]]
        assert error_["msg"] == error_["reason"]

    def test_an_id_given_twice_names_both_lines(self):
        ((line, field, reason),) = problems(jsonl([*good(5), {"id": "3", "prompt": "Q?", "reference": "a"}]))
        assert (line, field) == (6, "id")
        assert "line 4" in reason

    def test_errors_do_not_quote_rows(self):
        error = refused(jsonl([{"prompt": "my secret", "reference": ["secret", ""], "id": "secret" * 50}]))
        assert "secret" not in json.dumps(error.extra) + error.detail

    def test_too_few_rows(self):
        assert "only 9 usable rows; at least 10" in refused(jsonl(good(9)), UploadLimits()).detail
        assert len(rows_of(jsonl(good(10)), UploadLimits())) == 10

    def test_examples_of_a_body_are_named_by_position(self):
        with pytest.raises(InvalidDevData) as caught:
            read_examples([{"prompt": "Q?", "reference": "a"}, 3], ONE)
        (problem,) = caught.value.extra["errors"]
        assert problem["loc"] == ["body", "examples", 2]


class TestCsv:
    def test_quotes_commas_and_newlines_inside_quotes(self):
        text = 'prompt,reference,id\n"Who said ""hi"",\nand\r\nwhen?",she,1\n\n"",x,2\nA 5" disk?,[sic] C,3\n'
        assert [(line, field) for line, field, _ in problems(text.encode())] == [(6, "prompt")]
        row, other = rows_of(b"\xef\xbb\xbf" + text.replace('\n"",x,2', "").encode())
        assert row.prompt == 'Who said "hi",\nand\r\nwhen?'
        assert (row.line, row.id, row.references) == (2, "1", ("she",))
        assert (other.prompt, other.references) == ('A 5" disk?', ("[sic] C",))

    def test_size_limit_applies_to_the_whole_multiline_row(self):
        text = b'prompt,reference\nQ?,a\n"' + b"Q?\n" * 30 + b'",a\n'
        ((line, _, reason),) = problems(text, UploadLimits(min_rows=1, max_row_bytes=60))
        assert line is not None and 3 < line < 33 and "longer than 60 bytes" in reason
        many = b"prompt,reference\n" + b"Q?,a\n" * 30
        assert len(rows_of(many, UploadLimits(min_rows=1, max_row_bytes=60))) == 30

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
        "printed",
        [
            json.dumps,
            str,
            lambda texts: str(tuple(texts)),
            lambda texts: str(np.array(texts)),
            lambda texts: repr(np.array(texts)),
            lambda texts: repr(np.array(texts, dtype=object)).replace("array", "np.array"),
            lambda texts: str([np.str_(text) for text in texts]),
            lambda texts: str({"text": texts, "answer_start": [3, 17]}),
            lambda texts: json.dumps({"answer_start": [3, 17], "text": texts}),
            lambda texts: str({"text": np.array(texts, dtype=object), "answer_start": np.array([3])}),
        ],
    )
    @pytest.mark.parametrize(
        "texts",
        [
            ["Paris", "City of Light"],
            ["d'Arc", 'a "b"', "Ü, [x], dtype=(y)"],
            ["\u200b\x00\n\\ True 1. 2", "\U000e0001"],
            ["a" * 90, "b" * 90],
            ["c", "d"] * 4,
        ],
    )
    def test_lists_as_text_are_read(self, printed, texts):
        for rows in (
            csv_of([{"prompt": "Q?", "reference": printed(texts)}]),
            jsonl([{"prompt": "Q?", "reference": printed(texts)}]),
        ):
            assert rows_of(rows)[0].references == tuple(texts)

    def test_squads_answers_are_read_as_an_object(self):
        (row,) = rows_of(jsonl([{"prompt": "Q?", "reference": {"text": ["a", "b"], "answer_start": [1, 2]}}]))
        assert row.references == ("a", "b")

    @pytest.mark.parametrize(
        "printed", [str, lambda value: str(np.array(value)), lambda value: repr(np.array(value))]
    )
    def test_other_cells_of_lists_are_read(self, printed):
        fields = {"samples": printed(["a's", "b c", ""]), "logprobs": printed([-1.0, -2.5, -1e-7])}
        turns = str([{"role": "user", "content": "It's?"}])
        (row,) = rows_of(csv_of([{"messages": turns, "reference": "a", **fields}]))
        assert row.samples == ("a's", "b c", "")
        assert row.logprobs == (-1.0, -2.5, -1e-7)
        assert row.messages == (Message("user", "It's?"),)

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
        for rows in (
            csv_of([{"prompt": "Q?", "reference": text}]),
            jsonl([{"prompt": "Q?", "reference": text}]),
        ):
            assert rows_of(rows)[0].references == (text,)

    @pytest.mark.parametrize(
        "text",
        [
            "[Paris, City of Light]",
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
        for rows in (
            csv_of([{"prompt": "Q?", "reference": text}]),
            jsonl([{"prompt": "Q?", "reference": text}]),
        ):
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
            (b"context,prompt,reference", "unknown field 'context'"),
            (b"context,prompt,reference", "leave out others"),
            (b"prompt\treference", "must be separated by commas"),
            (b"promt,reference", "'promt' (did you mean 'prompt'?)"),
            (b"prompt,answer", "must name the columns prompt (or messages) and reference"),
            (b"prompt;reference", "must be separated by commas"),
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

    def test_a_field_may_be_as_long_as_a_row(self):
        (row,) = rows_of(b'prompt,reference\n"' + b"x" * 900_000 + b'",a\n')
        assert row.prompt == "x" * 900_000


class TestFiles:
    @pytest.mark.parametrize("indent", [None, 2])
    def test_a_json_array_is_refused_with_the_way_to_convert_it(self, indent):
        data = b"\xef\xbb\xbf\n" + json.dumps(good(20), indent=indent).encode()
        ((_, _, reason),) = problems(data)
        assert "one JSON array" in reason and "jq -c '.[]'" in reason

    def test_multiline_object_is_refused_with_the_right_format(self):
        reason = problems(json.dumps(good(1)[0], indent=2).encode())[0][2]
        assert "each line must hold a whole row" in reason

    @pytest.mark.parametrize("pack", [bytes, gzip.compress])
    @pytest.mark.parametrize("data", [b"", b"\n\n"])
    def test_empty_file_is_refused(self, data, pack):
        assert "the file is empty" in refused(pack(data)).detail

    @pytest.mark.parametrize(
        ("data", "line"),
        [
            (bytes(range(128, 256)) * 20, 1),
            (jsonl(good(40)).decode().encode("utf-16"), 1),
            (gzip.compress(gzip.compress(jsonl(good(40)), mtime=0), mtime=0), 1),
            (jsonl(good(2)) + b'{"prompt": "caf\xe9?", "reference": "a"}\n', 3),
            (b'prompt,reference\nQ?,a\n"Q"?,a\n', 3),
            (b'prompt,reference\nQ?,a\n"Q?,a\n', 3),
            (jsonl(good(3)) + b'{"prompt": "' + b"x" * 2_000_000, 4),
        ],
    )
    def test_a_line_at_which_reading_ends_is_named(self, data, line):
        ((named, field, _),) = problems(data)
        assert (named, field) == (line, None)

    def test_gzip(self):
        assert len(rows_of(gzip.compress(jsonl(good(2))) + gzip.compress(jsonl(good(2, 2))))) == 4
        assert len(rows_of(gzip.compress(b"prompt,reference\nQ?,a\n"))) == 1
        packed = gzip.compress(jsonl(good(400)))
        for bad in (packed[:-20], packed[:-6] + b"\x00" * 6, packed[:20] + b"\xff" * 20 + packed[40:]):
            assert "damaged" in refused(bad).detail

    @pytest.mark.parametrize(
        ("data", "limits", "extra"),
        [
            (jsonl(good(100)), {"max_bytes": 1000}, {"limit_bytes": 1000}),
            (gzip.compress(b"{" + b" " * 1001 + b"}", mtime=0), {"max_bytes": 1000}, {"limit_bytes": 1000}),
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
        file = io.BytesIO(gzip.compress(line * 300))
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


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
filled = texts.filter(str.strip)
labels = {
    "references": st.lists(filled, min_size=1, max_size=4).map(tuple),
    "samples": st.lists(texts, min_size=2, max_size=5).map(tuple),
    "answer": st.none() | texts,
    "correct": st.none() | st.booleans(),
}
turns = st.lists(st.builds(Message, st.sampled_from(["system", "user"]), texts), min_size=1, max_size=3)
dev_rows = st.builds(DevRow, line=st.just(1), id=st.none() | filled, prompt=filled, **labels) | st.builds(
    DevRow, line=st.just(1), id=st.none(), messages=turns.map(tuple), **labels
)


class TestExport:
    @given(dev_rows)
    @example(DevRow(1, None, ("['Paris', 'Lyon']",), "Q?"))
    @example(DevRow(1, None, (" array([1, 2])",), "Q?"))
    def test_written_rows_are_read_back(self, row):
        assert rows_of(write_row(row)) == [row]

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

    def test_lone_surrogate_can_be_written(self):
        row = DevRow(1, None, ("a",), "Q?", samples=("\ud83d", "x"))
        assert rows_of(write_row(row))[0].samples == ("?", "x")


def test_only_set_fields_of_a_row_are_stored_and_hashed() -> None:
    """Otherwise a field added by a release would turn a repeated upload into another one."""
    stored = encode_row(DevRow(7, None, ("Paris",), prompt="Capital?", samples=("Paris", "Lyon")))
    assert stored["content"] == {"id": None, "references": ("Paris",), "prompt": "Capital?"}
