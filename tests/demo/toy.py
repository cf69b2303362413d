"""A toy language model with given next-token scores."""

import threading
from typing import Any

from demo.model import Model

NEVER = -60.0  # finite, because JSON has no infinity
AFTER = {0: [0.0, 0.0, NEVER, 0.0], 1: [NEVER, 0.0, 1.0, 2.0], 2: [0.0, NEVER, NEVER, NEVER]}
AFTER[3] = AFTER[0]


class ToyCache:
    def __init__(self) -> None:
        self.length, self.rows, self.widths = 0, 1, []

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.rows = repeats

    def batch_select_indices(self, indices: Any) -> None:
        self.rows = len(indices)


class ToyNetwork:
    """Each token has fixed scores for its successor. Records the batches. Calls wait for `gate`."""

    def __init__(self, scores: dict[int, list[float]] = AFTER) -> None:
        self.scores = scores
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[tuple[int, int]] = []

    def __call__(self, *, input_ids: Any, past_key_values: Any, use_cache: bool, logits_to_keep: int) -> Any:
        import torch

        assert self.gate.wait(60)
        cache = past_key_values or ToyCache()
        assert use_cache
        assert cache.rows == input_ids.shape[0]
        self.batches.append(tuple(input_ids.shape))
        rows = [self.scores[int(token)] for token in input_ids[:, -1]]
        logits = torch.tensor(rows)[:, None, :]

        class Output:
            pass

        output = Output()
        output.logits, output.past_key_values = logits, cache
        return output


class Letters:
    """Token i is letter i; the last token is a newline. Other letters of a text are left out."""

    bos_token_id = 0

    def decode(self, tokens: list[int], **_: Any) -> str:
        return "".join("abc\n"[token] for token in tokens)

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": ["abc\n".index(letter) for letter in text if letter in "abc\n"]}

    def apply_chat_template(self, turns: list[dict[str, str]], **_: Any) -> str:
        return "".join(turn["content"] for turn in turns)


def toy_model(network: ToyNetwork | None = None, eos: tuple[int, ...] = ()) -> Model:
    """Return the toy model; without `eos`, answers end only at a stop string or at the limit."""
    return Model(network or ToyNetwork(), Letters(), eos, name="toy")
