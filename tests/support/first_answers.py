"""A material with fewer answers."""

from dataclasses import replace

import numpy as np

from service.calibration.material import DevSet
from service.spectral.dev_set import Overlaps


def first_answers(material: DevSet, num_samples: int) -> DevSet:
    """Return the full rows with only their first answers."""
    rows, answers, texts, judged = [], [], [], []
    for i in material.full:
        whole, own = material.answers[i], material.judged[i]
        index = whole.index[:num_samples]
        k = index.max() + 1  # distinct texts are in order of appearance
        rows.append(replace(material.rows[i], draws=material.rows[i].draws[:num_samples]))
        answers.append(Overlaps(whole.cosines[:k, :k], whole.targets[:, :k], index))
        texts.append(material.texts[i][:k])
        judged.append(None if own is None else own[:, :k])
    alone = [material.alone[i] for i in material.full]
    return DevSet(rows, answers, texts, np.arange(len(rows)), num_samples, material.dimension, judged, alone)
