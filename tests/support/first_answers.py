"""A material with fewer answers."""

from dataclasses import replace

import numpy as np

from service.calibration.material import DevSet
from service.spectral.dev_set import Answers


def first_answers(material: DevSet, num_samples: int) -> DevSet:
    """Return the full rows with only their first answers."""
    rows, answers, texts = [], [], []
    for i in material.full:
        answers_ = material.answers[i]
        index = answers_.index[:num_samples]
        distinct = index.max() + 1  # distinct texts are in order of appearance
        rows.append(replace(material.rows[i], draws=material.rows[i].draws[:num_samples]))
        answers.append(Answers(answers_.vectors[:distinct], index, answers_.references))
        texts.append(material.texts[i][:distinct])
    judged = [material.judged[i] for i in material.full]
    return DevSet(rows, answers, texts, np.arange(len(rows)), num_samples, material.dimension, judged)
