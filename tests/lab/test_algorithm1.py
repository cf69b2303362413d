import itertools

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage

from lab.algorithm1 import (
    Clustering,
    algorithm1,
    cluster_prompts,
    null_of,
    nulls,
)
from lab.density import DensityStack
from lab.vectors import eigenvectors, spectrum
from service.spectral.spectrum import DepolarizedMap

D = 24


def topics(rng, size, dimension=D):
    """Return answers around a few topics, so that clusters are meaningful; one or two references each."""
    centres = rng.standard_normal((6, dimension))
    about = rng.integers(0, 6, size)
    spread = rng.uniform(0.1, 1.5, size)
    vectors = [
        centres[a] + s * rng.standard_normal((int(rng.integers(1, 9)), dimension))
        for a, s in zip(about, spread, strict=True)
    ]
    references = [centres[a] + rng.standard_normal((int(rng.integers(1, 3)), dimension)) for a in about]
    return vectors, references


def straight_ece(vectors, references, lambda_max, num_bins, num_clusters):
    """Return the diagram as in the method, on flattened d x d matrices, without sharing code with ours."""

    def matrix(rows):
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return rows.T @ rows / len(rows)

    flat = np.stack([matrix(v).ravel() for v in vectors])
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    targets = np.stack([matrix(r) for r in references])
    edges = np.unique(np.quantile(lambda_max, np.linspace(0, 1, num_bins + 1)))
    edges[0], edges[-1] = 0, 1
    ece = 0.0
    for low, high in itertools.pairwise(edges):
        members = np.flatnonzero((lambda_max > low) & (lambda_max <= high))
        cosines = flat[members] @ flat[members].T
        labels = fcluster(linkage(cosines, "average"), num_clusters, "maxclust")
        clusters = [members[labels == label] for label in set(labels) if (labels == label).sum() >= 2]
        tops = [np.linalg.eigvalsh(targets[c].mean(axis=0))[-1] for c in clusters]
        ece += members.size / lambda_max.size * abs(lambda_max[members].mean() - np.mean(tops))
    return ece


@pytest.mark.parametrize(("num_bins", "num_clusters"), [(8, 5), (8, 1), (6, 3), (10, 7), (1, 2)])
def test_result_equals_a_naive_implementation(num_bins, num_clusters):
    rng = np.random.default_rng(num_bins)
    vectors, references = topics(rng, 150)
    lambda_max = rng.uniform(0.1, 0.99, 150)
    expected = straight_ece(vectors, references, lambda_max, num_bins, num_clusters)
    for precision in (np.float32, np.float64):
        stack = DensityStack.of([v.astype(precision) for v in vectors])
        clustering = cluster_prompts(stack, lambda_max, num_bins=num_bins, num_clusters=num_clusters)
        diagram = algorithm1(clustering, DensityStack.of(references))
        assert diagram.ece == pytest.approx(expected, abs=1e-6)
        assert diagram.mass.sum() == pytest.approx(1)


def test_a_bin_of_singletons_has_no_target_and_is_left_out():
    vectors = [np.eye(4)[i] for i in (0, 0, 3, 1, 2)]
    clustering = cluster_prompts(
        DensityStack.of(vectors), [0.1, 0.1, 0.1, 0.8, 0.8], num_bins=2, num_clusters=2
    )
    diagram = algorithm1(clustering, DensityStack.of([np.eye(4)[0]] * 5))
    assert np.isnan(diagram.mean_target).tolist() == [False, True]
    assert diagram.ece == pytest.approx(0.9)


def served_world(map_, seed, size=160):
    rng = np.random.default_rng(seed)
    vectors, _ = topics(rng, size)
    stack = DensityStack.of(vectors)
    spectra = [spectrum(v) for v in vectors]
    served = [map_.serve(s.eigenvalues, D) for s in spectra]
    return stack, spectra, served, cluster_prompts(stack, [s.lambda_max for s in served])


def two_clusters(third: int = 3) -> Clustering:
    """Return two bins: one of two clusters, or of one and two singletons; and one without clusters."""
    vectors = [np.eye(5)[i] for i in (0, 0, third, 3, 1, 2)]
    predicted = [0.1, 0.1, 0.1, 0.1, 0.8, 0.8]
    return cluster_prompts(DensityStack.of(vectors), predicted, num_bins=2, num_clusters=3)


@pytest.mark.parametrize(
    ("clustering", "targets"),
    [
        (two_clusters(), [[0.5, np.nan], [0.5 + 1e-15, np.nan]]),  # all worlds have the same value
        (two_clusters(third=4), [[0.4, np.nan], [0.6, np.nan]]),  # one cluster
    ],
)
def test_null_is_unknown_with_too_few_rows(clustering: Clustering, targets: list) -> None:
    null = null_of(clustering, np.tile(targets, (10, 1)), 0.9)
    assert np.isnan([null.p_value, null.band.ece_mean, null.band.ece_low, null.band.ece_high]).all()
    assert np.isnan(null.band.low).all()
    assert null.band.num_draws == 20


def cone_world(map_, seed, size=160):
    """Return a world with calibrated eigenvalues and realistic references: a share along each direction, and
    the part outside the span in one narrow cone.
    """
    stack, spectra, served, clustering = served_world(map_, seed, size)
    rng = np.random.default_rng(seed + 100)
    axis = rng.standard_normal(D)
    references = []
    for i, (spectrum_, values) in enumerate(zip(spectra, served, strict=True)):
        basis = eigenvectors(spectrum_, stack.vectors[stack.rows(i)])
        rest = axis + 0.1 * rng.standard_normal(D)
        rest -= (basis @ rest) @ basis
        expected = np.append(values.eigenvalues, values.null_count * values.null_value)
        length = np.sqrt(rng.dirichlet(4 * expected + 1e-12))
        signs = rng.choice([-1.0, 1.0], len(basis))
        references.append((length[:-1] * signs) @ basis + length[-1] * rest / np.linalg.norm(rest))
    return stack, spectra, served, clustering, DensityStack.of(references)


def test_clusterings_share_worlds_and_the_seed_decides():
    stack, spectra, served, clustering, targets = cone_world(DepolarizedMap(1.0, 0.6), 1, 60)
    naive = cluster_prompts(stack, [s.lambda_max for s in served], num_clusters=1)
    alone, both = (
        nulls(clusterings, stack, spectra, served, targets, np.random.default_rng(0))
        for clusterings in ([clustering], [naive, clustering])
    )
    assert both[1].drawn.band.ece_low == alone[0].drawn.band.ece_low
    assert both[1].rescaled.band.ece_low == alone[0].rescaled.band.ece_low
    assert both[0].drawn.band.ece_mean != alone[0].drawn.band.ece_mean
