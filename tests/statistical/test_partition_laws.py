"""Partitions have the laws that they state; each check rejects a partition that has another one.

Every check is a test at the level LEVEL: of a right partition it fails with that probability, over fixed seeds. There
are 14 of them, so that one fails with a probability of at most 14·10^-4. The broken variants are rejected at the same
level.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta as beta_law
from scipy.stats import chisquare, kstest, norm

from fedassay.data.partition import Partition, dirichlet

LEVEL = 1e-4


def marginal(beta: float, clients: int, shares: np.ndarray) -> float:
    """The p-value of one client's shares as draws from Beta(beta, (clients - 1) beta), their law."""
    return float(kstest(shares, beta_law(beta, (clients - 1) * beta).cdf).pvalue)


@pytest.mark.parametrize("beta", [0.02, 0.1, 1.0, 10.0])
def test_shares_follow_the_dirichlet_law(beta: float) -> None:
    rng, clients = np.random.default_rng(0), 6
    shares = np.array([dirichlet(beta, clients, rng) for _ in range(4000)])
    # The first and the last client, and two together, whose share is Beta(2 beta, (clients - 2) beta).
    assert marginal(beta, clients, shares[:, 0]) > LEVEL
    pairs = beta_law(2 * beta, (clients - 2) * beta).cdf
    assert kstest(shares[:, 0] + shares[:, 5], pairs).pvalue > LEVEL
    # A law of half as much skew is another one.
    assert marginal(2 * beta, clients, shares[:, 0]) < LEVEL


def owners(spec: str, labels: np.ndarray, clients: int, repeats: int) -> np.ndarray:
    return np.array([Partition(spec, clients=clients, seed=seed).deal(labels) for seed in range(repeats)])


def test_a_row_of_an_iid_partition_is_anywhere() -> None:
    dealt = owners("iid", np.zeros(20, dtype=int), 5, 4000)
    for row in (0, 19):
        assert chisquare(np.bincount(dealt[:, row], minlength=5)).pvalue > LEVEL
    # Two rows are together with probability 3/19.
    together = int((dealt[:, 0] == dealt[:, 1]).sum())
    assert chisquare([together, 4000 - together], [4000 * 3 / 19, 4000 * 16 / 19]).pvalue > LEVEL
    in_turn = np.broadcast_to(np.arange(20) % 5, dealt.shape)  # without shuffling
    assert chisquare(np.bincount(in_turn[:, 0], minlength=5)).pvalue < LEVEL


def test_rounding_favours_nobody() -> None:
    # One row in the class: its owner is anywhere, with the shares of a law that makes them nearly equal.
    dealt = owners("dirichlet:1e6", np.zeros(1, dtype=int), 8, 4000)[:, 0]
    assert chisquare(np.bincount(dealt, minlength=8)).pvalue > LEVEL
    down = np.diff(
        np.floor(np.cumsum(np.full(8, 1 / 8))), prepend=0
    )  # sends every such row to the last client
    assert chisquare(4000 * down).pvalue < LEVEL


def classes_expected(beta: float, clients: int, rows: int, classes: int) -> float:
    """The mean number of classes that a client has: n p rows of a class, rounded at random, so min(1, n p) of it."""
    law = beta_law(beta, (clients - 1) * beta)
    few, _ = quad(lambda p: p * law.pdf(p), 0, 1 / rows)
    return classes * (rows * few + float(law.sf(1 / rows)))


def classes_found(beta: float, clients: int, labels: np.ndarray, repeats: int) -> np.ndarray:
    """In each repeat, the mean over clients of how many classes they have."""
    width = labels.max() + 1
    dealt = owners(f"dirichlet:{beta}", labels, clients, repeats)
    return np.array([len(np.unique(one * width + labels)) / clients for one in dealt])


def test_labels_are_as_skewed_as_stated() -> None:
    """As in Table 8 of the paper: few classes at each client where beta is small."""
    clients, classes, rows, repeats = 100, 10, 100, 200
    labels = np.repeat(np.arange(classes), rows)
    for beta in (0.1, 0.5):
        found = classes_found(beta, clients, labels, repeats)
        error = found.std(ddof=1) / np.sqrt(repeats)
        reach = norm.isf(LEVEL / 2) * error
        assert abs(found.mean() - classes_expected(beta, clients, rows, classes)) < reach
        assert abs(found.mean() - classes_expected(1.2 * beta, clients, rows, classes)) > reach
    # Ten rows at each client, whatever their labels, are of 6.5 classes.
    even = [len(np.unique(one * classes + labels)) / clients for one in owners("iid", labels, clients, 20)]
    assert classes_found(0.1, clients, labels, 20).max() < 4 < 6 < min(even)
