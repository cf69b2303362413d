"""The alignment of a spectrum with references that are given as vectors."""

from numpy.typing import ArrayLike

from service.spectral.spectrum import Floats, Spectrum, alignment, unit_rows


def reference_alignment(
    spectrum: Spectrum, vectors: ArrayLike, references: ArrayLike
) -> tuple[Floats, float]:
    """Return (c, outside) as `alignment` does, from answer vectors (k, d) and reference vectors (t, d)."""
    return alignment(spectrum, unit_rows(references) @ unit_rows(vectors).T)
