"""Cutting texts to what a model reads, before they are tokenised: else all is tokenised, and most dropped."""

from collections.abc import Callable
from typing import Any

CHARACTERS_PER_TOKEN = 8  # of the first try; English has four or five
GROWTH = 4


class TextCut:
    """Cuts a text where the tokens before the cut fill the model already: its vector stays the same.

    A beginning is tried that four times as long does not change: all tokens but those of its last word, which
    the cut may have gone through, are at least as many as the model reads. So words that become one token
    however long they are, spaces, and characters that the tokenizer drops, are read on over.

    `count` returns the number of tokens of a text without those of its last word.
    """

    def __init__(self, count: Callable[[str], int], longest: int) -> None:
        self._count = count
        self._longest = longest
        self.untouched = CHARACTERS_PER_TOKEN * longest  # characters; texts up to it are not looked at

    def __call__(self, text: str) -> str:
        """Return a beginning of the text that has the same vector, or the text."""
        end = self.untouched
        while end < len(text):
            if self._count(text[:end]) >= self._longest:
                return text[:end]
            end *= GROWTH
        return text


def cut_of(model: Any) -> TextCut | None:
    """Return the cut for a sentence-transformers model; None where it reads all or hides its tokenizer."""
    longest = getattr(model, "max_seq_length", None)
    own = getattr(getattr(model, "tokenizer", None), "backend_tokenizer", None)
    if longest is None or own is None:
        return None
    from tokenizers import Tokenizer

    # A copy: the model's own is told to cut and to pad.
    tokenizer = Tokenizer.from_str(own.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    lower = bool(getattr(model[0], "do_lower_case", False))

    def count(text: str) -> int:
        words = tokenizer.encode(text.lower() if lower else text, add_special_tokens=False).word_ids
        return sum(word != words[-1] for word in words) if words else 0

    return TextCut(count, longest)
