"""The final answer of a text, and its values in one form: numbers, units, dates, times, signs (**ours**).

Texts are rewritten, so that rules that compare words also compare values. The words of values are those of
`words.toml`; numbers in several words ("twenty-one") and ordinals are English.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from service.claims.facts import LISTS, POWERS_OF_TEN, normalize_number, normalize_text

# Marks of the final answer: its last line, a box of LaTeX, and words.
_LAST_LINE = re.compile(r"^####(?!#) *(\S.*)\Z", re.MULTILINE)
_BOXED = re.compile(r"\\boxed *\{((?:[^{}]|\{[^{}]{0,200}\}){0,200})\}")
_ANSWERS = re.compile(
    r"(?:^|(?<=[.!?:]\s))[ *_>#-]{0,9}(?:(?:so|thus|hence|therefore),? )?(?:the |my )?(?:(?:final|correct) )?"
    rf"(?:{'|'.join(LISTS['answers'])})[*_]{{0,3}} ?(?:is\b ?:?|:)[\s*_]{{0,9}}(?=\S)",
    re.IGNORECASE | re.MULTILINE,
)
_EMPHASIS = re.compile(r"(\*{1,3}|_{2,3}|`{1,3})(?=\S)(.{1,500}?)(?<=\S)\1")

_VALUES: Mapping[str, int] = LISTS["english"]  # 0 to 19 and the tens
_NUMERAL = "|".join([*_VALUES, "hundred", "thousand", "million", "billion", "trillion"])
_IN_WORDS = re.compile(rf"\b(?:{_NUMERAL})(?:(?:\sand\s|[ -])(?:{_NUMERAL}))+\b")
_N = r"\d+(?:[.,]\d+)*"
_POWER = re.compile(rf"\b({_N}) ?((?:{'|'.join(POWERS_OF_TEN)})[a-z]*)\b")
_ORDINAL = re.compile(rf"(\d)(?:st|nd|rd|th)\b|\b({'|'.join(LISTS['ordinals'])})\b")
_ROMAN = re.compile(r"\b(?=[ivx]{2})(x{0,3})(ix|iv|v?i{0,3})\b")
_ONES = {"": 0, "i": 1, "ii": 2, "iii": 3, "iv": 4, "v": 5, "vi": 6, "vii": 7, "viii": 8, "ix": 9}
_INITIAL = re.compile(r"\b([a-z])\. ?(?=[a-z]\.)")
_MONTHS = {name: names[0] for names in LISTS["months"].values() for name in names}
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})\b\.?"
_DATES = (
    re.compile(r"\b(?P<year>\d{4})-(?P<number>\d\d)-(?P<day>\d\d)\b"),
    re.compile(rf"\b(?P<day>\d\d?)\.?(?: of| de)? {_MONTH},?(?:(?: of| de)? (?P<year>\d{{4}}))?"),
    re.compile(rf"\b{_MONTH} (?P<day>\d\d?)\b(?:,? (?P<year>\d{{4}}))?"),
)
_CLOCK = re.compile(r"\b(\d\d?)(?:[:.](\d\d))? ?(?:([ap])\.? ?m\b\.?|uhr\b)|\b(\d\d?):(\d\d)\b(?!:)")
_DEGREES = re.compile(rf"(?<=\d) ?(?:°|\b(?:{'|'.join(LISTS['degrees'])})\b) ?")
_UNITS = {word: unit for unit, words in LISTS["units"].items() for word in words}
# An "s" that follows the digits is a plural, as in "1990s".
_UNIT = re.compile(rf"\b({_N})(?: (s)| ?(?!s\b)({'|'.join(sorted(_UNITS, key=len, reverse=True))}))\b")
_SCALED = re.compile(rf"\b({_N}) ({'|'.join(LISTS['scales'])})\b")
_SIGN_AFTER, _SIGN_BEFORE = re.compile(rf"({_N}) ?([%$€£])"), re.compile(rf"([$€£]) ?({_N})")
_SIGNS: Mapping[str, str] = LISTS["signs"]
_BOUNDS = {phrase: bound for bound, phrases in LISTS["bounds"].items() for phrase in phrases}
_BOUND = re.compile(rf"\b({'|'.join(sorted(_BOUNDS, key=len, reverse=True))}) (?=\d)")
_OR_MORE = re.compile(rf"\b({_N}) or (more|less|fewer)\b")
# Numbers whose order counts: a score, a ratio, a date of unknown order. "2-3" and "2 to 3" may be a range.
_PAIR = re.compile(
    r"(?<![\w./:-])(\d{1,3})([:/]| [:/] |[-\u2013]| to )(\d{1,3})(?:/(\d{4}))?(?![\w/:-]|[.]\d)"
)
_OPERATOR = re.compile(
    r"(?<=\w)\+\+|(?<=[a-z])\+(?!\w)|(?<=\b[a-z])#(?!\w)|[!=]=|≠"
    r"|(?:^|(?<=[\w)] ))[<>≤≥]=?(?: (?=[\w(])|(?=\d))|(?<=[\w)] )[=+](?= [\w(])|(?<=\b\w )-(?= \w\b)"
)
_OPERATORS = {
    **{"++": "plusplus", "+": "plus", "#": "sharp", "-": "less", "==": "equals", "=": "equals"},
    **{"!=": "unequal", "≠": "unequal", "<": "below", ">": "above", "<=": "atmost", "≤": "atmost"},
    **{">=": "atleast", "≥": "atleast"},
}
_MINUS = re.compile(r"(?<!\w)(?:minus |\u2212)(?=\d)")
# Numbers in one word. "One" is a pronoun as often.
_NUMERALS = {word: str(number) for word, number in _VALUES.items() if word != "one"}
_NUMERALS |= {word: number for number, words in LISTS["numerals"].items() for word in words}
_UNIT_NAMES = "|".join([*LISTS["units"], *(names[0] for names in LISTS["months"].values())])
_DURATIONS = frozenset({"second", "minute", "hour", "day", "week", "month", "year"})
_BOUND_OF = rf"(?:({'|'.join(LISTS['bounds'])}) )?"
_NUMBER = rf"(?:(?<![\w)])-)?(?<![\d.]){_N}(?::\d\d|dot\d+|(?:to\d+)+)?"
_QUANTITY = re.compile(rf"{_BOUND_OF}({_NUMBER})(?: ((?:{_UNIT_NAMES})\b(?: \d{{4}}\b)?))?")
_BARE = re.compile(rf"\b(?:{'|'.join(_NUMERALS)})\b")
_HAS_NUMBER = re.compile(rf"\d|\bone\b|{_BARE.pattern}")
# Of a version, 3.10 is not 3.1.
_VERSION = re.compile(r"\b((?:[A-Z][\w+#]*|version|release) )(\d+)\.(\d*0)\b")
_CAPITALS = re.compile(rf"(?<=\d) ?({'|'.join(LISTS['capitals'])})\b")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in a text and its unit, "" for none, and both in base units, all in canonical form.

    Month and year of a date count as the unit of its day, and the year is a number, too. bound: a key of
    `bounds` in `words.toml`, as "below" for "less than 5", or "".
    """

    number: str
    unit: str
    amount: str
    bound: str = ""


def final_answer(text: str) -> str:
    r"""Return the text behind the last mark of a final answer, without emphasis and in NFKC.

    The marks are `\boxed{..}`, a last line of `####`, and "Answer:" or "the answer is" at the beginning of a
    sentence. A text without them is its own final answer.

    >>> final_answer("Paris is larger.\n**Answer:** Lyon"), final_answer("6 x 7 is **42**.")
    ('Lyon', '6 x 7 is 42.')
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    if boxed := _BOXED.findall(text):
        text = boxed[-1]
    elif last := _LAST_LINE.search(text):
        text = last[1]
    elif marks := [*_ANSWERS.finditer(text)]:
        text = text[marks[-1].end() :]
    return _EMPHASIS.sub(r"\2", text).strip()


def compared_form(text: str) -> str:
    """Return a text in the form that is embedded: without case, and with its values in one form."""
    plain = normalize_text(by_case(text))
    if not (_HAS_NUMBER.search(plain) or _OPERATOR.search(plain)):
        return text.casefold()
    values = in_one_form(plain)
    return re.sub(_N, lambda number: normalize_number(number[0], ""), values)


def quantities(text: str) -> Iterator[Quantity]:
    """Yield the numbers of a text."""
    plain = normalize_text(by_case(text))
    if not _HAS_NUMBER.search(plain):
        return
    bounded = _OR_MORE.sub(
        lambda found: f"{'atleast' if found[2] == 'more' else 'atmost'} {found[1]}", in_one_form(plain)
    )
    bounded = _BOUND.sub(lambda found: f"{_BOUNDS[found[1]]} ", bounded)
    for found in _QUANTITY.finditer(bounded):
        bound, number, unit = found[1] or "", normalize_number(found[2], ""), found[3] or ""
        if bound in ("earlier", "later") and unit in _DURATIONS:
            bound = ""  # "after 3 days" is no other time than "3 days"
        yield Quantity(number, unit, in_base_units(f"{number} {unit}".rstrip()), bound)
        if year := unit.partition(" ")[2]:
            yield Quantity(year, "", year)


def by_case(text: str) -> str:
    """Return a text that still has its capitals with the values that they tell apart: units and versions."""
    units = _CAPITALS.sub(lambda unit: f" {LISTS['capitals'][unit[1]]}", text)
    return _VERSION.sub(r"\1\2dot\3", units)


def in_one_form(text: str) -> str:
    """Return a text without case and accents with its values in one form.

    >>> in_one_form("may 12th, 2024 at 5 p.m."), in_one_form("twelve hundred metres"), in_one_form("c++")
    ('12 may 2024 at 17:00', '1200 metre', 'cplusplus')
    """
    text = _MINUS.sub("-", _INITIAL.sub(r"\1", text).replace("per cent", "percent"))
    text = _OPERATOR.sub(lambda sign: _OPERATORS[sign[0].rstrip()] + " " * (sign[0][0] in "<>≤≥"), text)
    text = _BARE.sub(lambda word: _NUMERALS[word[0]], _IN_WORDS.sub(_in_digits, text))
    text = _ORDINAL.sub(lambda found: found[1] or str(LISTS["ordinals"][found[2]]), text)
    text = _ROMAN.sub(lambda roman: str(10 * len(roman[1]) + _ONES[roman[2]]), text)
    text = _POWER.sub(lambda found: normalize_number(found[1], found[2]), text)
    for date in _DATES:
        text = date.sub(_date, text)
    text = _PAIR.sub(_pair, _CLOCK.sub(_time, text))
    text = _SIGN_BEFORE.sub(lambda sign: f"{sign[2]} {_SIGNS[sign[1]]}", text)
    text = _SIGN_AFTER.sub(lambda sign: f"{sign[1]} {_SIGNS[sign[2]]}", text)
    return _UNIT.sub(lambda unit: f"{unit[1]} {_UNITS[unit[2] or unit[3]]}", _DEGREES.sub(" ", text))


def in_base_units(text: str) -> str:
    """Return a text of `in_one_form` with each number in the base unit of its dimension."""

    def scaled(found: re.Match[str]) -> str:
        factor, unit = LISTS["scales"][found[2]]
        try:
            amount = Decimal(normalize_number(found[1], "")) * Decimal(str(factor))
        except InvalidOperation:  # a date or a version
            return found[0]
        return f"{amount.normalize():f} {unit}"

    return _SCALED.sub(scaled, text)


def _in_digits(found: re.Match[str]) -> str:
    """Return a number in words as digits, or the words if they are several numbers."""
    total = current = 0
    last = 1000  # the value that the next small number must be below
    for word in re.split(r"\sand\s|[ -]", found[0]):
        if word == "hundred":
            current, last = max(current, 1) * 100, 100
        elif word in _VALUES:
            value = _VALUES[word]
            if value >= last or not value:
                return found[0]
            current, last = current + value, 10 if value >= 20 else 1
        else:
            power = next(power for start, power in POWERS_OF_TEN.items() if word.startswith(start))
            total, current, last = total + max(current, 1) * 10**power, 0, 1000
    return str(total + current)


def _date(found: re.Match[str]) -> str:
    if "number" in found.re.groupindex:
        month = next(iter(LISTS["months"].get(found["number"].lstrip("0"), [])), found["number"])
    else:
        month = _MONTHS[found["month"]]
    return f"{int(found['day'])} {month} {found['year'] or ''}".rstrip()


def _pair(found: re.Match[str]) -> str:
    """Return numbers whose order counts as one number, such as "3to2"."""
    is_time = found[2] == ":" and len(found[3]) > 1
    if is_time or (found[2].strip() not in ":/" and int(found[1]) <= int(found[3])):
        return found[0]  # the latter may be a range
    return "to".join(str(int(part)) for part in (found[1], found[3], found[4]) if part)


def _time(found: re.Match[str]) -> str:
    hour, minute = int(found[1] or found[4]), int(found[2] or found[5] or 0)
    if found[3]:
        hour = hour % 12 + 12 * (found[3] == "p")
    return f"{hour:02}:{minute:02}"
