import itertools

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage

from lab.algorithm1 import (
    Clustering,
    ReferenceBlock,
    algorithm1,
    bin_targets,
    block_targets,
    cluster_labels,
    cluster_prompts,
    null_of,
    nulls,
)
from lab.density import DensityStack, frobenius_cosines
from service.spectral.spectrum import DepolarizedMap, Identity, spectrum
from tests.lab.worlds import null_band

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


def test_given_cosines_give_the_same_clusters():
    rng = np.random.default_rng(0)
    vectors, references = topics(rng, 80)
    stack, lambda_max = DensityStack.of(vectors), rng.uniform(0.1, 0.9, 80)
    own = cluster_prompts(stack, lambda_max)
    clusters = cluster_prompts(stack, lambda_max, cosines=frobenius_cosines(stack))
    targets = DensityStack.of(references)
    assert algorithm1(own, targets).ece == pytest.approx(algorithm1(clusters, targets).ece, abs=1e-12)


def test_prompts_cluster_by_meaning():
    basis = np.eye(4)
    vectors = [basis[:1], basis[1:2], basis[:1], basis[1:2], basis[:1], basis[2:3]]
    clustering = cluster_prompts(DensityStack.of(vectors), np.full(6, 0.5), num_clusters=3)
    members = sorted(c.tolist() for c in clustering.clusters[0])
    assert members == [[0, 2, 4], [1, 3]]  # prompt 5 is a singleton and ignored


def test_the_target_of_a_cluster_is_the_largest_eigenvalue_of_its_mean_reference():
    clustering = cluster_prompts(DensityStack.of([np.eye(3)[:1]] * 4), np.full(4, 0.5), num_clusters=1)
    references = DensityStack.of([np.eye(3)[i] for i in (0, 0, 0, 1)])
    assert bin_targets(clustering, references) == pytest.approx([0.75])
    both = DensityStack.of([np.eye(3)[:2]] * 4)
    assert algorithm1(clustering, both).ece == pytest.approx(0.0)


def test_a_bin_of_singletons_has_no_target_and_is_left_out():
    vectors = [np.eye(4)[i] for i in (0, 0, 3, 1, 2)]
    clustering = cluster_prompts(
        DensityStack.of(vectors), [0.1, 0.1, 0.1, 0.8, 0.8], num_bins=2, num_clusters=2
    )
    diagram = algorithm1(clustering, DensityStack.of([np.eye(4)[0]] * 5))
    assert np.isnan(diagram.mean_target).tolist() == [False, True]
    assert diagram.ece == pytest.approx(0.9)


def test_single_prompt():
    stack = DensityStack.of([np.eye(3)[0]])
    assert cluster_labels(np.ones((1, 1)), 5).tolist() == [1]
    assert np.isnan(algorithm1(cluster_prompts(stack, [0.5]), stack).ece)


def test_sizes_must_agree():
    stack = DensityStack.of([np.eye(3)[0]] * 3)
    with pytest.raises(ValueError, match="lambda_max must have shape"):
        cluster_prompts(stack, [0.5, 0.5])
    with pytest.raises(ValueError, match="as many targets"):
        algorithm1(cluster_prompts(stack, [0.5] * 3), DensityStack.of([np.eye(3)[0]]))


def served_world(map_, seed, size=160):
    rng = np.random.default_rng(seed)
    vectors, _ = topics(rng, size)
    stack = DensityStack.of(vectors)
    spectra = [spectrum(v) for v in vectors]
    served = [map_.serve(s.eigenvalues, D) for s in spectra]
    return stack, spectra, served, cluster_prompts(stack, [s.lambda_max for s in served])


def test_the_band_is_far_from_zero_in_a_calibrated_world():
    """The bias shown by the band: a calibrated world does not have 0."""
    stack, spectra, served, clustering = served_world(Identity(), 0)
    band = null_band(clustering, stack, spectra, served, np.random.default_rng(0))
    assert band.num_draws == 100
    assert band.ece_low > 0.03
    assert band.mean.shape == clustering.mass.shape
    assert (band.low <= band.mean).all()
    assert (band.mean <= band.high).all()


def test_overconfidence_is_above_the_band():
    truth = DepolarizedMap(1.0, 0.8)
    stack, spectra, served, clustering = served_world(Identity(), 1)
    band = null_band(clustering, stack, spectra, served, np.random.default_rng(0))
    true_spectra = [truth.serve(s.eigenvalues, D) for s in spectra]
    world = null_band(clustering, stack, spectra, true_spectra, np.random.default_rng(1))
    assert world.ece_low > band.ece_high


def test_block_of_worlds_equals_single_worlds():
    rng = np.random.default_rng(0)
    vectors, references = topics(rng, 90)
    clustering = cluster_prompts(DensityStack.of(vectors), rng.uniform(0.1, 0.9, 90))
    worlds = [DensityStack.of([rng.standard_normal(r.shape) for r in references]) for _ in range(4)]
    block = ReferenceBlock(np.stack([w.vectors for w in worlds]), worlds[0].weights, worlds[0].bounds)
    expected = np.stack([bin_targets(clustering, world) for world in worlds])
    assert block_targets(clustering, block) == pytest.approx(expected)
    wide = cluster_prompts(DensityStack.of(vectors), np.full(90, 0.5), num_clusters=1)  # more rows than D
    expected = np.stack([bin_targets(wide, world) for world in worlds])
    assert block_targets(wide, block) == pytest.approx(expected)


def test_null_and_diagram_leave_out_bins_without_clusters():
    targets = np.tile([[0.4, np.nan], [0.6, np.nan]], (10, 1))
    null = null_of(two_clusters(), targets, 0.4)
    assert null.band.ece_mean == pytest.approx(0.4)
    assert null.p_value == pytest.approx(11 / 21)
    none = null_of(two_clusters(), np.full((20, 2), np.nan), float("nan"))
    assert np.isnan([none.band.ece_mean, none.p_value]).all()


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


def test_singletons_and_cluster_sizes_are_reported():
    basis = np.eye(4)
    vectors = [basis[:1], basis[1:2], basis[:1], basis[1:2], basis[:1], basis[2:3]]
    clustering = cluster_prompts(DensityStack.of(vectors), np.full(6, 0.5), num_clusters=3)
    assert sorted(clustering.cluster_sizes.tolist()) == [2, 3]
    assert clustering.singletons == 1


def cone_world(map_, seed, size=160):
    """Return a world with calibrated eigenvalues and realistic references: a share along each direction, and
    the part outside the span in one narrow cone.
    """
    stack, spectra, served, clustering = served_world(map_, seed, size)
    rng = np.random.default_rng(seed + 100)
    axis = rng.standard_normal(D)
    references = []
    for i, (spectrum_, values) in enumerate(zip(spectra, served, strict=True)):
        basis = spectrum_.eigenvectors(stack.vectors[stack.rows(i)])
        rest = axis + 0.1 * rng.standard_normal(D)
        rest -= (basis @ rest) @ basis
        expected = np.append(values.eigenvalues, values.null_count * values.null_value)
        length = np.sqrt(rng.dirichlet(4 * expected + 1e-12))
        signs = rng.choice([-1.0, 1.0], len(basis))
        references.append((length[:-1] * signs) @ basis + length[-1] * rest / np.linalg.norm(rest))
    return stack, spectra, served, clustering, DensityStack.of(references)


def test_cone_outside_the_span_is_outside_the_first_null_only():
    """Errors that no map of eigenvalues can correct are not attributed to the map."""
    stack, spectra, served, clustering, targets = cone_world(DepolarizedMap(1.0, 0.6), 0)
    [nulls_] = nulls([clustering], stack, spectra, served, targets, np.random.default_rng(0))
    assert nulls_.drawn.p_value < 0.02
    assert nulls_.rescaled.p_value > 0.05
    assert nulls_.drawn.band.num_draws == nulls_.rescaled.band.num_draws == 100


def test_wrong_eigenvalues_are_outside_the_second_null():
    stack, spectra, _, _, targets = cone_world(DepolarizedMap(1.0, 0.6), 0)
    served = [Identity().serve(s.eigenvalues, D) for s in spectra]
    clustering = cluster_prompts(stack, [s.lambda_max for s in served])
    [nulls_] = nulls([clustering], stack, spectra, served, targets, np.random.default_rng(0))
    assert nulls_.rescaled.p_value < 0.02


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
