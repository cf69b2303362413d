"""Parsing of lists that a file contains as text, as printed by JSON, Python or numpy."""

import json
import re
from typing import Any

from pydantic_core import from_json

# The tokens of a value in Python's notation, for conversion to JSON. numpy prints type names but no commas.
_TOKEN = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*+'?|"(?:[^"\\]|\\.)*+"?)"""
    r"""|(?P<gap>(?<=['"\d.\]}])\s++(?=[-+.\d'"\[{]))"""
    r"""|(?P<number>(?<![\w.])[-+]?(?:\d++\.?\d*+|\.\d++)(?:e[-+]?\d++)?)"""
    r"""|(?P<left_out>(?<![\w.])[a-z][\w.]*+\(|(?:,\s*+dtype=[^,()\[\]]*+)?\)|,\s*+(?=[\])}]))"""
    r"""|(?P<word>True|False|None)""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([\da-f]{2})|u([\da-f]{4})|U([\da-f]{8})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
_WORDS = {"True": "true", "False": "false", "None": "null"}
# The start of an array, the start of a dict or set of texts, or a truncated list of texts.
_LISTED = re.compile(r"(?:\w++\.)?array\(\s*+\[|\{\s*+'|\[\s*+['\"][^\]]*+\Z")

HOW_TO_WRITE_LISTS = (
    'write a list of texts as JSON, such as ["Paris", "City of Light"], and a single text that looks like a '
    "list as a list of one"
)


def parse_json(text: str | bytes) -> object:
    """Parse JSON without NaN and Infinity. Raises ValueError."""
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"is no valid JSON: {error}") from None


def parse_printed(text: str) -> object:
    """Parse a value in the notation of JSON, Python or numpy. Raises ValueError."""
    try:
        return parse_json(text)
    except ValueError as error:
        stripped = text.strip()
        if stripped.startswith("(") and stripped.endswith(")"):
            stripped = f"[{stripped[1:-1]}]"
        try:
            return parse_json(_TOKEN.sub(_as_json, stripped))
        except ValueError:
            raise error from None


def may_be_list(text: str) -> bool:
    """Return True if `texts_of_reference` may take the text for a list."""
    return text.strip().startswith(("[", "(", "{", "array(", "np.array(", "numpy.array("))


def texts_of_reference(reference: Any) -> Any:
    """Return the texts of a list that was turned into text, or of a SQuAD answer; else the reference.

    Raises ValueError for a list that cannot be parsed or contains anything other than texts.
    """
    if not isinstance(reference, str):
        return _texts_of_squad(reference)
    if not may_be_list(reference):
        return reference
    text = reference.strip()
    try:
        value = _texts_of_squad(parse_printed(text))
    except ValueError:
        value = None
    is_texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
    # `("Paris")` is not a tuple.
    if is_texts and (not text.startswith("(") or "," in text):
        return value
    in_brackets = text.startswith("[") and text.endswith("]")
    if _LISTED.match(text) or (in_brackets and (isinstance(value, list) or not {*text}.isdisjoint(",'\""))):
        raise ValueError(f"looks like a list but is no list of texts; {HOW_TO_WRITE_LISTS}")
    return reference


def _texts_of_squad(value: Any) -> Any:
    return value["text"] if isinstance(value, dict) and value.keys() == {"text", "answer_start"} else value


def _as_json(token: re.Match[str]) -> str:
    text = token[0]
    match token.lastgroup:
        case "text":
            return json.dumps(_ESCAPE.sub(_unescaped, text[1:-1]))
        case "number":
            return str(float(text)) if "." in text else text.removeprefix("+")
        case "gap":
            return ","
        case "word":
            return _WORDS[text]
        case _:
            return ""


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    return chr(int(code, 16)) if code else _CONTROLS.get(escape[4], escape[4])
