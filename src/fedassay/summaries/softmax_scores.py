"""Conformity scores of classifiers, and the prediction sets that belong to them.

With weights e_k = exp(z_k - max z), rounded to whole multiples of 2^-b, and s their sum, for a row with logits z:

    lac(y)  = 1 - e_y / s
    aps(y)  = Σ {e_k : z_k >= z_y} / s
    raps(y) = aps(y) + lambda·max(0, #{k : z_k >= z_y} - k_reg)

Classes that are equally probable share the larger score. Nothing is drawn at random: a set is as likely to hold the
class as with randomisation, or likelier.

b is such that sums of all weights of a row are whole numbers below 2^53 in units of 2^-b, hence exact in any order. So a
score does not depend on how it was summed, and calibration and prediction, which sum in different ways, agree in
every bit: a class is in the set *exactly* if its score is at most the threshold. (On another machine, whose exponential
function may round otherwise, a score can differ by about 2^-b.) Probabilities are accurate to K·2^-b, that is
1e-12 for 10 classes and 1e-10 for 100; float32 would give 1e-7.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.errors import DataError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_BLOCK = 1 << 15
"""Numbers per block: the few arrays of this size that are needed at a time fit into the second-level cache."""

_FEW = 24
"""Up to so many classes, comparing each with each is faster than sorting them."""


def lac(logits: ArrayLike, labels: ArrayLike) -> Floats:
    """One minus the probability of the true class.

    Reference: Sadinle, Lei and Wasserman, Least Ambiguous Set-Valued Classifiers with Bounded Error Levels, 2019.

    Examples
    --------
    >>> lac(np.log([[0.5, 0.25, 0.25], [0.125, 0.375, 0.5]]), [0, 1]).round(6)
    array([0.5  , 0.625])
    """
    z, y = _checked(logits, labels)
    scores = np.empty(len(z))
    for part, _, e in _blocks(z):
        scores[part] = 1 - _of(e, y[part]) / e.sum(axis=0)
    return scores


def aps(logits: ArrayLike, labels: ArrayLike) -> Floats:
    """The probability of all classes that are at least as probable as the true one, itself included.

    Reference: Romano, Sesia and Candès, Classification with Valid and Adaptive Coverage, 2020, without randomisation.

    Examples
    --------
    >>> aps(np.log([[0.5, 0.25, 0.25], [0.125, 0.375, 0.5]]), [1, 1]).round(6)
    array([1.   , 0.875])
    """
    z, y = _checked(logits, labels)
    scores = np.empty(len(z))
    for part, z_block, e in _blocks(z):
        above = z_block >= _of(z_block, y[part])
        scores[part] = (e * above).sum(axis=0) / e.sum(axis=0)
    return scores


def raps(logits: ArrayLike, labels: ArrayLike, penalty: float, k_reg: float) -> Floats:
    """`aps`, and a penalty for each rank of the true class after `k_reg`; rank 1 is the most probable class.

    Reference: Angelopoulos, Bates, Jordan and Malik, Uncertainty Sets for Image Classifiers, 2021, Algorithm 2.

    Examples
    --------
    >>> raps(np.log([[0.5, 0.3, 0.2]] * 2), [0, 2], 0.1, 1).round(6)
    array([0.5, 1.2])
    """
    z, y = _checked(logits, labels)
    scores = np.empty(len(z))
    for part, z_block, e in _blocks(z):
        above = z_block >= _of(z_block, y[part])
        mass = (e * above).sum(axis=0) / e.sum(axis=0)
        scores[part] = mass + _penalty(above.sum(axis=0), penalty, k_reg)
    return scores


def _penalty(rank: Any, penalty: float, k_reg: float) -> Any:
    return penalty * np.maximum(0.0, rank - k_reg)


def _checked(logits: ArrayLike, labels: ArrayLike) -> tuple[Floats, Ints]:
    """Logits, and the true classes as whole numbers below their number."""
    z = _checked_logits(logits)
    y = np.asarray(labels)
    if y.shape != (len(z),):
        raise DataError(f"class: got {y.shape} of them for {len(z)} rows of logits, expected one per row.")
    if y.size and y.dtype.kind not in "iu":
        raise DataError(f"class: got numbers of type {y.dtype}, expected whole numbers.")
    if y.size and not (y.min() >= 0 and y.max() < z.shape[1]):
        wrong = y.max() if y.min() >= 0 else y.min()
        raise DataError(
            f"class: got {wrong}, expected whole numbers from 0 to {z.shape[1] - 1}, one for each logit; recode them."
        )
    return z, y.astype(np.int64, copy=False)


def _checked_logits(logits: ArrayLike) -> Floats:
    z = np.asarray(logits, dtype=np.float64)
    if z.ndim != 2 or z.shape[1] < 1:
        raise DataError(f"logits: got an array of shape {z.shape}, expected rows x classes.")
    return z


def _blocks(z: Floats) -> Iterator[tuple[slice, Floats, Floats]]:
    """Rows, their logits and their weights, classes first: sums over classes then run over whole vectors of rows."""
    rows, classes = z.shape
    width = max(16, _BLOCK // classes)
    # Adding a number of this size and taking it away again rounds to its last bit: half even, as all arithmetic.
    rounding = 1.5 * 2.0 ** (classes - 1).bit_length()
    for start in range(0, rows, width):
        part = slice(start, min(start + width, rows))
        block = np.ascontiguousarray(z[part].T)
        e = np.exp(block - block.max(axis=0))
        yield part, block, (e + rounding) - rounding


def _of(block: Floats, y: Ints) -> Floats:
    """The entry of each row's class."""
    return np.take(block.reshape(-1), y * block.shape[1] + np.arange(len(y)))
