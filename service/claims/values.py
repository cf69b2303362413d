"""The final answer of a text, and its values in one form: numbers, units, dates, times, signs (**ours**).

Values are rewritten in one form, so that comparing words also compares values. The words are listed in
`words.toml`; numbers in several words ("twenty-one") and ordinals are English.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from service.claims.facts import LISTS, POWERS_OF_TEN, normalize_number, normalize_text

# Final answers

_BOX = "\\boxed{"
_LATEX_TEXT = re.compile(r"\\text(?:bf|rm)?\{([^{}]{0,200})\}")
_LAST_LINE = re.compile(r"^####(?!#) *(\S.*)\Z", re.MULTILINE)
_IS = r"(?: (?:is|ist|lautet|es|est|e|è|é)\b:? )(?=[\"'(\[]?(?-i:[A-ZÀ-Þ\d\\$-]))"
_ANSWER = re.compile(
    r"(?:^|(?<=\D[.!?:]\s))[ >#-]{0,9}(?:(?:so|thus|hence|therefore),? )?(?:(?:the|my|die|la|het) )?"
    rf"(?:(?:final|correct) )?(?:{'|'.join(LISTS['answers'])})(?: ?:\s{{0,3}}|\n{{1,3}}|{_IS})(?=\S)",
    re.IGNORECASE | re.MULTILINE,
)
# A text model may go on with another question.
_NEXT_TURN = re.compile(rf"\n[\n ]{{0,3}}(?:{'|'.join(LISTS['turns'])})(?: ?\d{{1,3}})?:", re.IGNORECASE)
_EMPHASIS = re.compile(
    r"(?<![\w*`])(\*{1,3}|`{1,3})(?=\S)([^\n]{1,500}?)(?<=\S)\1(?![\w*`])"
    r"|(?<![\w$])\$(?=\S)([^$\n]{1,200}?)(?<=\S)\$(?![\w$])"
)

# Values

_VALUES: Mapping[str, int] = LISTS["english_numerals"]  # 0 to 19 and the tens
_NUMERAL = "|".join([*_VALUES, "hundred", "thousand", "million", "billion", "trillion"])
_IN_WORDS = re.compile(rf"\b(?:{_NUMERAL})(?:(?:\sand\s|[ -])(?:{_NUMERAL})){{1,20}}\b")
# It begins at the first digit only, and gives none back: long texts take linear time.
_N = r"(?<!\d)(?<!\d[.,])\d++(?:[.,]\d++)*+"
_SPACED = re.compile(r"(?<![\d.,])\d{1,3}(?:[ \u00a0\u2009\u202f]\d{3})++(?!\d)")
_POWER = re.compile(rf"\b({_N}) ?((?:{'|'.join(POWERS_OF_TEN)})[a-z]{{0,2}})\b")
_TENS = "|".join(word for word, value in _VALUES.items() if value >= 20)
_ORDINAL = re.compile(
    rf"(?<=\d)(?:st|nd|rd|th)\b|\b(?:({_TENS})-({'|'.join(LISTS['ordinals'])}|first|second)"
    rf"|({'|'.join(LISTS['ordinals'])}))\b"
)
_ROMAN = re.compile(r"\b(?=[IVX]{2})(X{0,3})(IX|IV|V?I{0,3})\b")
_ONES = {"": 0, "I": 1, "II": 2, "III": 3, "IV": 4, "V": 5, "VI": 6, "VII": 7, "VIII": 8, "IX": 9}
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
_SIGNS: Mapping[str, str] = LISTS["signs"]
_THOUSANDS = {"k": "thousand", "m": "million", "mn": "million", "b": "billion", "bn": "billion"}
_SIGN_AFTER = re.compile(rf"({_N}) ?([%$€£])")
_SIGN_BEFORE = re.compile(rf"([$€£]) ?({_N})(?:({'|'.join(_THOUSANDS)})\b)?")
_BOUNDS = {phrase: bound for bound, phrases in LISTS["bounds"].items() for phrase in phrases}
_BOUND = re.compile(rf"\b({'|'.join(sorted(_BOUNDS, key=len, reverse=True))}) (?=\d)")
_OR_MORE = re.compile(rf"\b({_N}) or (more|less|fewer)\b")
# Numbers in an order that matters: scores, ratios, dates as 03/04/2020. "2-3" and "2 to 3" may be ranges.
_PAIR = re.compile(
    r"(?<![\w./:-])(\d{1,3})([:/]| [:/] | ?[-\u2013] ?| to )(\d{1,3})(?:/(\d{4}))?(?![\w/:-]|[.]\d)"
)
_OPERATOR = re.compile(
    r"((?<=\w)\+\+|(?<=[a-z])\+(?!\w)|(?<=\b[a-z])#(?!\w))|[!=]==?"
    r"|(?:^|(?<=[\w)]) ?)(?:[<>]=?|[≤≥]) ?(?=\d|\(|[a-z]\b(?!>))"
    r"|(?<=[\w)])(?: \+ |\+)(?=[\w(])|(?<=\b[a-z]) - (?=[a-z]\b)"
)
_OPERATORS = {
    **{"++": "plusplus", "+": "plus", "#": "sharp", "-": "less", "<": "below", ">": "above"},
    **{"==": "equals", "!=": "unequal", "===": "identical", "!==": "unidentical"},
    **{"<=": "atmost", "≤": "atmost", ">=": "atleast", "≥": "atleast"},
}
_MINUS = re.compile(r"(?<!\w)(?:minus |\u2212)(?=\d)")
_FRACTION = re.compile(r"(?<!\d)(\d{0,9}) ?([\u00bc-\u00be\u2150-\u215e])")
_EXPONENT = re.compile(r"(?<=\d)[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")
# Numbers in one word. "One" is often a pronoun.
_NUMERALS = {word: str(number) for word, number in _VALUES.items() if word != "one"}
_NUMERALS |= {word: number for number, words in LISTS["numerals"].items() for word in words}
_BARE = re.compile(rf"\b(?:{'|'.join(_NUMERALS)})\b")
_HAS_VALUE = re.compile(rf"\d|\bone\b|{_BARE.pattern}|{_ORDINAL.pattern}|{_OPERATOR.pattern}")
_DURATIONS = frozenset({"second", "minute", "hour", "day", "week", "month", "year"})
_QUANTITY = re.compile(
    rf"(?:({'|'.join(LISTS['bounds'])}) )?((?:(?<![\w)])-)?(?<!\.){_N}(?::\d\d|dot\d+|(?:to\d+)+)?)"
    rf"(?: (?:({'|'.join(LISTS['units'])})|({'|'.join(dict.fromkeys(_MONTHS.values()))})(?: (\d{{4}}))?)\b)?"
)
# 3.10 and 3.1 are different versions.
_VERSION = re.compile(rf"\b((?:{'|'.join(LISTS['versions'])}) |v)(\d{{1,5}})\.(\d{{0,5}}0)\b")
_CAPITALS = re.compile(rf"(?<=\d) ?({'|'.join(LISTS['capitals'])})\b")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in a text and its unit, "" for none, both in canonical form.

    amount: number and unit in the base unit. In a date, month and year are the unit of the day; the year is
    also a number of its own. bound: a key of `bounds` in `words.toml`, as "below" for "less than 5", or "".
    """

    number: str
    unit: str
    amount: str
    bound: str = ""


def final_answer(text: str) -> str:
    r"""Return the text after the last mark of a final answer, without emphasis.

    The marks are `\boxed{..}`, a last line of `####`, and "Answer:" or "The answer is" at the beginning of a
    line or sentence. A text without them is its own final answer, up to a next question of the text model.

    >>> final_answer("Paris is larger.\n**Answer:** Lyon"), final_answer("6 x 7 is **42**.")
    ('Lyon', '6 x 7 is 42.')
    """
    text = _EMPHASIS.sub(lambda found: found[2] or found[3], text.strip())
    text = _NEXT_TURN.split(text, maxsplit=1)[0]
    if boxed := _LATEX_TEXT.sub(r"\1", _boxed(text)).strip():
        return boxed
    if last := _LAST_LINE.search(text):
        return last[1]
    end = max((mark.end() for mark in _ANSWER.finditer(text)), default=0)
    return text[end:]


def _boxed(text: str) -> str:
    """Return the content of the last box, or ""."""
    start, depth = text.rfind(_BOX) + len(_BOX), 1
    for brace in re.finditer(r"[{}]", text[start:]) if start >= len(_BOX) else ():
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return text[start : start + brace.start()]
    return ""


def compared_form(text: str) -> str:
    """Return a text in the form that is embedded: without case, and with its values in one form."""
    if not _HAS_VALUE.search(normalize_text(by_case(text))):
        return unicodedata.normalize("NFKC", text).casefold()
    values = in_one_form(text)
    return re.sub(_N, lambda number: normalize_number(number[0], ""), values)


def quantities(text: str) -> Iterator[Quantity]:
    """Yield the numbers of a text."""
    values = in_one_form(text)
    values = _OR_MORE.sub(lambda found: f"at{'least' if found[2] == 'more' else 'most'} {found[1]}", values)
    values = _BOUND.sub(lambda found: f"{_BOUNDS[found[1]]} ", values)
    for found in _QUANTITY.finditer(values):
        bound, number, unit, month, year = found.groups()
        number, unit = normalize_number(number, ""), unit or " ".join(filter(None, (month, year)))
        if bound in ("earlier", "later") and unit in _DURATIONS:
            bound = ""  # "after 3 days" means the same as "3 days"
        yield Quantity(number, unit, in_base_units(f"{number} {unit}".rstrip()), bound or "")
        if year:
            yield Quantity(year, "", year)


def in_one_form(text: str) -> str:
    """Return a text without case and accents, with its values in one form.

    >>> in_one_form("May 12th, 2024 at 5 p.m."), in_one_form("twelve hundred metres"), in_one_form("C++")
    ('12 may 2024 at 17:00', '1200 metre', 'cplusplus')
    """
    text = _INITIAL.sub(r"\1", normalize_text(by_case(text))).replace("per cent", "percent")
    if not _HAS_VALUE.search(text):
        return text
    text = _SPACED.sub(lambda number: re.sub(r"\s", "", number[0]), _MINUS.sub("-", text))
    text = _VERSION.sub(r"\1\2dot\3", _OPERATOR.sub(_operator, text))
    text = _ORDINAL.sub(_ordinal, _IN_WORDS.sub(_in_digits, text))
    for date in _DATES:
        text = date.sub(_date, text)
    text = _BARE.sub(lambda word: _NUMERALS[word[0]], text)
    text = _POWER.sub(lambda found: normalize_number(found[1], found[2]), text)
    text = _PAIR.sub(_pair, _CLOCK.sub(_time, text))
    text = _SIGN_BEFORE.sub(_money, text)
    text = _SIGN_AFTER.sub(lambda sign: f"{sign[1]} {_SIGNS[sign[2]]}", text)
    return _UNIT.sub(lambda unit: f"{unit[1]} {_UNITS[unit[2] or unit[3]]}", _DEGREES.sub(" ", text))


def by_case(text: str) -> str:
    """Return a text in which what depends on case and on forms of letters is spelled out."""
    if not text.isascii():
        text = _FRACTION.sub(lambda found: f"{int(found[1] or 0) + unicodedata.numeric(found[2]):g}", text)
        text = _EXPONENT.sub(lambda found: f"^{unicodedata.normalize('NFKC', found[0])}", text)
        text = text.replace("≠", "!=")
    text = _CAPITALS.sub(lambda unit: f" {LISTS['capitals'][unit[1]]}", text)
    text = _ROMAN.sub(lambda roman: str(10 * len(roman[1]) + _ONES[roman[2]]), text)
    return re.sub(r"\bmay\b", "might", text)  # the month has a capital


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


def _operator(found: re.Match[str]) -> str:
    word = _OPERATORS[found[0].strip()]
    return word if found[1] else f" {word} "


def _ordinal(found: re.Match[str]) -> str:
    tens, ones, word = found.groups()
    if tens:
        return str(_VALUES[tens] + {**LISTS["ordinals"], "first": 1, "second": 2}[ones])
    return str(LISTS["ordinals"][word]) if word else ""


def _date(found: re.Match[str]) -> str:
    if "number" in found.re.groupindex:
        month = next(iter(LISTS["months"].get(found["number"].lstrip("0"), [])), found["number"])
    else:
        month = _MONTHS[found["month"]]
    return f"{int(found['day'])} {month} {found['year'] or ''}".rstrip()


def _pair(found: re.Match[str]) -> str:
    """Return a pair in which the order matters as one number ("3to2"), and a fraction as a decimal number."""
    first, sign, second, year = int(found[1]), found[2].strip(), int(found[3]), found[4]
    if (found[2] == ":" and len(found[3]) > 1) or (sign not in (":", "/") and first <= second):
        return found[0]  # a time, or maybe a range
    if sign == "/" and not year and 0 < first < second:
        return f"{first / second:g}"
    return "to".join(str(part) for part in (first, second, year) if part is not None)


def _time(found: re.Match[str]) -> str:
    hour, minute = int(found[1] or found[4]), int(found[2] or found[5] or 0)
    if found[3]:
        hour = hour % 12 + 12 * (found[3] == "p")
    return f"{hour:02}:{minute:02}"


def _money(found: re.Match[str]) -> str:
    return f"{normalize_number(found[2], _THOUSANDS.get(found[3], ''))} {_SIGNS[found[1]]}"
