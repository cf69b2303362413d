"""A natural language inference model in process, through transformers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BATCH = 32
# In the order that `EntailmentModel.probabilities` promises.
CLASSES = ("entail", "neutral", "contradict")


class TransformersEntailment:
    """Any sequence classifier of three NLI classes: a folder, or a name on the model hub.

    Its labels must say which class is which. Raises ValueError when they do not, or it cannot be loaded.
    """

    def __init__(self, name_or_folder: str | Path, *, device: str | None = None) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self.name = str(name_or_folder).rstrip("/").rsplit("/", 1)[-1]
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(name_or_folder)
            self._model: Any = AutoModelForSequenceClassification.from_pretrained(name_or_folder)
        except OSError as error:
            raise ValueError(f"the NLI model {self.name!r} cannot be loaded") from error
        # Models disagree on the order of the classes, and only their labels tell it.
        self._order = class_order(self._model.config.id2label)
        self._model.eval()
        if device:
            self._model.to(device)

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Return (n, 3) for n pairs (premise, hypothesis): entailment, neutral, contradiction; rows sum 1."""
        found = [self._batch(pairs[start : start + BATCH]) for start in range(0, len(pairs), BATCH)]
        return np.concatenate(found) if found else np.empty((0, 3))

    def _batch(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        import torch

        premises, hypotheses = zip(*pairs, strict=True)
        encoded = self._tokenizer(
            list(premises), list(hypotheses), padding=True, truncation=True, return_tensors="pt"
        ).to(self._model.device)
        with torch.inference_mode():
            logits = self._model(**encoded).logits.double()  # so that rows sum to 1
        found: NDArray[np.float64] = torch.softmax(logits, dim=-1).cpu().numpy()
        return found[:, self._order]


def class_order(labels: Mapping[int, str]) -> list[int]:
    """Return the places of entailment, neutral and contradiction among a model's labels.

    >>> class_order({0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"})
    [2, 1, 0]
    """
    found = [[place for place, said in labels.items() if said.lower().startswith(name)] for name in CLASSES]
    if len(labels) != len(CLASSES) or any(len(places) != 1 for places in found):
        raise ValueError(
            f"the labels of an NLI model must name {', '.join(CLASSES)}: {sorted(labels.values())}"
        )
    return [places[0] for places in found]
