"""Conformity scores of classifiers, of two classes and of several, and the prediction sets that belong to them.

The conformity score of a binary classifier, and the prediction sets that belong to it.

With p the probability of 1, which is the model's score or what a calibrator makes of it:

    binary(1) = 1 - p
    binary(0) = p

that is, one minus the probability of the true class, as ``lac`` has it for several classes (Sadinle, Lei and Wasserman
2019). A set holds 0, 1, both or nothing.

Calibration and prediction both compute p and 1 - p here and nowhere else. So a class is in a set *exactly* if its score
is at most the threshold. (On another machine, whose logarithm may round otherwise, a calibrated probability can differ
in its last digit.)

Conformity scores of classifiers, and the prediction sets that belong to them.

With weights e_k = exp(z_k - max z), rounded to whole multiples of 2^-b, and s their sum, for a row with logits z:

    lac(y)  = 1 - e_y / s
    aps(y)  = Σ {e_k : z_k > z_y} / s
    raps(y) = aps(y) + lambda·max(0, 1 + #{k : z_k > z_y} - k_reg)

The randomised scores of the literature add u·e_y / s, u uniform on [0, 1], drawn anew for each row. Here u = 0: nothing
is random, and the scores, which depend on the row alone, are as valid. With u = 1 they would be valid too. But a row of
which a model is sure and right would score just below 1, among the highest. Sets would go on for many classes to reach
a threshold that close to 1. A set holds the most probable classes until their probability passes the threshold, the
class that passes it included. The most probable class has the smallest score that there is, so a threshold that comes
from scores never makes an empty set; if the model is right more often than the level, sets of one class cover more than
was asked for. Classes that are equally probable share the smaller score.

b is such that the weights of a row add up to less than 2^53 units of 2^-b: sums of them are exact, in any order. So
calibration and prediction, which sum in different ways, agree in every bit. A class is in the set *exactly* if its
score is at most the threshold. (On another machine, whose exponential function may round otherwise, a score can differ
in its last digits.) For K classes probabilities are accurate to K·2^-b with b = 52 - ⌈log2 K⌉: 4e-14 for 10 classes and
3e-12 for 100.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.errors import DataError, UsageError
from fedassay.protocol.arrays import Bools, Floats, Ints
from fedassay.summaries.maps import Map, map_from_numbers

CLASSES = 2


def binary(scores: ArrayLike, labels: ArrayLike, parameters: tuple[float, ...] = ()) -> Floats:
    """Compute one minus the probability of the true label.

    Parameters
    ----------
    scores : in [0, 1].
    labels : 0 or 1.
    parameters : a calibrator as `maps.numbers_of` writes it; none for scores as they are.

    Guarantee: every number is in [0, 1]. Edge case: a calibrator whose coefficients are too large for a number to come
    out gives 1, the largest score, for both labels.

    Examples
    --------
    >>> binary([0.25, 0.25], [1, 0])
    array([0.75, 0.25])
    """
    both, y = _scores(scores, parameters), np.asarray(labels)
    if (
        y.shape != (len(both),)
        or y.dtype.kind not in "iub"
        or (y.size and not (y.min() >= 0 and y.max() <= 1))
    ):
        raise DataError("label: got a value other than 0 and 1, expected binary labels, one for each score.")
    return np.asarray(np.where(y == 1, both[:, 1], both[:, 0]))


def binary_sets(scores: ArrayLike, threshold: ArrayLike, parameters: tuple[float, ...] = ()) -> Bools:
    """Return which of 0 and 1 are in the prediction set of each row: those that score at most the threshold.

    Guarantee: a label is in the set of a row exactly if the score of that row with this label (`binary`) is at most the
    threshold, compared as computed. Edge cases: a set can be empty; +∞ as threshold means both.

    Parameters
    ----------
    threshold : a number, or one for each of 0 and 1 (an array of 2), or one per row (an array of n x 1).

    Examples
    --------
    >>> binary_sets([0.1, 0.5, 0.9], 0.5).tolist()
    [[True, False], [True, True], [False, True]]
    """
    both, limit = _scores(scores, parameters), np.asarray(threshold, dtype=np.float64)
    if limit.shape not in ((), (CLASSES,), (len(both), 1)) or np.isnan(limit).any():
        raise UsageError(
            f"threshold: got NaN, or an array of shape {limit.shape}, expected a number, one for each of 0 and 1, or "
            f"one per row (shape {(len(both), 1)})."
        )
    return np.asarray(both <= limit)


def _scores(scores: ArrayLike, parameters: tuple[float, ...]) -> Floats:
    """Return the scores of 0 and of 1, one row each: n x 2."""
    # Contiguous, because loops over strided numbers may round otherwise.
    s = np.ascontiguousarray(scores, dtype=np.float64)
    # Written so that NaN fails: every comparison with NaN is false.
    if s.ndim != 1 or (s.size and not (s.min() >= 0 and s.max() <= 1)):
        raise DataError("score: got a number that is NaN or outside [0, 1], expected probabilities.")
    calibrator = _calibrator(parameters)
    if calibrator is not None:
        with np.errstate(all="ignore"):
            s = calibrator(s)
    return np.where(np.isnan(s), 1.0, [s, 1 - s]).T


@lru_cache(maxsize=8)
def _calibrator(parameters: tuple[float, ...]) -> Map | None:
    return map_from_numbers(parameters)


# --- conformity scores of classifiers -----------------------------------------------------------------------


SOFTMAX = ("lac", "aps", "raps")

_BLOCK = 1 << 16
"""Numbers per block: the few arrays of this size that are needed at a time fit into the second-level cache."""


def lac(logits: ArrayLike, labels: ArrayLike) -> Floats:
    """Compute one minus the probability of the true class.

    Reference: Sadinle, Lei and Wasserman, Least Ambiguous Set-Valued Classifiers with Bounded Error Levels, 2019.

    Examples
    --------
    >>> lac(np.log([[0.5, 0.25, 0.25], [0.125, 0.375, 0.5]]), [0, 1]).round(6)
    array([0.5  , 0.625])
    """
    z, y = _checked(logits, labels)
    scores = np.empty(len(z))
    for part, block in blocks(z):
        e, total = _weights(block)
        scores[part] = _lac(_of(e, y[part]), total)
    return scores


def aps(logits: ArrayLike, labels: ArrayLike) -> Floats:
    """Compute the probability of all classes that are more probable than the true one: 0 for the most probable class.

    Reference: Romano, Sesia and Candès, Classification with Valid and Adaptive Coverage, 2020, Section 2, where a
    random part of the true class's own probability is added; here nothing of it.

    Examples
    --------
    >>> aps(np.log([[0.5, 0.25, 0.25], [0.125, 0.375, 0.5]]), [1, 0]).round(6)
    array([0.5  , 0.875])
    """
    return raps(logits, labels, 0.0, 0.0)


def raps(logits: ArrayLike, labels: ArrayLike, penalty: float, k_reg: float) -> Floats:
    """Compute `aps` and a penalty for each rank of the true class after `k_reg`; rank 1 is the most probable class.

    Reference: Angelopoulos, Bates, Jordan and Malik, Uncertainty Sets for Image Classifiers, 2021, Algorithm 2, whose
    random part of the true class's own probability is left out, as in `aps`.

    Examples
    --------
    >>> raps(np.log([[0.5, 0.3, 0.2]] * 2), [0, 2], 0.1, 1).round(6)
    array([0., 1.])
    """
    z, y = _checked(logits, labels)
    scores = np.empty(len(z))
    for part, block in blocks(z):
        e, total = _weights(block)
        above = block > _of(block, y[part])
        np.multiply(e, above, out=e)
        rank = 1 + np.count_nonzero(above, axis=0) if penalty else 0
        scores[part] = _raps(e.sum(axis=0), total, rank, penalty, k_reg)
    return scores


def sets(logits: ArrayLike, threshold: ArrayLike, quantity: str, parameters: tuple[float, ...] = ()) -> Bools:
    """Return which classes are in the prediction set of each row: those that score at most the threshold.

    Guarantee: class y is in the set of a row exactly if the score of that row with y as its class (`lac`, `aps`,
    `raps`) is at most the threshold, compared as computed. Edge cases: a set can be empty, but of ``aps`` and ``raps``
    only if the threshold is below every score that there can be; +∞ as threshold means all classes.

    Parameters
    ----------
    threshold : a number, or one per class (an array of K), or one per row (an array of n x 1).

    Examples
    --------
    >>> sets(np.log([[0.5, 0.3, 0.2]]), 0.6, "aps").tolist(), sets(np.log([[0.5, 0.3, 0.2]]), 0.6, "lac").tolist()
    ([[True, True, False]], [[True, False, False]])
    """
    if quantity not in SOFTMAX:
        raise UsageError(f"prediction sets: got {quantity!r}, expected one of {', '.join(SOFTMAX)}.")
    z = checked_logits(logits)
    limit = np.asarray(threshold, dtype=np.float64)
    if limit.shape not in ((), z.shape[1:], (len(z), 1)) or np.isnan(limit).any():
        raise UsageError(
            f"threshold: got NaN, or an array of shape {limit.shape}, expected a number, one per class (shape "
            f"{z.shape[1:]}) or one per row (shape {(len(z), 1)})."
        )
    found = np.empty(z.shape, dtype=np.bool_)
    for part, block in blocks(z):
        at = limit[part].T if limit.ndim == 2 else limit.reshape(-1, 1)
        if quantity == "lac":
            e, total = _weights(block)
            found[part] = (_lac(e, total) <= at).T
        else:
            found[part] = _at_most(block, at, *(parameters or (0.0, 0.0))).T
    return found


# --- the scores, from exact sums ------------------------------------------------------------------------


def _lac(e: Floats, total: Floats) -> Floats:
    return np.asarray(1 - e / total)


def _raps(mass: Floats, total: Floats, rank: Any, penalty: float, k_reg: float) -> Floats:
    aps = mass / total
    return aps + penalty * np.maximum(0.0, rank - k_reg) if penalty else aps


def _at_most(z: Floats, limits: Floats, penalty: float, k_reg: float) -> Bools:
    """Return the classes (first axis) that score at most the limit: from some logit up, as scores fall with logits."""
    falling = _sorted(z)
    e, total = _weights(falling)
    mass = np.zeros_like(e)
    for k in range(1, len(z)):
        np.add(mass[k - 1], e[k - 1], out=mass[k])
    rank = np.arange(1.0, len(z) + 1)[:, None]
    if (falling[1:] == falling[:-1]).any():
        mass, rank = _shared(falling, mass, rank)
    scores = _raps(mass, total, rank, penalty, k_reg)
    if len(limits) == 1:
        return np.asarray(z >= np.where(scores <= limits, falling, np.inf).min(axis=0))
    found = np.empty(z.shape, dtype=np.bool_)
    for limit in np.unique(limits):
        chosen = limits[:, 0] == limit
        found[chosen] = z[chosen] >= np.where(scores <= limit, falling, np.inf).min(axis=0)
    return found


def _shared(falling: Floats, mass: Floats, rank: Floats) -> tuple[Floats, Floats]:
    """Return mass and rank, where equal classes all have those of the first of them."""
    mass, rank = mass.copy(), np.broadcast_to(rank, mass.shape).copy()
    for k in range(1, len(falling)):
        tied = falling[k] == falling[k - 1]
        mass[k], rank[k] = np.where(tied, mass[k - 1], mass[k]), np.where(tied, rank[k - 1], rank[k])
    return mass, rank


# --- blocks ---------------------------------------------------------------------------------------------


def _checked(logits: ArrayLike, labels: ArrayLike) -> tuple[NDArray[Any], Ints]:
    z = checked_logits(logits)
    return z, checked_labels(labels, z)


def checked_labels(labels: ArrayLike, z: NDArray[Any]) -> Ints:
    """Return the true classes of rows with these logits, as whole numbers below their number."""
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
    return y.astype(np.int64, copy=False)


def checked_logits(logits: ArrayLike) -> NDArray[Any]:
    """Return the logits as numbers, rows x classes, or raise."""
    z = np.asarray(logits)
    if z.ndim != 2 or z.shape[1] < 1 or z.dtype.kind not in "fiu":
        raise DataError(
            f"logits: got an array of shape {z.shape} and type {z.dtype}, expected numbers, rows x classes."
        )
    return z


def require_finite(finite: bool) -> None:  # noqa: FBT001 # what was found of some logits
    """Refuse logits of which some are NaN or infinite."""
    if not finite:
        raise DataError(
            "logits: got NaN or infinite numbers, expected finite ones; remove or repair these rows."
        )


def parts(z: NDArray[Any], numbers: int = _BLOCK) -> Iterator[slice]:
    """Yield slices of the rows, blocks of about this many numbers."""
    width = max(16, numbers // int(z.shape[1]))
    for start in range(0, len(z), width):
        yield slice(start, min(start + width, len(z)))


def blocks(z: NDArray[Any]) -> Iterator[tuple[slice, Floats]]:
    """Yield rows and their logits, classes first: operations over classes then run over whole vectors of rows."""
    for part in parts(z):
        yield part, np.array(z[part].T, dtype=np.float64, order="C")


def _weights(z: Floats) -> tuple[Floats, Floats]:
    """Return the weights and their sum over classes, all multiples of 2^-b."""
    with np.errstate(invalid="ignore", over="ignore"):
        e = z - z.max(axis=0)
    np.exp(e, out=e)
    # Adding this number and taking it away again rounds to its last digit, which is 2^-b.
    rounding = 1.5 * 2.0 ** (len(z) - 1).bit_length()
    e += rounding
    e -= rounding
    total = e.sum(axis=0)
    require_finite(not np.isnan(total).any())
    return e, total


def _of(block: Floats, y: Ints) -> Floats:
    """Return the entry of each row's class."""
    return np.asarray(np.take(block.reshape(-1), y * block.shape[1] + np.arange(len(y))))


def _sorted(z: Floats) -> Floats:
    """Return the classes of each row by falling logits."""
    return np.ascontiguousarray(np.sort(z.T, axis=1)[:, ::-1].T)
