"""Calibrator that stretches the gaps between sorted logits by factors from a small network, and its loss on rows.

For a row with logits z of c classes, y is z sorted, largest first, x is y less its mean, cut at ±50, and

    m = softplus(MLP(x)) + 1e-6          two hidden layers of 64 units, max(0, ·)
    u = S^{-1} U w, w_i = (y_i - y_{i+1}) m_i, w_c = 0

with S the permutation that sorts z and U an upper triangle of ones; probabilities are softmax(u). This is scaling that
preserves the order (`multiclass.losses`), with factors that depend on the row. Centring makes the map see what the
softmax sees: logits that are shifted by a constant get the same probabilities (to rounding). The cut only concerns
the input of the network, not the gaps: nothing overflows, however far apart logits are.

The loss is not convex in the weights. Its gradient is the one by m of order-preserving scaling, with d_j the gaps and
P_j the probability of the j largest classes d_j (P_j - 1[rank of the true class <= j]), taken through softplus and the
layers by the chain rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import expit

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats, Ints
from fedassay.summaries.maps import numbers
from fedassay.summaries.multiclass.losses import falling_gaps, product, suffix_sums
from fedassay.summaries.multiclass.scaling_maps import LogitMap, stretched
from fedassay.summaries.scored import MOST_CLASSES, whole

HIDDEN = 64
LARGEST_INPUT = 50.0
LEAST_FACTOR = 1e-6
"""Smallest m: below it, classes would be distinguished by nothing but rounding."""

_SEED = 7
_ONE = math.log(math.expm1(1 - LEAST_FACTOR))
"""Argument of softplus for which, with 1e-6, it is 1."""


class Layers(NamedTuple):
    """Views of theta: weights (units x inputs) and intercepts of the three layers."""

    w1: Floats
    b1: Floats
    w2: Floats
    b2: Floats
    w3: Floats
    b3: Floats


class Sorted(NamedTuple):
    """Rows of logits, classes first, from the largest logit to the smallest: the network's input, and the gaps."""

    x: Floats
    gaps: Floats

    def part(self, rows: slice) -> Sorted:
        """Return a part of the rows."""
        return Sorted(x=self.x[:, rows], gaps=self.gaps[:, rows])


def fedcal_size(classes: int) -> int:
    """Return the number of weights.

    Examples
    --------
    >>> fedcal_size(10)
    5514
    """
    return HIDDEN * (classes + 1) + HIDDEN * (HIDDEN + 1) + classes * (HIDDEN + 1)


def fedcal_identity(classes: int) -> Floats:
    """Return weights from which a fit starts: the identity map, whatever the hidden layers are.

    Those are uniform on ±√(3/inputs), from a fixed public stream, so that their units differ from each other; the last
    layer has no weights yet, and intercepts that make all factors one. Every call returns the same numbers.
    """
    # The raw stream of a bit generator is fixed for ever; the numbers that NumPy derives from it are not.
    bits = np.random.PCG64(_SEED).random_raw(HIDDEN * (classes + HIDDEN))
    uniform = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1
    first, second = np.split(uniform, [HIDDEN * classes])
    none = np.zeros(HIDDEN)
    return np.concatenate(
        [
            math.sqrt(3 / classes) * first,
            none,
            math.sqrt(3 / HIDDEN) * second,
            none,
            np.zeros(classes * HIDDEN),
            np.full(classes, _ONE),
        ]
    )


def layers(theta: Floats, classes: int) -> Layers:
    """Return the weights by layer; `theta` is not copied."""
    sizes = [HIDDEN * classes, HIDDEN, HIDDEN * HIDDEN, HIDDEN, classes * HIDDEN, classes]
    at = [0, *accumulate(sizes)]
    w1, b1, w2, b2, w3, b3 = (theta[i:j] for i, j in pairwise(at))
    return Layers(
        w1.reshape(HIDDEN, classes), b1, w2.reshape(HIDDEN, HIDDEN), b2, w3.reshape(classes, HIDDEN), b3
    )


def sorted_rows(falling: Floats) -> Sorted:
    """Return the input of the network for logits that are sorted, classes first."""
    x = np.clip(falling - falling.mean(axis=0), -LARGEST_INPUT, LARGEST_INPUT)
    return Sorted(x=x, gaps=falling_gaps(falling))


def _read(of: Layers, x: Floats) -> tuple[Floats, Floats, Floats]:
    """Return both hidden layers, and the last one before softplus."""
    first = np.maximum(product(of.w1, x) + of.b1[:, None], 0.0)
    second = np.maximum(product(of.w2, first) + of.b2[:, None], 0.0)
    return first, second, product(of.w3, second) + of.b3[:, None]


def _factors(last: Floats) -> Floats:
    return np.asarray(np.logaddexp(0.0, last) + LEAST_FACTOR)


def loss_and_gradient(rows: Sorted, rank: Ints, theta: Floats) -> tuple[float, Floats]:
    """Return the summed log loss of these rows and its gradient by theta. `rank` is where the true class is, 0 if on
    top.

    Guarantee: nothing overflows as long as parameters are within ±2^20 and logits too.
    """
    classes, n = rows.x.shape
    of = layers(theta, classes)
    first, second, last = _read(of, rows.x)
    u = suffix_sums(rows.gaps * _factors(last))
    below = u - u[0]
    p = np.exp(below)
    total = p.sum(axis=0)
    loss = float((np.log(total) - below[rank, np.arange(n)]).sum())
    np.cumsum(p, axis=0, out=p)
    p /= total
    inside = rank <= np.arange(classes)[:, None]
    d_last = rows.gaps * (p - inside) * expit(last)
    d_second = (of.w3.T @ d_last) * (second > 0)
    d_first = (of.w2.T @ d_second) * (first > 0)
    pieces = ((d_first, rows.x), (d_second, first), (d_last, second))
    gradient = [part for d, inputs in pieces for part in ((d @ inputs.T).reshape(-1), d.sum(axis=1))]
    return loss, np.concatenate(gradient)


def ranked(block: Floats, labels: Ints) -> tuple[Sorted, Ints]:
    """Sort rows of logits within bounds, classes first, and rank their true classes."""
    true = block[labels, np.arange(len(labels))]
    # Among equal logits any rank will do: the gaps between them are 0.
    rank = np.count_nonzero(block > true, axis=0)
    return sorted_rows(np.sort(block, axis=0)[::-1]), rank


@dataclass(frozen=True, kw_only=True)
class FedCal(LogitMap):
    """Softmax of logits whose gaps are stretched by factors that a network of 64 and 64 units reads off the row.

    Guarantee: as for `OrderPreserving`, whatever the weights are: a class whose logit is at least that of another one
    gets at least its probability, and equal logits get equal probabilities, in floating point too.

    References: Rahimi, Shaban, Cheng, Hartley and Boots, Intra Order-Preserving Functions for Calibration of
    Multi-Class Neural Networks, 2020, Theorem 1; Peng, Yu, Tang and Li, FedCal: Achieving Local and Global Calibration
    in Federated Learning, 2024, for the network.

    Examples
    --------
    >>> one = FedCal.of(fedcal_identity(3), 3)
    >>> one.predict_proba(np.log([[0.125, 0.25, 0.625]])).round(6)
    array([[0.125, 0.25 , 0.625]])
    """

    kind: ClassVar[str] = "fedcal"

    weights: tuple[float, ...]
    classes: int

    def __post_init__(self) -> None:
        whole(self.classes, what="classes", least=2, most=MOST_CLASSES)
        object.__setattr__(self, "weights", numbers("weights", self.weights))
        size = fedcal_size(self.classes)
        if len(self.weights) != size:
            raise UsageError(
                f"map: got {len(self.weights):,} weights for {self.classes} classes, expected {size:,}."
            )

    @property
    def width(self) -> int:
        """Number of classes; see `LogitMap`."""
        return self.classes

    @classmethod
    def of(cls, theta: Floats, classes: int) -> Self:
        """Build the map; see `LogitMap`."""
        return cls(weights=tuple(theta.tolist()), classes=classes)

    def _weights(self, z: Floats) -> Floats:
        network = layers(self.theta, self.classes)
        return stretched(z, lambda falling: _factors(_read(network, sorted_rows(falling).x)[-1]))

    @property
    def keeps_order(self) -> bool:
        """True; see `LogitMap`."""
        return True
