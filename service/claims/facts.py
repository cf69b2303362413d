"""The words of a sentence that its question lacks, and the numbers and names of claims.

The kernel has rules of its own for numbers with units and for names: `kernel.py`.
The language is not known, so some facts are not recognised.
"""

import re
import string
import tomllib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation, Overflow
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path

# A sentence restates the question if at least this share of its words are the question's.
RESTATES = 1 / 3
# A longer prompt contains material to answer from, and the answer may stand in it.
MAX_ASKED, MAX_QUESTION = 100, 1000  # words, characters
_QUESTION_MARK = re.compile(r"[\uff1f\u061f]|\?(?!\w)")
_QUESTION_START = re.compile(r"[.!?:]\s|[\n\u3002\uff01\uff1f\u061f]")
# Words between alternatives ("steel or aluminium"), and how far those reach, in words.
ALTERNATIVES = frozenset({"or", "oder", "ou", "o", "eller", "или"})
NEAR_ALTERNATIVE = 4
MAX_QUESTIONS = 20  # in a prompt with more questions, they are not distinguished

# Lists of words by language: negations, numerals, units.
LISTS = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
_NEGATED = re.compile(
    rf"(?:\b(?:{'|'.join(LISTS['negations'])})\b|n['\u2019]t\b)"
    r"(?! (?:more|less|fewer|later|earlier) than)\W*(\w*)"
)
_UNNEGATED = frozenset(LISTS["unnegated"])
_NO_NAMES = frozenset(LISTS["no_names"])
_SPACES = " \u00a0\u2009\u202f"
_WORD = re.compile(
    rf"(?P<number>(?:(?<![^\s(])[-\u2212])?(?:\d{{1,3}}(?:[{_SPACES}]\d{{3}})+(?!\d)|\d+)(?:[.,]\d+)*)"
    r"|[^\W\d_]+"
)
_WORD_RUN = re.compile(r"\w+")
_SENTENCE_END = re.compile(r"[.!?:;\n\u3002\uff01\uff1f]")
_GROUPS = re.compile(rf"[{_SPACES}]|[.,](?=\d{{3}}(?!\d))")
_QUESTION = re.compile(r"[^?\uff1f\u061f]+([?\uff1f\u061f]?)")
# Of a number, by the beginning of the word behind it.
POWERS_OF_TEN = {"thousand": 3, "tausend": 3, "million": 6, "milliard": 9, "billion": 9, "trillion": 12}


@dataclass(frozen=True, slots=True)
class Word:
    """A word or a number of a text, and its place there.

    plain: without case and accents; numbers in one form. is_initial: first of a sentence.
    """

    plain: str
    is_number: bool
    has_capital: bool
    is_initial: bool
    start: int
    end: int


def beyond(sentences: Sequence[str], question: str) -> list[str]:
    """Return each sentence without the question's words if they are at least `RESTATES` of it, but not all.

    Embeddings of sentences that repeat the question are nearly equal.
    """
    question_words, remainders = words_of_question(question), list[str]()
    for sentence in sentences:
        words = sentence.split()
        left = [word for word in words if _bare(word) not in question_words]
        restates = len(words) - len(left) >= RESTATES * len(words)
        remainders.append(" ".join(left) if left and restates else sentence)
    return remainders


def facts(sentences: Sequence[str], *, question: str = "") -> list[set[str]]:
    """Return the numbers and names of each sentence.

    A name is a word with a capital. The first word of a sentence is a name if it has a capital inside another
    sentence or the question ("Paris is ..", "the capital is Paris"), or if the sentence restates the question
    and the word occurs nowhere without a capital. In scripts without capitals only numbers are found.
    """
    *by_sentence, question_words = map(read_words, [*sentences, question])
    texts = [*by_sentence, question_words]
    named = {word.plain for words in texts for word in words[1:] if word.has_capital}
    common = {word.plain for words in texts for word in words if not word.has_capital}
    facts_of_sentences = list[set[str]]()
    for sentence, left, words in zip(sentences, beyond(sentences, question), by_sentence, strict=True):
        first = named if left == sentence else named | ({word.plain for word in words[:1]} - common)
        facts_of_sentences.append(
            {
                word.plain
                for i, word in enumerate(words)
                if word.is_number or (word.has_capital and (i > 0 or word.plain in first))
            }
        )
    return facts_of_sentences


def fact_places(sentences: Sequence[str], question: str) -> list[list[tuple[int, int]]]:
    """Return the places (begin, end) of the numbers and names in each sentence that the question lacks.

    For a sentence without such facts: the places of all its words that the question lacks.
    """
    question_words, places = words_of_question(question), list[list[tuple[int, int]]]()
    for sentence, sentence_facts in zip(sentences, facts(sentences, question=question), strict=True):
        words = [word for word in read_words(sentence) if word.plain not in question_words]
        is_fact = [word.plain in sentence_facts and word.plain not in _NO_NAMES for word in words]
        own = [word for word, chosen in zip(words, is_fact, strict=True) if chosen] or words
        places.append([(word.start, word.end) for word in own])
    return places


def possible_questions(texts: Sequence[str], prompt: str) -> list[frozenset[int]]:
    """Return the questions of a prompt that each text may answer: those that share most names and numbers.

    {0} for a prompt with one question. The number before a question in a list is ignored.
    """
    parts = [*_QUESTION.finditer(asked_part(prompt))]
    if not 1 < sum(bool(part[1]) for part in parts) <= MAX_QUESTIONS:
        return [frozenset({0})] * len(texts)
    questions = [
        {
            word.plain
            for word in read_words(part[0])
            if (word.is_number or word.has_capital) and not word.is_initial
        }
        for part in parts
    ]
    possible = list[frozenset[int]]()
    for text in texts:
        words = {word.plain for word in read_words(text)}
        shared = [len(words & facts) for facts in questions]
        possible.append(frozenset(i for i, number in enumerate(shared) if number == max(shared)))
    return possible


def negated_words(text: str) -> set[str]:
    """Return the word after each negation in a text ("" if none follows), except those in `unnegated`."""
    return set(_NEGATED.findall(normalize_text(text))) - _UNNEGATED


def asked_part(prompt: str) -> str:
    """Return the question in a prompt: the whole prompt, or the last question of a long prompt.

    A long prompt has more than `MAX_ASKED` words or `MAX_QUESTION` characters. "" if it has no question mark.
    """
    if len(prompt.split()) <= MAX_ASKED and len(prompt) <= MAX_QUESTION:
        return prompt
    end = max((match.end() for match in _QUESTION_MARK.finditer(prompt)), default=0)
    last = prompt[max(end - MAX_QUESTION, 0) : end]
    start = max((match.end() for match in _QUESTION_START.finditer(last, 0, len(last) - 1)), default=0)
    return last[start:].strip()


@lru_cache(maxsize=16)  # a score needs them more than once
def words_of_question(question: str) -> frozenset[str]:
    """Return the words of a question that its answers need not repeat: all but those near an "or"."""
    words = asked_part(question).split()
    # "lion's" as a whole, and "lion": texts are read both ways.
    forms = [{_bare(word), *(part.plain for part in read_words(word))} for word in words]
    # Neither "o'clock" nor "où" is an "or".
    places = [i for i, word in enumerate(words) if word.strip(string.punctuation).casefold() in ALTERNATIVES]
    near = {j for i in places for j in range(i - NEAR_ALTERNATIVE, i + NEAR_ALTERNATIVE + 1)}
    offered = {form for j, of_word in enumerate(forms) if j in near for form in of_word}
    return frozenset(form for of_word in forms for form in of_word) - offered


def _bare(word: str) -> str:
    """Return a word without the marks around it, case and accents."""
    return normalize_text(
        word.strip(string.punctuation + "\u201c\u201d\u2018\u2019\u00ab\u00bb\u00bf\u00a1\u2026")
    )


def read_words(text: str) -> list[Word]:
    """Return the words and numbers of a text. "5 million" counts as a single number."""
    words, matches, end = list[Word](), [*_WORD.finditer(text)], 0
    for match, following in zip_longest(matches, matches[1:]):
        word, is_number = match.group(), match["number"] is not None
        if is_number:
            plain = normalize_number(word, normalize_text(following.group()) if following else "")
        else:
            plain = normalize_text(word)
        if plain:
            # "J. Smith" is one sentence.
            after_initial = bool(words) and len(words[-1].plain) == 1
            is_initial = not words or (
                not after_initial and _SENTENCE_END.search(text, end, match.start()) is not None
            )
            has_capital = not is_number and word[0].isupper()
            words.append(Word(plain, is_number, has_capital, is_initial, *match.span()))
            end = match.end()
    return words


def normalize_number(text: str, following: str) -> str:
    """Return a number in canonical form. Dates and versions are returned unchanged.

    following: the word behind it, which may be a power of ten ("5 million"). "3.141" is read as 3141.
    """
    bare = _GROUPS.sub("", text).replace(",", ".").replace("\u2212", "-")
    exact = Context(prec=len(bare) + max(POWERS_OF_TEN.values()))
    power = next((power for word, power in POWERS_OF_TEN.items() if _is_form(following, word)), 0)
    try:
        return f"{Decimal(bare).scaleb(power, exact).normalize(exact):f}"
    except (InvalidOperation, Overflow):
        return bare


def _is_form(word: str, singular: str) -> bool:
    return word.startswith(singular) and len(word) <= len(singular) + 2  # "millions", "Millionen"


def words(text: str) -> list[str]:
    r"""Return the words of a text in any script: `\w+` after NFKC and case folding.

    Punctuation separates words. Scripts without spaces give one word per run of letters.

    >>> words("Straße, CAFÉ!")
    ['strasse', 'café']
    """
    # Normalised twice, because case folding may undo the normal form.
    return _WORD_RUN.findall(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()))


def normalize_text(text: str) -> str:
    """Return a text without case and accents."""
    if text.isascii():
        return text.lower()
    bare = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return bare.casefold()
