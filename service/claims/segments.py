"""A text split into sentences, list items and table rows, each with its place in the text.

markdown-it finds the blocks of Markdown and sentencex the sentences. Inline marks are parsed here, because no
Markdown parser returns their places. The time is linear in the length of any text.
"""

import html
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise, zip_longest
from typing import Literal

import regex
from markdown_it import MarkdownIt
from markdown_it.token import Token
from sentencex import get_sentence_boundaries

from service.claims.courtesies import is_courtesy

# Embedders read 256 to 384 tokens, about 1,000 characters of English, and ignore the rest. So longer
# sentences are cut, at a space if possible.
MAX_CHARS = 1000
# A longer paragraph is read piece by piece: sentencex takes quadratic time on quotes left open.
WINDOW = 8000

_LINE_END = re.compile(r"\r\n?|\n")
_UNENCODABLE = re.compile("[\ud800-\udfff\0]")
_ENDS = ".!?…。！？｡।؟۔"
_CLOSERS = "\"'”’“»«›)]}）」』》】*_`~ \t\ufe0f\u200d\u200b"
_WORD = re.compile(r"[^\W_]")
_SPACE = re.compile(r"\s")
# A short line ends a sentence, unless it is the last of its paragraph: wrapped lines are long.
_WRAPPED_CHARS = 50
_BULLET = re.compile(r"[•‣◦▪●○■►➤·✓✔✅☑❌]️?\s*")
_DEFINITION = re.compile(r"\[[^\[\]^]{1,200}\]:\s*<?(?:https?:|mailto:|www\.|[/#.])")
_CONTAINER_MARKS = re.compile(r"(?:[\s>]|[-*+](?=\s|$)|\d{1,9}[.)](?=\s|$))*")
_ROW_MARKS = re.compile(r"[\s>]*(?:(?:[-*+]|\d{1,9}[.)])\s+(?=\|))?")
_PIPE = re.compile(r"(?<!\\)\|")
_BOLD = re.compile(r"\*\*[^*:]+:?\*\*:?|__[^_:]+:?__:?")

# Every repetition is bounded, so that a mark left open costs a bounded look ahead.
_MARK = re.compile(
    r"(?<!`)(?P<ticks>`{1,3})(?!`)(?P<code>[^`]{1,2000}|(?:[^`]{0,500}``?){1,9}[^`]{1,500})(?<!`)(?P=ticks)(?!`)"
    r"|(?P<image>!)?\[(?P<label>[^\[\]]{0,500})\]\(\s{0,9}<?[^()\s<>]{0,2000}"
    r"(?:\([^()\s<>]{0,200}\)[^()\s<>]{0,200}){0,2}>?"
    r"(?:\s{1,9}(?:\"[^\"]{0,500}\"|'[^']{0,500}'))?\s{0,9}\)"
    r"|<(?P<address>(?:https?://|mailto:)[^\s<>]{1,2000})>"
    r"|(?P<tag></?[A-Za-z][^<>]{0,500}>)"
    r"|(?P<note>\[\^[^\[\]\s]{1,50}\]:?)"
    r"|\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<entity>&(?:\#\d{1,7}|\#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});)"
    r"|(?P<emphasis>\*{1,3}|_{1,3}|~~)"
)


@dataclass(frozen=True, slots=True)
class Segment:
    """A sentence, list item or table row of a text.

    text: its words, without Markdown's marks; of a row each cell after its column's name. start, end: its
    span text[start:end] in characters of the original, marks included.
    """

    text: str
    start: int
    end: int


Role = Literal["prose", "item", "row", "quote", "title"]


def sentences(text: str) -> list[Segment]:
    """Return the sentences, list items and table rows of a text, in order.

    Headings, code and segments without a letter or digit are left out. Spans are ascending and disjoint.
    """
    return [segment for segment, role in _segments(text) if role != "title"]


def claims(answer: str, *, question: str = "") -> list[Segment]:
    """Return the sentences of an answer without courtesies, questions, lead-ins and the user's words.

    A lead-in ends with a colon. The user's words are a sentence of `question` or a block quote from it.
    Drawn answers are reduced in the same way, because a repeated question is near to every claim.
    """
    whole, by_sentence = _letters_of_question(question)
    return [
        segment
        for segment, role in _segments(answer)
        if role != "title"
        and not segment.text.endswith((":", "："))
        and not is_question(segment.text)
        and not is_courtesy(segment.text)
        and _normal(segment.text) not in by_sentence
        and not (role == "quote" and _normal(segment.text) in whole)
    ]


@lru_cache(maxsize=8)  # the answers to a question are read one after another
def _letters_of_question(question: str) -> tuple[str, frozenset[str]]:
    """Return the letters and digits of a question, and the letters and digits of each sentence."""
    segments = (segment for segment, role in _segments(question) if role != "item")
    sentences_ = (_normal(segment.text) for segment in segments if _ended(segment.text))
    return _normal(question), frozenset(sentences_)


def is_question(sentence: str) -> bool:
    """Return whether a sentence asks: it ends with a question mark, outside of quotes or all in quotes."""
    bare = sentence.rstrip("*_)）] \u200b\ufe0f!！.…")
    if bare.endswith(("?", "？", "؟", "⁇", "⁉")):
        return True
    inner = bare.rstrip("\"'”’“»«›」』")
    return inner.endswith(("?", "？", "؟")) and bare[:1] in "\"'“„«‹‘「『¿»"


def _ended(sentence: str) -> bool:
    return sentence.rstrip(_CLOSERS).endswith(tuple(_ENDS))


def _normal(text: str) -> str:
    """Return only the letters and digits of a text, without case."""
    return "".join(_WORD.findall(text.casefold()))


Span = tuple[int, int]


@cache
def _markdown() -> MarkdownIt:
    """Return a parser that finds only blocks. It treats HTML and link definitions as prose."""
    parser = MarkdownIt("commonmark").enable("table")
    parser.block.ruler.disable(["html_block", "reference"])
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


class _Lines:
    """The lines of a text as Markdown counts them."""

    def __init__(self, text: str) -> None:
        self.text = text
        breaks = [match.span() for match in _LINE_END.finditer(text)]
        self.starts = [0, *(end for _, end in breaks)]
        self.ends = [*(start for start, _ in breaks), len(text)]

    def span(self, line: int, marks: re.Pattern[str]) -> Span:
        """Return a line's span after the marks at its beginning, without the white space at its end."""
        match = marks.match(self.text, self.starts[line], self.ends[line])
        start = match.end() if match else self.starts[line]
        return start, max(start, self._end(line))

    def spans(self, inline: Token) -> list[Span]:
        """Return the spans of the lines of a block's content, without blank lines."""
        spans = []
        line = (inline.map or [0])[0]
        for content in map(str.strip, inline.content.split("\n")):
            while not self.text.endswith(content, self.starts[line], self._end(line)):
                line += 1
            if content:
                spans.append((self._end(line) - len(content), self._end(line)))
                line += 1
        return spans

    def _end(self, line: int) -> int:
        start = self.starts[line]
        return start + len(self.text[start : self.ends[line]].rstrip())


@dataclass(frozen=True, slots=True)
class _Block:
    spans: list[Span]
    role: Role
    columns: tuple[str, ...] = ()


def _blocks(lines: _Lines) -> list[_Block]:
    """Return the blocks with words, in order, without headings and code."""
    blocks: list[_Block] = []
    read = bytearray(len(lines.starts))
    items = quotes = 0
    columns: tuple[str, ...] = ()
    tokens = _markdown().parse(lines.text)
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        items += _nesting(token, "list_item")
        quotes += _nesting(token, "blockquote")
        role: Role = "quote" if quotes else "item" if items else "prose"
        if token.map and token.type not in _CONTAINERS:
            read[token.map[0] : token.map[1]] = b"\1" * (token.map[1] - token.map[0])
        if token.type == "paragraph_open" and after:
            blocks.append(_Block(lines.spans(after), role))
        elif token.type == "heading_open" and after and token.markup in "-=" and _ended(after.content):
            # A rule directly below a paragraph makes it a heading, which is not intended.
            blocks.append(_Block(lines.spans(after), role))
        elif token.type == "tr_open" and token.map:
            cells = _cells(lines.text, lines.span(token.map[0], _ROW_MARKS))
            if before and before.type == "thead_open":
                columns = tuple(_plain(lines.text, [cell])[0].strip(" :：") for cell in cells)
            else:
                blocks.append(_Block(cells, "row", columns))
    # The parser has a maximum depth of lists and quotes, and returns no tokens for deeper lines.
    for line, is_read in enumerate(read):
        span = (0, 0) if is_read else lines.span(line, _CONTAINER_MARKS)
        if span[0] < span[1]:
            blocks.append(_Block([span], "prose"))
    blocks = sorted((block for block in blocks if block.spans), key=lambda block: block.spans[0])
    bold = [_is_bold(lines.text, block) for block in blocks]
    return [
        # A bold line is a heading, unless the next block is bold too. The first block may be the answer.
        replace(block, role="title") if number and bold[number : number + 2] == [True, False] else block
        for number, block in enumerate(blocks)
    ]


_CONTAINERS = {"blockquote_open", "bullet_list_open", "ordered_list_open", "list_item_open"}


def _nesting(token: Token, kind: str) -> int:
    return (token.type == f"{kind}_open") - (token.type == f"{kind}_close")


def _is_bold(text: str, block: _Block) -> bool:
    """Return whether a block is one line in bold, neither a sentence nor a label with its value."""
    if block.role != "prose" or len(block.spans) != 1:
        return False
    start, end = block.spans[0]
    return _BOLD.fullmatch(text, start, end) is not None and not _ended(text[start:end])


def _cells(text: str, row: Span) -> list[Span]:
    """Return the spans of a table row's cells, empty ones too."""
    pipes = [match.start() for match in _PIPE.finditer(text, *row)]
    edges = [row[0] - 1, *pipes, row[1]]
    cells = [_stripped(text, left + 1, right) for left, right in pairwise(edges)]
    if text.startswith("|", row[0]):
        cells = cells[1:]
    return cells[:-1] if len(cells) > 1 and pipes and pipes[-1] == row[1] - 1 else cells


def _stripped(text: str, start: int, end: int) -> Span:
    inner = text[start:end]
    start += len(inner) - len(inner.lstrip())
    return start, start + len(inner.strip())


def _segments(text: str) -> Iterator[tuple[Segment, Role]]:
    """Yield the segments of a text, each with the role of its block."""
    text = _UNENCODABLE.sub("\ufffd", text)
    language = _language(text)
    for block in _blocks(_Lines(text)):
        segments = _row(text, block) if block.role == "row" else _prose(text, block.spans, language)
        for segment in segments:
            if _WORD.search(segment.text):
                yield segment, block.role


def _row(text: str, block: _Block) -> Iterable[Segment]:
    """Return a row as one segment, each cell after its column's name; a very long row as prose."""
    words = [_plain(text, [cell])[0] for cell in block.spans]
    named = [
        f"{name}: {cell}" if name else cell
        for cell, name in zip_longest(words, block.columns[: len(words)], fillvalue="")
        if cell
    ]
    start, end = block.spans[0][0], block.spans[-1][1]
    joined = " ".join("; ".join(named).split())
    return [Segment(joined, start, end)] if len(joined) <= MAX_CHARS else _prose(text, [(start, end)], "en")


def _prose(text: str, lines: list[Span], language: str) -> Iterator[Segment]:
    """Yield the sentences of a block's lines."""
    plain, places = _plain(text, lines)
    units = []
    at = 0
    for line in plain.split("\n"):
        units += [(at + start, at + end) for start, end in _sentences(line, language)]
        at += len(line) + 1
    if not units:
        return
    spans = [(places[start], places[end - 1] + 1) for start, end in units]
    # Marks that touch a sentence belong to its span.
    reached = lines[0][0]
    following = [start for start, _ in spans[1:]] + [lines[-1][1]]
    for unit, span, limit in zip(units, spans, following, strict=True):
        start, end = span
        while start > reached and not text[start - 1].isspace():
            start -= 1
        while end < limit and not text[end].isspace():
            end += 1
        reached = end
        yield Segment(" ".join(plain[slice(*unit)].split()), start, end)


def _plain(text: str, lines: list[Span]) -> tuple[str, "array[int]"]:
    """Return the words of a block without its marks, and the place of each character in the text.

    A line that ends a sentence (a break, a short line, a bullet after it) ends with a newline, others with a
    space.
    """
    raw: list[str] = []
    places = array("q")
    for number, (start, end) in enumerate(lines):
        if _DEFINITION.match(text, start, end):
            continue
        bullet = _BULLET.match(text, start, end)
        if raw:
            last_start, last_end = lines[number - 1]
            hard = text.startswith(("  ", "\\"), last_end)
            short = last_end - last_start < _WRAPPED_CHARS and not text[start:end][:1].islower()
            raw.append("\n" if bullet or hard or short else " ")
            places.append(last_end)
        begin = bullet.end() if bullet else start
        raw.append(text[begin:end])
        places.extend(range(begin, end))
    return _unmarked("".join(raw), places)


def _unmarked(raw: str, places: "array[int]") -> tuple[str, "array[int]"]:
    """Return a text without its inline marks, and the place of each remaining character."""
    words: list[str] = []
    kept = array("q")

    def keep(start: int, end: int) -> None:
        words.append(raw[start:end])
        kept.extend(places[start:end])

    reached = 0
    for mark in _MARK.finditer(raw):
        keep(reached, mark.start())
        reached = mark.end()
        if mark["label"] is not None and not mark["image"]:
            label, inner = _unmarked(mark["label"], places[mark.start("label") : mark.end("label")])
            words.append(label)
            kept.extend(inner)
        elif mark["tag"] or mark["entity"]:
            new = html.unescape(mark["entity"]) if mark["entity"] else _tag_words(mark["tag"])
            words.append(new)
            kept.extend([places[mark.start()]] * len(new))
        elif mark["emphasis"] and not _is_emphasis(raw, mark):
            keep(*mark.span())
        else:
            for group in ("code", "address", "escaped"):
                if mark[group]:
                    keep(*mark.span(group))
    keep(reached, len(raw))
    return "".join(words), kept


def _tag_words(tag: str) -> str:
    return "\n" if tag[1:3].lower() == "br" else ""


def _is_emphasis(raw: str, mark: re.Match[str]) -> bool:
    """Return whether stars, underscores or tildes are marks: in 2 * 3, 2**3 and snake_case they are not."""
    before = raw[mark.start() - 1] if mark.start() else " "
    after = raw[mark.end()] if mark.end() < len(raw) else " "
    if before.isspace() and after.isspace():
        return False
    inside = str.isdigit if mark[0] in ("**", "***", "~~") else str.isalnum
    return not (inside(before) and inside(after))


# Cases that sentencex 1.0.32 gets wrong. No sentence ends with a German ordinal (im 13. Jahrhundert), with
# these abbreviations, with a non-ASCII initial or a hyphenated first name (J.-J.). The second list applies
# before numbers.
_GOES_ON = regex.compile(
    r"(?:\b(?:[Ii]m|[Aa]m|[Vv]om|[Zz]um|[Bb]eim|[Dd](?:e[rmns]|as|ie)|und|bis) \d{1,2}"
    r"|\b(?:[DMP]rs?|St|bd|им|дер|рис|табл)|['’]art|(?<!\w)[\p{Lu}--[A-Z]]|\b\p{Lu}\.-\p{Lu})\.\s$",
    regex.V1,
)
_BEFORE_NUMBER = regex.compile(
    r"\b(?:a?pp?rox|env|vol|eq|ок|прим|janv|févr?|avr|juil|sept|oct|nov|déc|ene|abr|ago|dic|янв|фев|авг|окт)\.\s$",
    regex.IGNORECASE,
)
_NUMBER = re.compile(r"[(~$€]?\d")
_LOWER = regex.compile(r"[«\"'„“(]?\p{Ll}")
# A sentence ends with a unit, a German quotation, a parenthesis or these words, if a capital follows.
_MORE_ENDS = regex.compile(
    r"(?:(?<=\d)\s?(?:[mghlstмтлч]|min|мин)\.|[.!?…][“«]|(?<=[.!?…]\s)\([^()]{1,500}[.!?…]\)"
    r"|(?<=\s)(?:no|mar)\.)\s+(?=[¡¿]?\p{Lu})"
)


def _sentences(text: str, language: str) -> Iterator[Span]:
    """Yield the spans of a line's sentences, at most MAX_CHARS long, without the white space around them."""
    at = 0
    while at < len(text):
        window = text[at : at + WINDOW]
        ends = _ends(window, language)
        if at + WINDOW < len(text) and len(ends) > 1:
            del ends[-1]  # The last sentence of a window goes on after it.
        for start, end in pairwise([0, *ends]):
            yield from _cut(text, *_stripped(text, at + start, at + end))
        at += ends[-1]


def _ends(text: str, language: str) -> list[int]:
    """Return where sentences end, the end of the text included."""
    # White space beyond ASCII makes sentencex panic.
    plain = _SPACE.sub(" ", text)
    ends = {boundary["end_index"] for boundary in get_sentence_boundaries(language, plain)}
    lower = text.islower()
    ends = {end for end in ends if not _goes_on(text, end, lower)}
    ends.update(match.end() for match in _MORE_ENDS.finditer(text))
    return [*sorted(end for end in ends if end < len(text)), len(text)]


def _goes_on(text: str, end: int, lower: bool) -> bool:
    """Return whether a sentence goes on where sentencex ends it. `lower`: the text has no capitals."""
    before, after = text[max(end - 30, 0) : end], text[end : end + 30]
    if not before[-1:].isspace() and before.endswith("."):
        return True
    if _LOWER.match(after) and before.rstrip().endswith((".", "…")) and not lower:
        return True
    if _NUMBER.match(after) and _BEFORE_NUMBER.search(before):
        return True
    return _GOES_ON.search(before) is not None


def _cut(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield a sentence in pieces of at most MAX_CHARS, cut at a space where the second half has one."""
    while end - start > MAX_CHARS:
        limit = start + MAX_CHARS
        space = text.rfind(" ", limit - MAX_CHARS // 2, limit)
        cut = space if space > 0 else _between_characters(text, limit)
        yield _stripped(text, start, cut)
        start = _stripped(text, cut, end)[0]
    if start < end:
        yield start, end


def _between_characters(text: str, limit: int) -> int:
    """Return the last place up to limit that parts no mark from its letter, and no joined emoji."""
    for at in range(limit, limit - 50, -1):
        joined = "\u200d\ufe0f"
        if not unicodedata.combining(text[at]) and text[at] not in joined and text[at - 1] not in "\u200d":
            return at
    return limit


_FUNCTION_WORDS = {
    "en": "the of and in is was a to it that for with on are by as from this which be",
    "de": "der die das und ist in den von zu mit im am ein eine nicht auf wurde er es sich",
    "fr": "le la les des et est en du un une dans que qui pour il par sur au au pas",
    "es": "el la los las y en es del que un una por con para se su fue al no como",
}
_LANGUAGES = {
    word: [code for code, words in _FUNCTION_WORDS.items() if word in words.split()]
    for word in " ".join(_FUNCTION_WORDS.values()).split()
}


def _language(text: str) -> str:
    """Return the language whose abbreviations apply, by script and function words; English where unsure."""
    text = text[:5000].lower()
    if len(re.findall("[а-яё]", text)) > len(re.findall("[a-z]", text)):
        return "ru"
    counts = Counter(code for word in re.findall(r"\w+", text) for code in _LANGUAGES.get(word, ()))
    return max(_FUNCTION_WORDS, key=lambda code: counts[code])
