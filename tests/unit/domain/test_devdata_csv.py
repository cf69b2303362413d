import pytest

from service.calibration.files import UploadLimits
from service.llm.port import Message
from tests.support.devdata import refused, rows_of


class TestCsv:
    def test_fields_without_end_are_told_by_one_reason(self):
        error = refused(b"prompt,reference\nQ?,a" + b"," * 500_000 + b"\nQ?,\n")
        found = [(e["line"], e["field"], e["reason"]) for e in error.extra["errors"]]
        assert found == [(2, None, "has more than 64 fields"), (3, "reference", "is missing")]

    def test_quotes_commas_and_newlines_inside_quotes(self):
        text = 'prompt,reference,id\n"Who said ""hi"",\nand\r\nwhen?",she,1\n\n"",x,2\n'
        error = refused(text.encode())
        assert [(e["line"], e["field"]) for e in error.extra["errors"]] == [(6, "prompt")]
        (row,) = rows_of(text.replace('\n"",x,2', "").encode())
        assert row.prompt == 'Who said "hi",\nand\r\nwhen?'
        assert (row.line, row.id, row.references) == (2, "1", ("she",))

    def test_every_column(self):
        text = (
            "id,messages,reference,samples,answer,correct,logprob,tokens\r\n"
            '7,"[{""role"": ""user"", ""content"": ""Q?""}]","[""a"", ""b""]","[""a"", """"]",a,Yes,'
            '"[-1, -2.5]",[]\r\n'
        )
        (row,) = rows_of(text.encode())
        assert row.messages == (Message("user", "Q?"),)
        assert (row.references, row.samples, row.logprobs) == (("a", "b"), ("a", ""), (-1.0, -2.5))
        assert (row.id, row.answer, row.correct) == ("7", "a", True)

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
            (b"prompt\treference\tid", "separated by tabs"),
            (b'"prompt";"reference"', "separated by semicolons"),
            (b"zzz,reference", "unknown columns 'zzz' in the header"),
            (b"prompt,answer", "must name the columns prompt (or messages) and reference"),
            (b"prompt;reference", "the columns are separated by semicolons"),
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
            (b'"Q"?,a,', None, "after a closing quote"),
            (b"Q?,caf\xe9,", None, "not UTF-8"),
            (b'"Q\n\xe9?",a,', None, "not UTF-8"),
            (b"Q?,a,maybe", "correct", "must be one of true, 1"),
            (b",a,1", "prompt", "neither"),
            (b"Q?,a\rQ?,a", None, "lone carriage return"),
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
            (3, "a quote is left open at the end of the file")
        ]

    def test_a_quote_left_open_over_the_limit_ends_the_reading(self):
        # Were it read on, each of the lines that follow would be told, too.
        error = refused(b'prompt,reference\n"Q?,a\n' + b"Q?\n" * 1000, UploadLimits(max_row_bytes=100))
        ((line, reason),) = [(e["line"], e["reason"]) for e in error.extra["errors"]]
        assert line == 2
        assert "longer than 100 bytes (a quote left open?)" in reason

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
