"""Log losses of scaled logits, with their derivatives, summed over rows: a client's computation to fit a calibrator.

For a row with logits z of c classes and the true class y, the loss is log Σ_k exp(u_k) - u_y, with

    temperature        u = s z                                  theta = (s)
    vector             u = a * z + b                            theta = (a_1..a_c, b_1..b_c)
    matrix             u = A z + b                              theta = (A by rows, b)
    order-preserving   u = S^{-1} U w, w_i = (y_i - y_{i+1}) m_i    theta = (m_1..m_c) > 0

where y is z sorted, largest first, S the permutation that sorts it, and U an upper triangle of ones (w_c = 0: it would
only shift all classes, so m_c has no effect). In each case u is linear in theta, therefore the loss is convex in theta.

With p = softmax(u): the derivatives by u are p - e_y and diag(p) - p p^T; the rest is the chain rule. For
order-preserving scaling, with P_j the probability of the j largest classes and d_j = y_j - y_{j+1}, the derivative by
m_j is d_j (P_j - 1[rank of the true class <= j]) and the second one d_j d_l (P_min(j,l) - P_j P_l).

A logit beyond ±2^20 counts as ±2^20: models write -1e9 for "impossible", and sums stay within what fixed point holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.errors import DataError, UsageError
from fedassay.protocol.arrays import Floats, Ints
from fedassay.summaries.class_scores import checked_labels, parts, require_finite
from fedassay.summaries.maps import LARGEST_PARAMETER

LARGEST_LOGIT = 2.0**20
LEAST_SLOPE = 1e-6
"""Smallest m of order-preserving scaling: below it, classes would be distinguished by nothing but rounding."""

_BLOCK = 1 << 17
"""Numbers per block: few calls for many rows, in memory that stays near the processor."""

_LANES = 64

_SAFE = 300.0
"""Largest exponent that needs no shift: neither exp(300) times any number of classes nor exp(-300) leaves float64."""

_SAFE_ROUGHLY = 40.0
"""Largest exponent that needs no shift in float32, for products with squares of logits too."""

_SMALL = 1000.0
"""Largest logit that needs no centring: its squares are right to 1e-10."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LossSums:
    """Number of rows, and the sums over them of the loss, its gradient and (for order 2) its Hessian, by theta."""

    rows: int
    loss: float
    gradient: Floats
    hessian: Floats | None


class Block(NamedTuple):
    """Block of rows: logits (rows x classes, within bounds), classes, and the largest absolute value of a logit.

    `space` has the shape of the logits and may be written into: that saves asking for memory again for each block.
    `rough` sums may be computed in float32.
    """

    z: NDArray[Any]
    y: Ints
    largest: float
    space: Floats
    rough: bool = False


OfBlock = tuple[float, Floats, Floats | None]
"""Loss, gradient and Hessian."""


@dataclass(frozen=True, kw_only=True)
class ParameterSpace:
    """Parameters of a family of maps: their number for a number of classes, their start, and their bounds."""

    name: str
    size: Callable[[int], int]
    identity: Callable[[int], Floats]
    """Parameters that change nothing."""

    least: float = -LARGEST_PARAMETER
    most: float = LARGEST_PARAMETER

    def checked(self, theta: Iterable[float], classes: int) -> tuple[float, ...]:
        """Return the parameters as floats, if their number is right and they are within bounds."""
        found, size = tuple(float(number) for number in theta), self.size(classes)
        if len(found) != size:
            raise UsageError(
                f"theta: got {len(found)} numbers for {self.name} scaling of {classes} classes, expected {size}."
            )
        if not all(self.least <= number <= self.most for number in found):  # NaN fails too
            raise UsageError(
                f"theta: got numbers outside [{self.least:g}, {self.most:g}], or NaN, expected them within."
            )
        return found


@dataclass(frozen=True, kw_only=True)
class Family(ParameterSpace):
    """Family of maps, with the loss of rows as a function of its parameters."""

    of_block: Callable[[Block, Floats, int], OfBlock]
    """Function from rows, theta and the order."""


def loss_sums(
    method: str,
    logits: ArrayLike,
    labels: ArrayLike,
    theta: ArrayLike,
    *,
    order: int = 2,
    rough: bool = False,
) -> LossSums:
    """Return the sums over these rows, at this theta.

    Guarantee: no number overflows as long as parameters are within ±2^20. Edge cases: no rows are
    zeros; float32 logits are used as they are, and summed in float64.

    Parameters
    ----------
    logits : n x c, finite.
    labels : n whole numbers below c.
    order : 1 for the gradient only, 2 for the Hessian too.
    rough : sums that are right to about 1e-6 are enough: several times faster for the temperature, no matter elsewhere.

    Examples
    --------
    >>> sums = loss_sums("temperature", np.log([[0.5, 0.25, 0.25]]), [0], [1.0])
    >>> round(sums.loss, 6), sums.gradient.round(6), sums.hessian.round(6)
    (0.693147, array([-0.346574]), array([[0.120113]]))
    """
    family = FAMILIES[method]
    z = _matrix(logits)
    y = checked_labels(labels, z)
    at = np.asarray(theta, dtype=np.float64)
    size = family.size(z.shape[1])
    if at.shape != (size,):
        raise UsageError(f"{method}: got {at.size} parameters for {z.shape[1]} classes, expected {size}.")
    loss, gradient, hessian = 0.0, np.zeros(size), np.zeros((size, size)) if order == 2 else None
    space = np.empty(z[next(parts(z, _BLOCK), slice(0))].shape)
    for part in parts(z, _BLOCK):
        within, largest = _bounded(z[part])
        block = Block(z=within, y=y[part], largest=largest, space=space[: len(within)], rough=rough)
        one, first, second = family.of_block(block, at, order)
        loss, gradient = loss + one, gradient + first
        if hessian is not None and second is not None:
            hessian = hessian + second
    return LossSums(rows=len(z), loss=loss, gradient=gradient, hessian=hessian)


def blocks(logits: ArrayLike) -> Iterator[tuple[slice, Floats]]:
    """Yield rows and their logits, within bounds, classes first: loops over classes then run over vectors of rows."""
    z = _matrix(logits)
    for part in parts(z, _BLOCK):
        yield part, np.array(_bounded(z[part])[0].T, dtype=np.float64, order="C")


def padded(z: Floats) -> Floats:
    """Pad a block, classes first, with columns of zeros after the last row, up to a multiple of 64.

    The result for a row must not depend on the others, not in its last bit: bits decide bins, and a row that moved
    others into other bins would move a total without bound. Matrix products treat the last few columns of a block by
    themselves, and sums over the classes of a single column run in another order; of whole multiples of 64 columns they
    treat all alike.

    Examples
    --------
    >>> padded(np.ones((3, 70))).shape
    (3, 128)
    """
    missing = -z.shape[1] % _LANES
    return np.pad(z, ((0, 0), (0, missing))) if missing else z


def product(weights: Floats, z: Floats) -> Floats:
    """Multiply a matrix with a padded block, always 64 columns at a time.

    Some processors round products of small and of large blocks differently: of blocks of one size they treat all alike.
    """
    total = np.empty((len(weights), z.shape[1]))
    for first in range(0, z.shape[1], _LANES):
        lanes = slice(first, first + _LANES)
        total[:, lanes] = weights @ z[:, lanes]
    return total


# --- checks ---------------------------------------------------------------------------------------------


def _matrix(logits: ArrayLike) -> NDArray[Any]:
    z = np.asarray(logits)
    if z.ndim != 2 or z.shape[1] < 2 or z.dtype.kind not in "fiu":
        raise DataError(
            f"logits: got an array of shape {z.shape} and type {z.dtype}, expected numbers, rows x at least 2 classes."
        )
    return z if z.dtype.kind == "f" else z.astype(np.float64)


def _bounded(z: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """Return the block itself, cut at the bounds if anything is beyond them, and its largest absolute value."""
    largest = max(float(z.max()), -float(z.min()))
    if largest <= LARGEST_LOGIT:
        return z, largest
    require_finite(math.isfinite(largest))
    return np.clip(z, -LARGEST_LOGIT, LARGEST_LOGIT), LARGEST_LOGIT


# --- families -------------------------------------------------------------------------------------------


def _temperature(rows: Block, theta: Floats, order: int) -> OfBlock:
    """Compute Σ log Σ exp(s z) - s z_y; the derivatives are the mean of z under p, less z_y, and its variance.

    Rough sums are made in float32, but for those over rows.
    """
    z, e, s, shift = rows.z, rows.space, float(theta[0]), np.zeros(1)
    kind: type[np.floating[Any]] = np.float64
    if rows.rough and max(1.0, abs(s)) * rows.largest <= _SAFE_ROUGHLY:
        kind = np.float32
        z, e = rows.space.reshape(-1).view(kind).reshape(2, *rows.z.shape)
        np.copyto(z, rows.z, casting="same_kind")
    ones = np.ones(z.shape[1], dtype=kind)
    true = np.take(z, np.arange(len(z)) * z.shape[1] + rows.y).astype(kind, copy=False)
    if rows.largest > _SMALL or abs(s) * rows.largest > _SAFE:
        z, true = z - true[:, None], np.zeros(len(z))
        shift = (s * z).max(axis=1)
    np.multiply(z, kind(s), out=e, dtype=kind)
    if shift.any():
        e -= shift[:, None]
    np.exp(e, out=e)
    total = e @ ones  # sums by matrix products: several times faster than along an axis that is short
    loss = float(np.sum(np.log(total) + shift.astype(kind) - kind(s) * true, dtype=np.float64))
    e *= z
    mean = (e @ ones) / total
    gradient = np.array([float(np.sum(mean - true, dtype=np.float64))])
    if order == 1:
        return loss, gradient, None
    variance = np.einsum("nk,nk->n", e, z) / total - mean * mean
    return loss, gradient, np.array([[max(0.0, float(np.sum(variance, dtype=np.float64)))]])


def _residuals(u: Floats, y: Ints) -> tuple[float, Floats, Floats]:
    """Return the summed loss, p and p - e_y of blocks with classes first."""
    at = y * u.shape[1] + np.arange(u.shape[1])
    u = u - np.take(u, at)
    top = u.max(axis=0)
    p = np.exp(u - top)
    total = p.sum(axis=0)
    p /= total
    r = p.copy()
    r.reshape(-1)[at] -= 1.0
    return float((np.log(total) + top).sum()), p, r


def _vector(rows: Block, theta: Floats, order: int) -> OfBlock:
    z = np.array(rows.z.T, dtype=np.float64, order="C")
    a, b = np.split(theta, 2)
    loss, p, r = _residuals(a[:, None] * z + b[:, None], rows.y)
    gradient = np.concatenate([np.einsum("kn,kn->k", r, z), r.sum(axis=1)])
    if order == 1:
        return loss, gradient, None
    pz = p * z
    both = np.concatenate([pz, p])
    first = pz.sum(axis=1)
    own = np.block(
        [[np.diag(np.einsum("kn,kn->k", pz, z)), np.diag(first)], [np.diag(first), np.diag(p.sum(axis=1))]]
    )
    return loss, gradient, own - both @ both.T


def _matrix_scaling(rows: Block, theta: Floats, order: int) -> OfBlock:
    n, classes = rows.z.shape
    wide = np.ones((classes + 1, n))
    wide[:-1] = rows.z.T
    # Internally each class has its row of A and its b together: derivatives are then Kronecker products with (z, 1).
    by_class = np.concatenate(
        [theta[: classes**2].reshape(classes, classes), theta[classes**2 :, None]], axis=1
    )
    loss, p, r = _residuals(by_class @ wide, rows.y)
    slopes = r @ wide.T
    gradient = np.concatenate([slopes[:, :-1].reshape(-1), slopes[:, -1]])
    if order == 1:
        return loss, gradient, None
    pz = (p[:, None, :] * wide).reshape(-1, n)
    second = -(pz @ pz.T)
    own = (pz @ wide.T).reshape(classes, classes + 1, classes + 1)
    for k in range(classes):
        here = slice(k * (classes + 1), (k + 1) * (classes + 1))
        second[here, here] += own[k]
    place = np.arange(classes * (classes + 1)).reshape(classes, classes + 1)
    order_of_theta = np.concatenate([place[:, :-1].reshape(-1), place[:, -1]])
    return loss, gradient, second[np.ix_(order_of_theta, order_of_theta)]


def _order_preserving(rows: Block, theta: Floats, order: int) -> OfBlock:
    z = rows.z
    true = z[np.arange(len(z)), rows.y]
    gaps = falling_gaps(np.ascontiguousarray(np.sort(z, axis=1)[:, ::-1].T, dtype=np.float64))
    # Among equal logits any rank will do: the gaps between them are 0.
    rank = np.count_nonzero(z > true[:, None], axis=1)
    u = suffix_sums(gaps * theta[:, None])
    loss, p, _ = _residuals(u, rank)
    np.cumsum(p, axis=0, out=p)
    inside = rank <= np.arange(len(theta))[:, None]
    gradient = np.einsum("kn,kn->k", gaps, p - inside)
    if order == 1:
        return loss, gradient, None
    weighted = gaps * p
    upper = np.triu(weighted @ gaps.T)
    return loss, gradient, upper + np.triu(upper, 1).T - weighted @ weighted.T


def falling_gaps(falling: Floats) -> Floats:
    """Return y_i - y_{i+1} of columns that fall, and 0 for the last."""
    gaps = np.zeros_like(falling)
    np.subtract(falling[:-1], falling[1:], out=gaps[:-1])
    return gaps


def suffix_sums(w: Floats) -> Floats:
    """Compute U w: for each entry the sum of it and of those below it."""
    return np.asarray(np.cumsum(w[::-1], axis=0)[::-1])


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        family.name: family
        for family in (
            Family(
                name="temperature", size=lambda c: 1, identity=lambda c: np.ones(1), of_block=_temperature
            ),
            Family(
                name="vector",
                size=lambda c: 2 * c,
                identity=lambda c: np.concatenate([np.ones(c), np.zeros(c)]),
                of_block=_vector,
            ),
            Family(
                name="matrix",
                size=lambda c: c * (c + 1),
                identity=lambda c: np.concatenate([np.eye(c).reshape(-1), np.zeros(c)]),
                of_block=_matrix_scaling,
            ),
            Family(
                name="order-preserving",
                size=lambda c: c,
                identity=np.ones,
                of_block=_order_preserving,
                least=LEAST_SLOPE,
            ),
        )
    }
)
"""Families of maps by name."""
