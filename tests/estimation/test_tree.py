from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedassay.errors import UsageError
from fedassay.estimation.least_squares import LeastSquares, best_widths, mean_prefix_variance, ranked_widths
from fedassay.estimation.tree import Tree


@st.composite
def fits(draw: st.DrawFn) -> LeastSquares:
    """Trees over up to 64 leaves with a different noise variance on each level."""
    height = draw(st.integers(1, 6))
    powers = draw(st.sets(st.integers(1, height - 1))) if height > 1 else set()
    tree = Tree(leaves=2**height, widths=(1, *(2**power for power in sorted(powers))))
    variances = draw(st.tuples(*[st.floats(0.1, 50) for _ in tree.widths]))
    return LeastSquares(tree=tree, variances=variances)


def dense(fit: LeastSquares) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The node matrix H, the standard deviation of each node, and the covariance (H^T W H)^{-1}."""
    tree = fit.tree
    H = tree.build(np.eye(tree.leaves, dtype=np.int64)).T.astype(float)
    deviations = np.sqrt(np.repeat(fit.variances, [tree.leaves // width for width in tree.widths]))
    return H, deviations, np.linalg.inv(H.T @ np.diag(1 / deviations**2) @ H)


@given(fits(), st.integers(0, 2**32 - 1))
def test_the_estimate_is_weighted_least_squares(fit: LeastSquares, seed: int) -> None:
    H, deviations, _ = dense(fit)
    y = np.random.default_rng(seed).normal(0, 100, fit.tree.length)
    expected = np.linalg.lstsq(H / deviations[:, None], y / deviations, rcond=None)[0]
    assert np.allclose(fit.estimate(y), expected, atol=1e-8)
    both = fit.estimate(np.stack([y, 2 * y]))
    assert np.allclose(both, np.stack([expected, 2 * expected]), atol=1e-8)


@given(fits(), st.integers(0, 2**32 - 1))
def test_variances_are_those_of_the_dense_covariance(fit: LeastSquares, seed: int) -> None:
    *_, C = dense(fit)
    leaves = fit.tree.leaves
    G = np.random.default_rng(seed).normal(size=(3, leaves))
    assert np.allclose(fit.covariance(G), G @ C @ G.T)
    assert fit.variance(G[0]) == pytest.approx(G[0] @ C @ G[0])
    assert fit.total_variance == pytest.approx(C.sum())
    assert fit.leaf_variance == pytest.approx(C[0, 0])
    prefixes = np.tri(leaves + 1, leaves, -1)
    assert np.allclose(fit.prefix_variances, np.diag(prefixes @ C @ prefixes.T))
    assert np.allclose(fit.prefix_total_covariances, prefixes @ C.sum(1))


@given(fits())
def test_the_sign_trace_is_that_of_the_dense_matrices(fit: LeastSquares) -> None:
    *_, C = dense(fit)
    i = np.arange(fit.tree.leaves)
    S = np.sign(i[:, None] - i[None, :])
    assert fit.sign_trace == pytest.approx(np.trace(S.T @ C @ S @ C))


@given(fits(), st.integers(0, 2**32 - 1))
def test_node_weights_are_those_of_the_estimate(fit: LeastSquares, seed: int) -> None:
    H, deviations, C = dense(fit)
    G = np.random.default_rng(seed).normal(size=(3, fit.tree.leaves))
    weights = fit.node_weights(G)
    assert np.allclose(np.concatenate(weights, axis=-1), G @ C @ H.T / deviations**2)
    spread = [np.repeat(w, width, axis=-1) for w, width in zip(weights, fit.tree.widths, strict=True)]
    assert np.allclose(sum(spread), G)
    variances = [v * (w**2).sum(-1) for w, v in zip(weights, fit.variances, strict=True)]
    assert np.allclose(sum(variances), [fit.variance(g) for g in G])


@given(fits(), st.integers(0, 2**32 - 1))
def test_moments_of_prefixes_are_sums_over_the_nodes(fit: LeastSquares, seed: int) -> None:
    leaves = fit.tree.leaves
    rows = np.random.default_rng(seed).uniform(0, 9, leaves)
    moments = fit.prefix_moments(np.concatenate([[0.0], np.cumsum(rows)]))
    weights = fit.node_weights(np.tri(leaves + 1, leaves, -1))
    for (first, second), w, width in zip(moments, weights, fit.tree.widths, strict=True):
        of_node = rows.reshape(-1, width).sum(-1)
        assert np.allclose(first, w @ of_node)
        assert np.allclose(second, w**2 @ of_node)


def test_without_noise_only_leaves_have_weight() -> None:
    fit = LeastSquares(tree=Tree(leaves=4, widths=(1, 2)), variances=(0.0, 0.0))
    leaves, nodes = fit.node_weights(np.arange(4.0))
    assert leaves.tolist() == [0, 1, 2, 3]
    assert nodes.tolist() == [0, 0]


@given(fits())
def test_no_node_has_a_weight_above_one_in_a_prefix(fit: LeastSquares) -> None:
    # What the tail bound of the curves' bands assumes.
    H, deviations, C = dense(fit)
    prefixes = np.tri(fit.tree.leaves + 1, fit.tree.leaves, -1)
    weights = prefixes @ C @ H.T / deviations**2
    assert np.abs(weights).max() <= 1 + 1e-9


def test_consistent_nodes_are_reproduced() -> None:
    tree = Tree(leaves=64, widths=(1, 4, 16))
    leaves = np.random.default_rng(0).integers(0, 1000, 64)
    fit = LeastSquares(tree=tree, variances=(1.0, 2.0, 3.0))
    assert np.allclose(fit.estimate(tree.build(leaves)), leaves)


def test_without_noise_the_leaves_are_what_they_are() -> None:
    tree = Tree(leaves=4, widths=(1, 2))
    fit = LeastSquares(tree=tree, variances=(0.0, 0.0))
    assert fit.estimate([1, 2, 3, 4, 3, 7]).tolist() == [1, 2, 3, 4]
    assert fit.variance(np.ones(4)) == fit.total_variance == fit.sign_trace == 0
    assert not fit.prefix_variances.any()


def test_reference_variances_of_a_laplace_release() -> None:
    """Mean prefix variances in units of 1/ε² at 1,024 leaves, add-remove: node variance 2·levels²."""

    def variance(*widths: int) -> float:
        tree = Tree(leaves=1024, widths=widths)
        return mean_prefix_variance(
            LeastSquares(tree=tree, variances=(2.0 * len(widths) ** 2,) * len(widths))
        )

    assert variance(1, 16, 256) == pytest.approx(121, abs=0.5)
    assert variance(*(2**k for k in range(10))) == pytest.approx(281, abs=1)
    assert variance(1) == pytest.approx(2 * 1025 / 2)  # flat: 2/ε² per leaf


def chains(leaves: int) -> Iterator[tuple[int, ...]]:
    powers = [1 << k for k in range(1, leaves.bit_length() - 1)]
    for levels in range(len(powers) + 1):
        for widths in combinations(powers, levels):
            yield (1, *widths)


@given(fits())
def test_the_mean_prefix_variance_is_a_mean(fit: LeastSquares) -> None:
    assert mean_prefix_variance(fit) == pytest.approx(fit.prefix_variances[1:].mean())


@pytest.mark.parametrize("power", [1, 2])
def test_the_best_widths_are_the_best_of_all_chains(power: int) -> None:
    def noise(levels: int) -> float:
        return 2.0 * levels**power

    def variance(widths: tuple[int, ...]) -> float:
        fit = LeastSquares(
            tree=Tree(leaves=128, widths=widths), variances=(noise(len(widths)),) * len(widths)
        )
        return mean_prefix_variance(fit)

    ranked = sorted(chains(128), key=variance)
    assert best_widths(128, noise) == ranked[0]
    assert ranked_widths(128, noise, keep=10) == ranked[:10]
    assert len(ranked) == 2**6


def test_the_best_widths_of_a_million_leaves() -> None:
    """All 2^19 chains are compared; the best one is better than those that differ from it in one level."""
    leaves = 1 << 20

    def noise(levels: int) -> float:
        return 2.0 * levels**2

    def variance(widths: tuple[int, ...]) -> float:
        fit = LeastSquares(
            tree=Tree(leaves=leaves, widths=widths), variances=(noise(len(widths)),) * len(widths)
        )
        return mean_prefix_variance(fit)

    best = best_widths(leaves, noise)
    others = [set(best) ^ {1 << k} for k in range(1, 20)]
    assert len(best) > 2
    assert all(variance(tuple(sorted(other))) > variance(best) for other in others)


def test_the_best_choice_without_noise_is_flat() -> None:
    assert best_widths(1024, lambda levels: 0.0) == (1,)


@pytest.mark.parametrize("widths", [(2,), (1, 3), (1, 4, 4), (1, 8, 4), (1, 16), ()])
def test_bad_widths_are_refused(widths: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="widths: got"):
        Tree(leaves=16, widths=widths)


@pytest.mark.parametrize("variances", [(1.0,), (1.0, -1.0), (0.0, 1.0)])
def test_bad_variances_are_refused(variances: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="variances: got"):
        LeastSquares(tree=Tree(leaves=4, widths=(1, 2)), variances=variances)
