"""Answers without content: refusals, placeholders, errors, in ten languages.

The phrases are in `refusals.toml`. A phrase counts if it is the whole answer or begins every sentence:
"I don't know, maybe Paris" is an answer. A right answer that equals such a phrase, such as a song title,
counts as a refusal.
"""

import json
import re
import tomllib
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.claims.courtesies import is_courtesy, plain
from service.llm.samples import is_blank

# A longer text says more than a refusal.
_MAX_CHARS = 600

# As machines write them, in exactly this case: "Null" is the German zero.
_PLACEHOLDERS = frozenset({"null", "NULL", "NaN", "undefined", "object Object"})

_PHRASES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _any_of(kind: str) -> str:
    phrases = (phrase for table in _PHRASES.values() for phrase in table.get(kind, ()))
    return "|".join(phrase.casefold().replace("'", "'?") for phrase in phrases)


_WHOLE = re.compile(_any_of("alone"))
_LEAD = re.compile(
    rf"(?:(?:{_any_of('before')})(?!\w)[,，、:\s]*"
    r"(?:(?:(?:but|however|aber|mais|pero|но)(?!\w)|但是?|不过)[,，\s]*)?)+"
)
_REFUSING = re.compile(_any_of("opening"))
_AFTER = re.compile(_any_of("after"))
_LABEL = re.compile(
    r"\W*(?:(?:the )?(?:final )?answer(?: is)?|a|antwort|réponse ?|risposta|respuesta|resposta|ответ"
    r"|答案?|回答)[:：]",
    re.IGNORECASE,
)
# Where another statement may begin; a reason may follow.
_PIECE = re.compile(r"[,，、]| [-–—] |—|但是?|(?<!\w)(?:but|aber|mais|pero|но)(?!\w)")
_REASON = re.compile(
    r"(?:since|because|da|weil|car|puisque|parce que|porque|ya que|так как|поскольку|потому что)(?!\w)"
    r"|因为|由于"
)
_JOINS = re.compile(r"(?:and|as|so|und|et|y|и)\s+|所以")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_EDGES = re.compile(r"^\W+|\W+$")
_TAGS = "\U000e0000"  # from here on, invisible characters that can spell any text
_IGNORED = frozenset("PZMC")  # Unicode categories: punctuation, spaces, marks, control characters
_FENCE = re.compile(r"```\w*\s*(.*?)\s*```", re.DOTALL)
_ERRORS = frozenset({"error", "errors", "exception"})
_OF_ERRORS = frozenset(
    {
        "code",
        "status",
        "status_code",
        "message",
        "detail",
        "details",
        "type",
        "title",
        "reason",
        "request_id",
        "retry_after",
    }
)


def is_refusal(answer: str, question: str | None = None) -> bool:
    """Return True for a refusal, a placeholder, an error, punctuation, and a repetition of the question.

    Return False for a blank text: the settings decide how empty answers are treated.
    """
    text = answer.strip()
    if is_blank(text):
        return False
    may_repeat = question is not None and len(question) <= 2 * len(text) <= 4 * len(question)
    if question and may_repeat and essence(text) == essence(question):
        return True
    if len(text) > _MAX_CHARS:
        return False
    if fenced := _FENCE.fullmatch(text):
        text = fenced[1]
    if label := _LABEL.match(text):
        text = text[label.end() :].strip() or text
    is_bare = not any(map(str.isalnum, text)) and not essence(text).strip("`")
    if is_bare or (text[0] in "{[" and _is_empty_json(text)):
        return True
    if _EDGES.sub("", text) in _PLACEHOLDERS or _WHOLE.fullmatch(plain(text)):
        return True
    sentences = [sentence for sentence in _SENTENCE.split(text) if any(map(str.isalnum, sentence))]
    refusing = [is_refusing(sentence) for sentence in sentences]
    # Offers of help, advice and questions to the user do not make a refusal an answer.
    others = [sentence for sentence, refuses in zip(sentences, refusing, strict=True) if not refuses]
    return any(refusing) and all(_says_nothing(s) or s.rstrip().endswith(("?", "？")) for s in others)


def is_unanswered(judged: bool, drawn: NDArray[np.bool_]) -> bool:
    """Return True if the judged text is a refusal, or more than half of the drawn answers, (m,), are."""
    return judged or 2 * int(drawn.sum()) > drawn.size


def essence(text: str) -> str:
    """Return the text without case, accents, spaces and punctuation. Invisible letters ("tags") remain."""
    plain_text = unicodedata.normalize("NFKD", text.casefold())
    ignored = (char for char in set(plain_text) if unicodedata.category(char)[0] in _IGNORED)
    return plain_text.translate(dict.fromkeys(ord(char) for char in ignored if char < _TAGS))


def is_refusing(sentence: str) -> bool:
    """Return True if the whole sentence is a refusal."""
    text = plain(sentence)
    lead = _LEAD.match(text)
    start = lead.end() if lead else 0
    if _WHOLE.fullmatch(text, start):
        return True
    begin = _REFUSING.match(text, start)
    if begin is None:
        return False
    rest = text[begin.end() :]
    pieces = [_JOINS.sub("", plain(piece), count=1) for piece in _PIECE.split(rest)[1:]]
    return not re.search(r"[:;：；]\s*\S", rest) and all(
        not piece or _REASON.match(piece) or _says_nothing(piece) or is_refusing(piece) for piece in pieces
    )


def _says_nothing(sentence: str) -> bool:
    """Return True for a courtesy, an apology alone, and advice that may follow a refusal."""
    text = plain(sentence)
    return is_courtesy(sentence) or bool(_AFTER.match(text) or _LEAD.fullmatch(text))


def _is_empty_json(text: str) -> bool:
    """Return True for JSON that holds an error, or only nulls, empty texts and refusals."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    is_object = isinstance(value, dict)
    stated = [value.get(name) for name in _ERRORS] if is_object else []
    is_error = any(value is True or isinstance(value, str | dict | list) for value in stated)
    if is_error or (is_object and value.get("status") in ("error", "failed")):
        return set(value) <= _ERRORS | _OF_ERRORS
    leaves, left = list[Any](), [value]
    while left:
        node = left.pop()
        if isinstance(node, dict | list):
            left += node.values() if isinstance(node, dict) else node
        else:
            leaves.append(node)
    return all(leaf is None or (isinstance(leaf, str) and (not leaf or is_refusal(leaf))) for leaf in leaves)
