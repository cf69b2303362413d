"""The reader of dev data follows the contract, row by row."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from service.calibration.rows import (
    LOGPROB_FIELDS,
    MAX_MESSAGES,
    MAX_REFERENCES,
    MAX_SAMPLES,
    RowError,
    check_row,
)

CONTRACT = Path(__file__).parents[2] / "clients" / "openapi.json"
ROW = {"$ref": "#/components/schemas/ExampleIn"}
contract = jsonschema_rs.Draft202012Validator({**json.loads(CONTRACT.read_text("utf-8")), **ROW})

GOOD = {"prompt": "Q?", "reference": "yes"}
TURN = {"role": "user", "content": "Q?"}


def fits_contract(row: object) -> bool:
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair: not text, and so not JSON
        return False
    return bool(contract.is_valid(row))


def fits_reader(row: object) -> bool:
    try:
        check_row(1, row)
    except RowError:
        return False
    return True


def good(**changed: Any) -> dict[str, Any]:
    return {name: value for name, value in (GOOD | changed).items() if value is not ...}


def talk(*turns: object) -> dict[str, Any]:
    return good(prompt=..., messages=list(turns))


ACCEPTED = [
    good(),
    good(messages=None, id=None, samples=None, answer=None, correct=None, logprob=None),
    good(reference=["yes"]),
    good(reference=["yes"] * MAX_REFERENCES),
    good(id=7),
    good(id=-7),
    good(id=7.0),
    good(id=2**63 - 1),
    good(id="x" * 200),
    good(id="\U0001f600" * 200),
    good(samples=["a", ""]),
    good(samples=["a"] * MAX_SAMPLES),
    good(answer=""),
    good(correct=False),
    good(samples=["a", "b"], logprob=[-1.0, -2.5]),
    good(samples=["a", "b"], logprobs=[0, 0.01]),
    good(samples=["a", "b"], logprobs=[-1e300, -9999], logprob=None),
    good(samples=["a", "b"], logprobs=None, logprob=[-1, -2]),
    good(answer="a", answer_logprob=-1.5),
    good(answer_logprob=None),
    good(prompt="\ufeff"),
    talk(TURN),
    talk(TURN) | {"prompt": None},
    talk(TURN | {"content": ""}),
    talk(*[TURN] * MAX_MESSAGES),
]
REFUSED = [
    3,
    None,
    "text",
    [GOOD],
    {},
    good(refrence="yes"),
    good(refrence=None),
    good(**{f"f{n}": n for n in range(20)}),
    good(prompt=...),
    good(prompt=None),
    good(prompt=""),
    good(prompt=" \t\n"),
    *[good(prompt=blank) for blank in "\x1c\x1d\x1e\x1f\x85\xa0\u2028\u3000"],
    good(prompt=3),
    good(prompt="\ud800"),
    good(messages=[TURN]),
    good(messages=[]),
    good(prompt=3, messages=[TURN]),
    good(reference=...),
    good(reference=None),
    good(reference=""),
    good(reference=" "),
    good(reference=3),
    good(reference={"a": 1}),
    good(reference=[]),
    good(reference=["yes"] * (MAX_REFERENCES + 1)),
    good(reference=["yes", ""]),
    good(reference=["yes", None]),
    good(reference=[["yes"]]),
    good(reference="\udfff"),
    good(id=1.5),
    good(id=True),
    good(id=False),
    good(id=""),
    good(id=" "),
    good(id="x" * 201),
    good(id=2**63),
    good(id=-(2**63) - 1),
    good(id=[7]),
    good(samples=["a"]),
    good(samples=[]),
    good(samples=["a"] * (MAX_SAMPLES + 1)),
    good(samples=["a", 1]),
    good(samples=["a", None]),
    good(samples=["a", "\ud800"]),
    good(samples="a"),
    good(logprobs=[-1.0, -2.0]),
    good(answer_logprob=-1.0),
    good(answer="a", answer_logprob=0.02),
    good(answer="a", answer_logprob="-1"),
    good(answer="a", answer_logprob=[-1.0]),
    good(logprob=[-1.0, -2.0], samples=None),
    good(samples=["a", "b"], logprobs=[-1.0, -2.0], logprob=[-1.0, -2.0]),
    good(samples=["a", "b"], logprobs=[-1.0, 0.02]),
    good(samples=["a", "b"], logprobs=[-1.0, None]),
    good(samples=["a", "b"], logprobs=[-1.0, "-1"]),
    good(samples=["a", "b"], logprobs=[-1.0, True]),
    good(samples=["a", "b"], logprob=[False, -1.0]),
    good(samples=["a", "b"], logprobs=[-1.0]),
    good(samples=["a", "b"], logprobs=[]),
    good(samples=["a", "b"], logprobs={"a": -1.0}),
    good(samples=["a", "b"], logprob="of another kind"),
    good(samples=["a"] * MAX_SAMPLES, logprobs=[-1.0] * (MAX_SAMPLES + 1)),
    good(answer=True),
    good(answer="\ud800"),
    good(correct="true"),
    good(correct=1),
    talk(),
    talk(*[TURN] * (MAX_MESSAGES + 1)),
    talk(3),
    talk(None),
    talk({"role": "user"}),
    talk(TURN | {"name": "Ann"}),
    talk(TURN | {"role": "bot"}),
    talk(TURN | {"role": []}),
    talk(TURN | {"content": None}),
    talk(TURN | {"content": 3}),
    talk(TURN | {"content": "\ud800"}),
]


@pytest.mark.parametrize("row", ACCEPTED, ids=lambda row: repr(row)[:60].encode("ascii", "replace").decode())
def test_both_accept(row: object) -> None:
    assert (fits_contract(row), fits_reader(row)) == (True, True)


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: repr(row)[:60].encode("ascii", "replace").decode())
def test_both_refuse(row: object) -> None:
    assert (fits_contract(row), fits_reader(row)) == (False, False)


scalars = st.none() | st.booleans() | st.integers() | st.floats(-1e300, 1e300) | st.text(max_size=3)
turns = st.fixed_dictionaries({"role": st.sampled_from(["user", "bot"]) | scalars, "content": scalars})
values = scalars | st.lists(scalars | turns, max_size=3)
NAMES = ("prompt", "messages", "reference", "id", "samples", "answer", "correct", "other", *LOGPROB_FIELDS)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, values)), st.booleans())
def test_they_agree_about_any_row(row: dict[str, Any], from_good: bool) -> None:
    row = GOOD | row if from_good else row
    samples, logprobs = row.get("samples"), row.get("logprobs") or row.get("logprob")
    if isinstance(samples, list) and isinstance(logprobs, list):
        assume(len(samples) == len(logprobs))  # a schema cannot express this
    assert fits_contract(row) == fits_reader(row)


def test_as_many_log_probabilities_as_samples_is_beyond_the_contract() -> None:
    row = good(samples=["a", "b"], logprobs=[-1.0, -2.0, -3.0])
    assert (fits_contract(row), fits_reader(row)) == (True, False)
