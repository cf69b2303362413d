import io
import json
import tracemalloc

import pytest

from service.calibration.files import UploadLimits, read_examples, read_file
from service.calibration.rows import DevRow
from service.errors import InvalidDevData
from service.llm.port import Message
from tests.support.devdata import ONE, good, jsonl, only_reason, refused, rows_of


class TestRows:
    def test_every_field_is_read(self):
        row = {"id": 7, "prompt": "Q?", "reference": ["a", "b"], "samples": ["a", ""], "answer": "a"}
        (read,) = rows_of(jsonl([row | {"correct": True, "logprob": [-1.0, -2.0]}]))
        assert read == DevRow(
            line=1,
            id="7",
            prompt="Q?",
            references=("a", "b"),
            samples=("a", ""),
            logprobs=(-1.0, -2.0),
            answer="a",
            correct=True,
        )

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
        assert (data.num_rows, data.num_with_samples) == (3, 0)

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
                "role must be one of",
            ),
            ({"prompt": ..., "messages": [{"role": [], "content": ""}]}, "messages", "role must be one of"),
            ({"prompt": ..., "messages": [{"role": "user"}]}, "messages", "role and content"),
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
        assert "known are prompt, messages, reference" in reason

    def test_an_unknown_field_of_half_a_surrogate_can_be_shown(self):
        field, _ = only_reason({"\ud800": 1})
        assert field == "?"

    def test_every_field_that_does_not_fit_is_told_once(self):
        row = {"refrence": 1, "reference": ["", 1], "id": [], "samples": [1, 2], "correct": 1}
        error = refused(jsonl([row]))
        assert [(e["field"], e["reason"]) for e in error.extra["errors"]][1:] == [
            ("prompt", "exactly one of prompt and messages is needed; neither is given"),
            ("reference", "must hold strings that are not empty"),
            ("id", "must be a string or a whole number, not an array"),
            ("samples", "must hold a string, not a number"),
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
        error = refused(jsonl(good(29)), UploadLimits())
        assert "only 29 usable rows; at least 30" in error.detail
        assert len(rows_of(jsonl(good(30)), UploadLimits())) == 30

    def test_rows_with_and_without_samples_do_not_mix_unless_allowed(self):
        data = jsonl([*good(3), {"prompt": "Q?", "reference": "a", "samples": ["a", "b"]}])
        error = refused(data)
        (problem,) = error.extra["errors"]
        assert (problem["line"], problem["field"], error.extra["total_bad"]) == (4, "samples", 1)
        assert len(rows_of(data, mixed_ok=True)) == 4

    def test_examples_of_a_body_are_named_by_their_place(self):
        with pytest.raises(InvalidDevData) as caught:
            read_examples([{"prompt": "Q?", "reference": "a"}, 3], ONE)
        (problem,) = caught.value.extra["errors"]
        assert problem["loc"] == ["body", "examples", 2]
        assert "not a number" in problem["msg"]

    def test_examples_become_rows(self):
        data = read_examples([{"prompt": "Q?", "reference": "a"}], ONE)
        assert list(data.rows()) == [DevRow(line=1, id=None, prompt="Q?", references=("a",))]
