"""The probability of one given answer by Born's rule (**ours**, method, section 7).

p(y) = y^T h(D) y = sum_i p_i (u_i . y)^2 + q (1 - sum_i (u_i . y)^2) for a text with unit embedding y, under
the served matrix: eigenvectors u_i from the answers drawn, p_i and q served. Nothing of size d x d is built.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.spectral.dev_set import DevSet
from service.spectral.maps import CalibrationMap, ServedSpectrum
from service.spectral.spectrum import Spectrum, alignment, unit_rows

Floats = NDArray[np.float64]
TIE = 1e-9  # of squared lengths: one text's in a stack of prompts and alone differ in their last bits


@dataclass(frozen=True, slots=True, eq=False)
class BornProbability:
    """What a served spectrum says of one text.

    probability: p(y) in [0, lambda_max]. Higher = more likely meant.
    mode: the eigenvector, 0 the largest, that holds most of y's squared length; None where none holds as much
    as what lies outside the answers' span: then the text says something that no answer said.
    inside: (r,) squared length of y on each eigenvector, in [0, 1]; outside: the rest, in [0, 1].
    """

    probability: float
    mode: int | None
    inside: Floats
    outside: float


def _bounded(inside: Floats) -> Floats:
    """Return squared lengths (.., r), scaled down where rounding makes their sum exceed 1."""
    return np.asarray(inside / np.maximum(inside.sum(axis=-1, keepdims=True), 1.0))


def _supported(top: ArrayLike, outside: ArrayLike) -> NDArray[np.bool_]:
    """Return whether as much of a text lies on one eigenvector, at most `top`, as outside the span."""
    return np.asarray(np.asarray(top) >= np.asarray(outside) - TIE)


def born_probability(spectrum: Spectrum, served: ServedSpectrum, cosines: ArrayLike) -> BornProbability:
    """Return p(y) for a text y from its cosines (k,) to the answers that made the spectrum.

    Raises ValueError for cosines that are not finite or not one per answer.
    """
    given = np.asarray(cosines, dtype=np.float64)
    if given.shape != spectrum.weights.shape or not np.isfinite(given).all():
        raise ValueError("a text needs a finite cosine to every answer")
    inside = _bounded(alignment(spectrum, given)[0])
    outside = max(1.0 - float(inside.sum()), 0.0)
    # A mean of eigenvalues is at most lambda_max, but for the rounding of its weights.
    mean = float(inside @ served.eigenvalues) + outside * served.null_value
    top = int(inside.argmax())
    mode = top if _supported(inside[top], outside) else None
    return BornProbability(min(mean, served.lambda_max), mode, inside, outside)


def born_probability_of(
    spectrum: Spectrum, served: ServedSpectrum, vectors: ArrayLike, text: ArrayLike
) -> BornProbability:
    """Return p(y) for a text's embedding (d,), from the vectors (k, d) that made the spectrum.

    Rows need not be of length 1. Raises ValueError for a zero or non-finite row or another dimension.
    """
    [cosines] = unit_rows(np.atleast_2d(text)) @ unit_rows(vectors).T
    return born_probability(spectrum, served, cosines)


def born_probabilities(map_: CalibrationMap, candidates: DevSet) -> Floats:
    """Return p(y) (n,) in [0, lambda_max] for one text per prompt, under the served spectra.

    candidates: a dev set whose "references" are the texts: `batch.dev_set` with the embedding of the text in
    their place. p is linear in the target, so several texts give their mean.
    """
    log_p, log_q = map_.log_served(candidates.log_eigenvalues, candidates.rank, candidates.dimension)
    inside, outside = _parts(candidates)
    mean = (inside * np.exp(log_p)).sum(axis=1) + outside * np.exp(log_q)
    # As in `born_probability`: a mean of eigenvalues, above the largest by rounding only.
    return np.asarray(np.minimum(mean, np.exp(log_p[:, 0])))


def supported(candidates: DevSet) -> NDArray[np.bool_]:
    """Return whether each of one text per prompt (n,) has a mode: whether an answer drawn supports it.

    candidates: as for `born_probabilities`. No map matters: they keep the eigenvectors.
    """
    inside, outside = _parts(candidates)
    return _supported(inside.max(axis=1), outside)


def _parts(candidates: DevSet) -> tuple[Floats, Floats]:
    """Return squared lengths on the eigenvectors (n, R), and outside the answers' span (n,)."""
    inside = _bounded(candidates.alignment)
    return inside, np.asarray(np.maximum(1.0 - inside.sum(axis=1), 0.0))
