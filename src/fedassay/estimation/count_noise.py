"""Errors that privacy adds to counts: those of sums over leaves beyond the error of sampling the rows.

Two laws behind the same methods. `NodeNoise`: noise of its own in every node, the same whatever was counted.
`LevelReports`: every client reports on one level only and randomises its answer. There the error also depends on what
is counted, and the classes of a level share it.

Sums over leaves have one weight per leaf and class; several at once are the rows of two matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from fedassay.estimation.least_squares import LeastSquares
from fedassay.protocol.arrays import Floats


class LeafCovariance(Protocol):
    """Covariance C that noise gives to the leaf estimates of one class, without approximation.

    Of counts on a tree it is `LeastSquares`; `covariances` has those of other mechanisms.
    """

    @property
    def exact(self) -> bool:
        """True if there is no noise."""

    @property
    def reach(self) -> float:
        """Upper bound of the weight of a draw of noise in the sum of the first leaves, and in that of the others."""

    @property
    def total_variance(self) -> float:
        """Variance of the sum of all leaves."""

    @property
    def leaf_variance(self) -> float:
        """Variance of one leaf estimate; if they differ, the mean."""

    @property
    def prefix_variances(self) -> Floats:
        """Variance of the sum of the first r leaves, for r = 0..leaves."""

    @property
    def prefix_total_covariances(self) -> Floats:
        """Covariance of the sum of the first r leaves with the sum of all, for r = 0..leaves."""

    @property
    def sign_trace(self) -> float:
        """tr(S^T C S C) with S_ij = sign(i - j)."""

    def variance(self, weights: Floats) -> float:
        """Return the variance of a weighted sum of leaf estimates."""

    def covariance(self, weights: Floats) -> Floats:
        """Return the joint covariance of several such sums, one per row of `weights`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PrefixNoise:
    """Noise of one class: variances below each edge, their covariances with all rows (`joint`), and the variance of all
    rows (`total`).
    """

    below: Floats
    joint: Floats
    total: float

    @cached_property
    def above(self) -> Floats:
        """Variances at or above each edge."""
        return self.total - 2 * self.joint + self.below

    @cached_property
    def across(self) -> Floats:
        """Covariances of below and above."""
        return self.joint - self.below

    def halves(self, edge: int) -> Floats:
        """Return the joint covariance of the rows above an edge and of those below it."""
        across = self.across[edge]
        return np.array([[self.above[edge], across], [across, self.below[edge]]])


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeNoise:
    """Noise that is the same whatever was counted, drawn for each class anew. All formulas are exact."""

    fit: LeafCovariance

    def covariance(self, of_positive: Floats, of_negative: Floats) -> Floats:
        """Return the joint noise covariance of several sums."""
        return self.fit.covariance(of_positive) + self.fit.covariance(of_negative)

    def variance(self, of_positive: Floats, of_negative: Floats) -> float:
        """Return the noise variance of one sum."""
        return self.fit.variance(of_positive) + self.fit.variance(of_negative)

    @cached_property
    def positives(self) -> PrefixNoise:
        """Noise of positive rows up to an edge."""
        fit = self.fit
        return PrefixNoise(
            below=fit.prefix_variances, joint=fit.prefix_total_covariances, total=fit.total_variance
        )

    @property
    def negatives(self) -> PrefixNoise:
        """Noise of negative rows up to an edge: the same law."""
        return self.positives

    @property
    def rows(self) -> float:
        """Noise variance of the number of rows."""
        return 2 * self.fit.total_variance

    def confusion(self, edge: int) -> Floats:
        """Return the noise covariance of TP, FN, FP and TN at an edge."""
        return np.asarray(np.kron(np.eye(2), self.positives.halves(edge)), dtype=np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelReports:
    """Noise where each client reports on one level, by bits that are randomised one by one.

    Let a sum have the node weights w_k on level k, a part f_k of the M clients report on level k, and n_j rows
    be in node j. Clients are independent, and those of different levels are different ones, so around the
    population the variance of the sum is

        Σ_k (1/f_k) [M·V·|w_k|² + Σ_j n_j w_kj² + (Σ_j n_j w_kj² - (Σ_j n_j w_kj)²/M)] :

    bits of cells without the row, the bit of its own cell, and M_k instead of M rows. Both classes of a level
    are one partition, so j runs over both. What is returned is this minus the variance that the rows alone
    would give, Σ n g² - (Σ n g)²/n with the leaf weights g: that is counted as sampling.

    Guarantee: with counts that are not negative and M at least their sum, no returned variance is below its
    first part, that of the bits. (Σ_k w_k = g on every leaf and Σ_k f_k = 1, so by Cauchy and Schwarz the last
    brackets together are at least the variance of the rows alone.) Noisy counts are made plausible first.

    Parameters
    ----------
    fit : the least-squares fit, which gives the weights; they need not be the best ones.
    bits : M·V/f_k, the variance of a node that no row is in, per level.
    reporting : f_k.
    clients : M, those without a row included.
    counts : plausible leaf counts of positives and of negatives, one row each.
    """

    fit: LeastSquares
    bits: tuple[float, ...]
    reporting: tuple[float, ...]
    clients: float
    counts: Floats

    def covariance(self, of_positive: Floats, of_negative: Floats) -> Floats:
        """Return the joint covariance of several sums."""
        weights = np.stack([of_positive, of_negative], axis=-2)
        result = _outer(weights, self.counts) / self._rows - _weighted(weights, self.counts)
        levels = zip(
            self.fit.node_weights(weights), self.fit.tree.widths, self.bits, self.reporting, strict=True
        )
        for nodes, width, bits, part in levels:
            counts = self.counts.reshape(2, -1, width).sum(-1)
            result += _weighted(nodes, bits + 2 / part * counts)
            result -= _outer(nodes, counts) / (part * self.clients)
        return result

    def variance(self, of_positive: Floats, of_negative: Floats) -> float:
        """Return the variance of one sum."""
        return max(0.0, float(self.covariance(of_positive[None], of_negative[None])[0, 0]))

    @cached_property
    def positives(self) -> PrefixNoise:
        """Error of positive rows up to an edge."""
        return self._coupled(self._classes[0])

    @cached_property
    def negatives(self) -> PrefixNoise:
        """Error of negative rows up to an edge."""
        return self._coupled(self._classes[1])

    @cached_property
    def rows(self) -> float:
        """Variance of the number of rows."""
        return float(self.confusion(0).sum())

    def confusion(self, edge: int) -> Floats:
        """Return the covariance of TP, FN, FP and TN at an edge; the classes are not independent."""
        covariance = np.zeros((4, 4))
        counts, sums = [], []
        for start, one in zip((0, 2), self._classes, strict=True):
            covariance[start : start + 2, start : start + 2] = one.alone.halves(edge)
            counts += [one.below[-1] - one.below[edge], one.below[edge]]
            sums += [one.first[:, -1] - one.first[:, edge], one.first[:, edge]]
        by_level = np.array(sums)
        common = np.outer(counts, counts) / self._rows - (by_level * self._shared) @ by_level.T
        return np.asarray(covariance + common)

    def rate_variances(self, label: int, rates: Floats) -> Floats:
        """Bound the variance of (rows at or above an edge) - rate·(all rows) of one class, for all edges.

        Around the population, the sampling of rows included, and without the part -(Σ n w)²/M: this is the
        variance that Bernstein's inequality needs.
        """
        one = self._classes[1 - label]
        rest = 1 - rates  # the weights are those of rest·(all rows) - (rows below)
        joint = one.alone.joint + one.below
        total = one.alone.total + one.below[-1]
        return np.asarray(rest**2 * total - 2 * rest * joint + one.alone.below + one.below)

    @cached_property
    def _rows(self) -> float:
        return max(1.0, float(self.counts.sum()))

    @cached_property
    def _shared(self) -> Floats:
        """1/(f_k M): the weight of what the cells of a level have in common."""
        return 1 / (np.array(self.reporting) * self.clients)

    def _coupled(self, one: _Class) -> PrefixNoise:
        def common(other: Floats | float, first: Floats) -> Floats:
            shared = np.einsum("kr,kr,k->r", one.first, first, self._shared)
            return np.asarray(one.below * other / self._rows - shared)

        below = one.alone.below + common(one.below, one.first)
        joint = one.alone.joint + common(one.below[-1], np.broadcast_to(one.first[:, -1:], one.first.shape))
        return PrefixNoise(below=below, joint=joint, total=float(below[-1]))

    @cached_property
    def _classes(self) -> tuple[_Class, _Class]:
        positive, negative = (self._class(counts) for counts in self.counts)
        return positive, negative

    def _class(self, counts: Floats) -> _Class:
        below = np.concatenate([[0.0], np.cumsum(counts)])
        leaves = np.arange(len(below), dtype=np.float64)
        variances, joint = -below, -below
        firsts = []
        levels = zip(
            self.fit.prefix_moments(below),
            self.fit.prefix_moments(leaves),
            self.fit.tree.widths,
            self.bits,
            self.reporting,
            strict=True,
        )
        for (first, second), (nodes, squares), width, bits, part in levels:
            # All rows of a class have one weight per level, so a product with it is that times a first moment.
            whole = nodes[-1] / leaves[-1]
            variances = variances + bits / width * squares + 2 / part * second
            joint = joint + whole * (bits / width * nodes + 2 / part * first)
            firsts.append(first)
        alone = PrefixNoise(below=variances, joint=joint, total=float(variances[-1]))
        return _Class(below=below, first=np.array(firsts), alone=alone)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Class:
    """Sums up to each edge over one class.

    `below` are its rows, `first` are Σ_j n_j w_kj for each level, and `alone` is the error but for the squares of
    sums, which both classes have in common.
    """

    below: Floats
    first: Floats
    alone: PrefixNoise


def _weighted(weights: Floats, counts: Floats) -> Floats:
    """Return Σ n_j w_j w_j^T over classes and nodes j."""
    flat = weights.reshape(len(weights), -1)
    return np.asarray((flat * counts.reshape(-1)) @ flat.T)


def _outer(weights: Floats, counts: Floats) -> Floats:
    """Return (Σ n_j w_j)(Σ n_j w_j)^T."""
    sums = weights.reshape(len(weights), -1) @ counts.reshape(-1)
    return np.outer(sums, sums)
