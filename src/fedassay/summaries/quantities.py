"""Conformity scores that can be requested: one number per row, large where the prediction is bad.

A score is part of the public question: a summary carries its name and its parameters, so that every client computes
what was asked and not what it believes was meant. A prediction set holds what scores at most a threshold.

==============  ==========================  ==========================================================================
name            columns                     score
==============  ==========================  ==========================================================================
``value``       value                       the column itself
``conformity``  conformity                  the column itself: a score that the user has computed
``absolute``    target, prediction          abs(y - p)
``normalised``  target, prediction, scale   abs(y - p) / s
``cqr``         target, lower, upper        max(lower - y, y - upper), negative inside the band (Romano et al. 2019)
``lac``         class, logits               one minus the probability of the class (Sadinle et al. 2019)
``aps``         class, logits               probability of all more probable classes (Romano et al. 2020, with u = 0)
``raps``        class, logits               aps, and lambda for each rank after k_reg (Angelopoulos et al. 2021)
``binary``      label, score                one minus the probability of the label, by the score or a calibrator of it
==============  ==========================  ==========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from fedassay.errors import DataError, ParameterError, UsageError
from fedassay.protocol.arrays import Bools, Floats
from fedassay.protocol.vocabulary import Batch
from fedassay.summaries import class_scores
from fedassay.summaries.class_scores import CLASSES, binary, binary_sets
from fedassay.summaries.maps import map_from_numbers
from fedassay.summaries.measures import column

Compute = Callable[[Batch, tuple[float, ...]], Floats]

LARGEST_PENALTY = 1000.0
MOST_RANKS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """Conformity score: the columns it reads, its computation, and the public bounds of its range.

    Parameters
    ----------
    columns : the roles of the columns that it reads.
    compute : of some rows and the parameters, the score of each row.
    parameters : the names of the parameters.
    defaults : their values if none are given.
    lower, upper : no score is outside; None where that depends on the data or, for ``raps``, on the parameters
        (`public_range`).
    classes : the number of classes, where that is always the same.
    truth : the role of the column with the true class.
    """

    name: str
    columns: tuple[str, ...]
    compute: Compute
    parameters: tuple[str, ...] = ()
    defaults: tuple[float, ...] = ()
    lower: float | None = None
    upper: float | None = None
    classes: int | None = None
    truth: str = "class"

    @property
    def is_softmax(self) -> bool:
        """True if the score is made of logits, one for each class."""
        return "logits" in self.columns

    @property
    def gives_sets(self) -> bool:
        """True if prediction sets are sets of classes, which have a size."""
        return self.is_softmax or self.classes is not None


def _number(batch: Batch, role: str) -> Floats:
    return np.asarray(column(batch, role), dtype=np.float64)


def _absolute(batch: Batch, parameters: tuple[float, ...]) -> Floats:
    return np.abs(_number(batch, "target") - _number(batch, "prediction"))


def _scale(batch: Batch) -> Floats:
    scale = _number(batch, "scale")
    if scale.size and not scale.min() > 0:  # NaN fails too
        raise DataError(
            "scale: got a number that is not above 0, expected positive numbers; a scale says how far predictions "
            "are usually off."
        )
    return scale


def _normalised(batch: Batch, parameters: tuple[float, ...]) -> Floats:
    return _absolute(batch, ()) / _scale(batch)


def _cqr(batch: Batch, parameters: tuple[float, ...]) -> Floats:
    y = _number(batch, "target")
    return np.maximum(_number(batch, "lower") - y, y - _number(batch, "upper"))


def _classified(score: Callable[..., Floats]) -> Compute:
    def compute(batch: Batch, parameters: tuple[float, ...]) -> Floats:
        return score(column(batch, "logits"), column(batch, "class"), *parameters)

    return compute


_CLASSIFIED = ("class", "logits")

QUANTITIES: Mapping[str, Quantity] = MappingProxyType(
    {
        quantity.name: quantity
        for quantity in (
            Quantity(name="value", columns=("value",), compute=lambda batch, _: _number(batch, "value")),
            Quantity(
                name="conformity",
                columns=("conformity",),
                compute=lambda batch, _: _number(batch, "conformity"),
            ),
            Quantity(name="absolute", columns=("target", "prediction"), compute=_absolute, lower=0.0),
            Quantity(
                name="normalised", columns=("target", "prediction", "scale"), compute=_normalised, lower=0.0
            ),
            Quantity(name="cqr", columns=("target", "lower", "upper"), compute=_cqr),
            Quantity(
                name="lac", columns=_CLASSIFIED, compute=_classified(class_scores.lac), lower=0.0, upper=1.0
            ),
            Quantity(
                name="aps", columns=_CLASSIFIED, compute=_classified(class_scores.aps), lower=0.0, upper=1.0
            ),
            Quantity(
                name="raps",
                columns=_CLASSIFIED,
                compute=_classified(class_scores.raps),
                parameters=("lambda", "k_reg"),
                defaults=(0.01, 5.0),
                lower=0.0,
            ),
            Quantity(
                name="binary",
                columns=("label", "score"),
                compute=lambda batch, parameters: binary(
                    column(batch, "score"), column(batch, "label"), parameters
                ),
                parameters=("calibrator",),
                lower=0.0,
                upper=1.0,
                classes=CLASSES,
                truth="label",
            ),
        )
    }
)


def checked_quantity(name: str, parameters: Iterable[float] = ()) -> tuple[float, ...]:
    """Return the parameters of a quantity, the defaults if none are given.

    Those of ``binary`` are a calibrator as `maps.numbers_of` writes it; none are the scores as they are.

    Examples
    --------
    >>> checked_quantity("raps"), checked_quantity("raps", [0.1, 2]), checked_quantity("cqr")
    ((0.01, 5.0), (0.1, 2.0), ())
    >>> checked_quantity("residual")
    Traceback (most recent call last):
    fedassay.errors.UsageError: conformity score: got 'residual', expected one of value, conformity, absolute, \
normalised, cqr, lac, aps, raps, binary.
    """
    if not isinstance(name, str) or name not in QUANTITIES:
        raise UsageError(f"conformity score: got {name!r}, expected one of {', '.join(QUANTITIES)}.")
    quantity = QUANTITIES[name]
    given = tuple(float(number) for number in parameters)
    if not given:
        return quantity.defaults
    if name == "binary":
        map_from_numbers(given)
        return given
    if len(given) != len(quantity.defaults):
        wanted = f"{', '.join(quantity.parameters)}" if quantity.parameters else "none"
        raise ParameterError("score_parameters", f"got {len(given)} numbers for {name}, expected {wanted}.")
    if name == "raps":
        _check_raps(*given)
    return given


def _check_raps(penalty: float, k_reg: float) -> None:
    if not 0 <= penalty <= LARGEST_PENALTY:
        raise ParameterError(
            "score_parameters",
            f"got the lambda {penalty:g}, expected a number from 0 to {LARGEST_PENALTY:g}.",
        )
    if not (0 <= k_reg <= MOST_RANKS and k_reg == math.floor(k_reg)):
        raise ParameterError(
            "score_parameters", f"got the k_reg {k_reg:g}, expected a whole number from 0 to {MOST_RANKS}."
        )


def public_range(
    name: str, parameters: tuple[float, ...] = (), *, classes: int | None = None
) -> tuple[float | None, float | None]:
    """Return the bounds of every score, whatever the rows are; None at an end that cannot be known.

    Examples
    --------
    >>> public_range("aps"), public_range("cqr"), public_range("raps", (0.25, 5.0), classes=7)
    ((0.0, 1.0), (None, None), (0.0, 1.5))
    """
    parameters, quantity = checked_quantity(name, parameters), QUANTITIES[name]
    if name == "raps" and classes is not None:
        penalty, k_reg = parameters
        return 0.0, 1.0 + penalty * max(0.0, classes - k_reg)
    return quantity.lower, quantity.upper


def scores_of(batch: Batch, quantity: str, parameters: tuple[float, ...]) -> Floats:
    """Return the score of each row, finite numbers.

    Raises `DataError` for a column that is not there or holds what is no number, with its role.

    Examples
    --------
    >>> scores_of({"target": np.array([1.0, 2.0]), "prediction": np.array([1.5, 2.0])}, "absolute", ())
    array([0.5, 0. ])
    """
    known = QUANTITIES[quantity]
    with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is found below
        scores = known.compute(batch, parameters)
    if not np.isfinite(scores).all():
        _check_finite(batch, known)
        # Numbers so large that their difference is none: the largest score there is. A refusal would be seen.
        scores = np.nan_to_num(scores, nan=np.finfo(np.float64).max)
    # Adding zero turns -0.0 into 0.0, so that the bits of two scores are ordered like the scores.
    return np.asarray(scores + 0.0, dtype=np.float64)


def sets_of(batch: Batch, threshold: ArrayLike, quantity: str, parameters: tuple[float, ...]) -> Bools:
    """Return which classes are in the prediction set of each row: those that score at most the threshold (n x K).

    For quantities that give sets. The true class is not read. Decided exactly as `scores_of` computes scores.

    Parameters
    ----------
    threshold : a number, or one per class (an array of K), or one per row (an array of n x 1).

    Examples
    --------
    >>> sets_of({"score": np.array([0.2, 0.6])}, 0.5, "binary", ()).tolist()
    [[True, False], [False, True]]
    """
    if QUANTITIES[quantity].is_softmax:
        return class_scores.sets(column(batch, "logits"), threshold, quantity, parameters)
    if not QUANTITIES[quantity].gives_sets:
        raise UsageError(f"prediction sets: got {quantity!r}, which scores no classes.")
    return binary_sets(column(batch, "score"), threshold, parameters)


def widths(columns: Batch, quantity: str, threshold: ArrayLike) -> Floats:
    """Return the widths of the intervals of values that score at most the threshold: 0 where they are empty.

    Parameters
    ----------
    columns : those of the quantity but the target, and the prediction, which do not matter.
    threshold : a number, or one per row.

    Examples
    --------
    >>> widths({"lower": np.array([0.0, 0.0]), "upper": np.array([1.0, 4.0])}, "cqr", -1.0)
    array([0., 2.])
    """
    limit = 2 * np.asarray(threshold, dtype=np.float64)
    if quantity == "normalised":
        found = limit * _scale(columns)
    elif quantity == "cqr":
        found = _number(columns, "upper") - _number(columns, "lower") + limit
    else:
        raise UsageError(f"widths: got {quantity!r}, expected 'normalised' or 'cqr'.")
    return np.maximum(0.0, found)


def _check_finite(batch: Batch, quantity: Quantity) -> None:
    """Raise for columns that the data layer would not have let pass."""
    for role in quantity.columns:
        if not np.isfinite(batch[role]).all():
            raise DataError(
                f"{role}: got a number that is NaN or infinite, expected finite ones; remove or repair these rows."
            )
