"""A material as it would be had fewer answers been drawn."""

from dataclasses import replace

import numpy as np

from service.calibration.material import Material
from service.spectral.dev_set import Answers


def first_answers(material: Material, num_samples: int) -> Material:
    """Return the full rows with their first answers."""
    rows, answers, texts = [], [], []
    for i in material.full:
        one = material.answers[i]
        index = one.index[:num_samples]
        distinct = index.max() + 1  # they come in order of appearance
        rows.append(replace(material.rows[i], draws=material.rows[i].draws[:num_samples]))
        answers.append(Answers(one.vectors[:distinct], index, one.references))
        texts.append(material.texts[i][:distinct])
    judged = [material.judged[i] for i in material.full]
    return Material(rows, answers, texts, np.arange(len(rows)), num_samples, material.dimension, judged)
