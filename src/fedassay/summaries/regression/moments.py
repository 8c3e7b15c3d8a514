"""Means and standard deviations of features and target over all rows, from which a common scale is made.

Features on a common scale, and the way back: fits are stable and steps need no tuning, results are as asked for.

Each client shifts and scales its rows by public numbers (the means and scales of all rows, from one sum, or none at
all); the server translates estimates and covariances back. With f features, an intercept and u = x·theta,

    u = s·(Σ_j b_j (x_j - m_j)/d_j + b_0) + c   =>   theta_j = s b_j/d_j,   theta_0 = s(b_0 - Σ_j b_j m_j/d_j) + c,

a linear map of b, so that standard errors translate exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.parameters import Checked, Interval
from fedassay.protocol.vocabulary import (
    Batch,
    Memory,
    Rows,
    Summary,
    Total,
    Vector,
)
from fedassay.summaries.measures import FixedPoint, WithoutNoise, column
from fedassay.summaries.regression.losses import Design, SmoothLoss, SquaredError, loss_of

# --- features on a common scale -----------------------------------------------------------------------------


INTERCEPT = "intercept"
MOST_FEATURES = 256

Features = Annotated[int, Interval(ge=0, le=MOST_FEATURES)]
"""Number of features."""


@dataclass(frozen=True, kw_only=True)
class Standard(Checked):
    """Map from rows of `features` numbers to rows of a design: shifted, scaled, with a 1 in front for the intercept.

    Parameters
    ----------
    features : f, public. Rows with another number count for nothing.
    centres, scales : m and d, one for each feature; empty for 0 and 1.
    intercept : True if the first parameter is an intercept. Without it nothing is shifted.
    target_centre, target_scale : c and s; other than 0 and 1 only for linear regression.
    offset : True if rows have an offset. In linear regression it is taken off the target.

    Examples
    --------
    >>> standard = Standard(features=1, centres=(3.0,), scales=(2.0,))
    >>> standard.design({"features": np.array([[5.0]]), "target": np.array([1.0])}).x
    array([[1., 1.]])
    >>> standard.back(np.array([1.0, 4.0]))
    array([-5.,  2.])
    """

    features: Features
    centres: tuple[float, ...] = ()
    scales: tuple[Annotated[float, Interval(gt=0)], ...] = ()
    intercept: bool = True
    target_centre: float = 0.0
    target_scale: Annotated[float, Interval(gt=0)] = 1.0
    offset: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parameters < 1:
            raise UsageError(
                f"features: got {self.features}, expected 1 to {MOST_FEATURES} (or none but an intercept)."
            )
        for name, kept in (("centres", 0.0), ("scales", 1.0)):
            given = getattr(self, name) or (kept,) * self.features
            if len(given) != self.features:
                raise UsageError(f"{name}: expected {self.features} finite numbers.")
            object.__setattr__(self, name, given)
        if not self.intercept and (any(self.centres) or self.target_centre):
            raise UsageError("centres: without an intercept nothing can be shifted.")

    @property
    def parameters(self) -> int:
        """Number of parameters, the intercept included."""
        return self.features + int(self.intercept)

    @property
    def columns(self) -> tuple[str, ...]:
        """Roles of the columns that are read."""
        return ("features", "target", "offset") if self.offset else ("features", "target")

    def design(self, batch: Batch, *, linear: bool = False) -> Design:
        """Return the rows of a batch; none if they have another number of features."""
        x = np.asarray(column(batch, "features"), dtype=np.float64)
        y = np.asarray(column(batch, "target"), dtype=np.float64)
        added = np.asarray(column(batch, "offset"), dtype=np.float64) if self.offset else np.zeros(len(y))
        if x.ndim != 2 or x.shape[1] != self.features:
            none = np.zeros(0)
            return Design(x=np.zeros((0, self.parameters)), y=none, offset=none)
        scaled = (x - np.array(self.centres)) / np.array(self.scales)
        if self.intercept:
            scaled = np.concatenate([np.ones((len(y), 1)), scaled], axis=1)
        if linear:
            y, added = (y - added - self.target_centre) / self.target_scale, np.zeros(len(y))
        return Design(x=scaled, y=y, offset=added)

    @property
    def matrix(self) -> Floats:
        """Linear part of the way back: covariances C become matrix·C·matrixᵀ."""
        first = int(self.intercept)
        matrix = np.zeros((self.parameters, self.parameters))
        places = np.arange(self.features)
        matrix[places + first, places + first] = self.target_scale / np.array(self.scales)
        if self.intercept:
            matrix[0, 0] = self.target_scale
            matrix[0, 1:] = -self.target_scale * np.array(self.centres) / np.array(self.scales)
        return matrix

    def back(self, theta: Floats) -> Floats:
        """Return parameters in the units of the data."""
        shift = np.zeros(self.parameters)
        shift[0] = self.target_centre  # zero where there is no intercept
        return np.asarray(self.matrix @ theta + shift)


LARGEST_THETA = 2.0**40


@dataclass(frozen=True, kw_only=True)
class AtTheta(Standard):
    """Question about a regression at public parameters; the fields of `Standard` define how rows are scaled.

    Parameters
    ----------
    model : a loss that every site knows (`regression.losses`).
    theta : the parameters on the common scale, within ±2^40.
    """

    model: str
    theta: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        size, theta = self.loss.parameters(self.parameters), self.theta
        if len(theta) != size:
            raise UsageError(f"theta: got {len(theta)} numbers, expected {size} for the model {self.model}.")
        if not all(abs(number) <= LARGEST_THETA for number in theta):  # NaN fails too
            raise UsageError(f"theta: got numbers beyond ±{LARGEST_THETA:g}, or NaN, expected them within.")

    @classmethod
    def of(cls, standard: Standard, **others: Any) -> Self:
        """Build a question for rows as this standard makes them."""
        return cls(**{field.name: getattr(standard, field.name) for field in fields(Standard)}, **others)

    @property
    def loss(self) -> SmoothLoss:
        """Loss that is summed."""
        return loss_of(self.model)

    def rows_of(self, batch: Batch) -> Design:
        """Return the rows of a batch as the model takes them."""
        return self.design(batch, linear=self.model == SquaredError.name)


# --- means and standard deviations of features and target over all rows -------------------------------------

LARGEST_VALUE = 2.0**64
"""Bound at which features and targets are cut: 1.8e19, above nanoseconds since 1970."""

_FIXED = FixedPoint(limbs=13, point=224)
_ROUNDED = 2.0**-40
_COUNTS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """Moments of all rows.

    `clients` have rows; `constant_targets` of them have only one value of the target. `not_binary` rows have a target
    other than 0 and 1. `cut` clients have numbers beyond ±2^64, which counted as ±2^64. `means` and `deviations` are
    those of the features, deviations with n below the line; a column is constant if its deviation is 0. The target is
    the one that is left after an offset, where `RegressionMoments.less_offset` says so.
    """

    rows: int
    clients: int
    constant_targets: int
    not_binary: int
    cut: int
    means: Floats
    deviations: Floats
    target_mean: float
    target_deviation: float


@dataclass(frozen=True, kw_only=True)
class RegressionMoments(WithoutNoise, Checked, Summary[Moments]):
    """Number of rows, and the sums and sums of squares of each feature and of the target.

    Parameters
    ----------
    features : f, public. Rows with another number of features count for nothing.
    less_offset : True if the offset is taken off the target first, as in linear regression.

    Guarantee: means and deviations are right to about 1e-10 of the deviation, or 1e-16 of the mean if that is more,
    however rows are spread over clients. Squares do not cancel: each client sums differences to a value among its own,
    and computes its sum of squares from them in exact arithmetic; totals and their difference are exact too. Numbers
    are multiples of 2^-224 in thirteen limbs (`FixedPoint`): deviations down to 1e-30 are seen. A column is called
    constant (deviation 0) if it varies by less than 2^-40 of its mean: within that, rounding decides.

    Enforced: values are cut at ±2^64, so that sums of squares over 2^32 rows are at most 2^160.

    Sensitivity: none that is finite in practice; under noise it is not asked for.
    """

    name: ClassVar[str] = "regression-moments"

    features: Features
    less_offset: bool = False

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Columns of features and target, and the offset if it is taken off."""
        return ("features", "target", "offset") if self.less_offset else ("features", "target")

    @property
    def length(self) -> int:
        """Number of entries: five counts, and two numbers for each feature and the target."""
        return _COUNTS + 2 * _FIXED.limbs * (self.features + 1)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Sum in one pass, constant in memory; zeros without rows."""
        running = [_Running() for _ in range(self.features + 1)]
        count = other = 0
        cut, seen = False, _Running()
        for batch in rows.batches():
            values, target = self._values(batch)
            count, other = count + len(target), other + int(((target != 0) & (target != 1)).sum())
            cut = cut or bool((np.abs(values) > LARGEST_VALUE).any())
            values = np.clip(values, -LARGEST_VALUE, LARGEST_VALUE)
            for one, kept in zip(running, values.T, strict=True):
                one.add(kept)
            seen.add(np.clip(target, -LARGEST_VALUE, LARGEST_VALUE))
        counts = [count, count > 0, count > 0 and not seen.varies, other, cut]
        numbers = [one.total for one in running] + [one.squares for one in running]
        return np.concatenate([np.array(counts, dtype=np.int64), _FIXED.write_exactly(numbers)]), memory

    def _values(self, batch: Batch) -> tuple[Floats, Floats]:
        """Return features with the target as the last column, and the target as it is."""
        x = np.asarray(column(batch, "features"), dtype=np.float64)
        y = np.asarray(column(batch, "target"), dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != self.features:
            return np.zeros((0, self.features + 1)), np.zeros(0)
        left = y
        if self.less_offset:
            with np.errstate(over="ignore"):  # what overflows is cut
                left = y - np.asarray(column(batch, "offset"), dtype=np.float64)
        return np.concatenate([x, left[:, None]], axis=1), y

    def read(self, total: Total) -> Moments:
        """Return means and deviations of all rows; 0 without rows."""
        rows, clients, constant, other, cut = (int(count) for count in total[:_COUNTS])
        numbers = _FIXED.read_exactly(total[_COUNTS:])
        means, deviations = _moments(rows, numbers[: self.features + 1], numbers[self.features + 1 :])
        return Moments(
            rows=rows,
            clients=clients,
            constant_targets=constant,
            not_binary=other,
            cut=cut,
            means=means[:-1],
            deviations=deviations[:-1],
            target_mean=float(means[-1]),
            target_deviation=float(deviations[-1]),
        )


@dataclass(kw_only=True)
class _Running:
    """Sums Σx and Σx² of a column: differences to one of its values are summed in floating point, the rest is exact."""

    rows: int = 0
    origin: float = 0.0
    varies: bool = False
    total: Fraction = field(default_factory=Fraction)
    squares: Fraction = field(default_factory=Fraction)

    def add(self, values: Floats) -> None:
        if not len(values):
            return
        if not self.rows:
            # Near the middle, so that little cancels, and a value itself, so that a constant is exactly one.
            self.origin = float(values[np.abs(values - values.mean()).argmin()])
        away = values - self.origin
        self.varies = self.varies or bool(away.any())
        n, origin = len(values), Fraction(self.origin)
        first, second = Fraction(float(away.sum())), Fraction(float(away @ away))
        self.rows += n
        self.total += first + n * origin
        self.squares += second + 2 * origin * first + n * origin**2


def _moments(rows: int, sums: Sequence[Fraction], squares: Sequence[Fraction]) -> tuple[Floats, Floats]:
    n = max(1, rows)
    means = np.array([float(one / n) for one in sums])
    variances = np.array([float(q / n - (s / n) ** 2) for s, q in zip(sums, squares, strict=True)])
    deviations = np.sqrt(np.maximum(variances, 0.0))
    return means, np.where(deviations <= _ROUNDED * np.abs(means), 0.0, deviations)


def standard_from(moments: Moments, *, intercept: bool, linear: bool, offset: bool) -> Standard:
    """Return the common scale that these moments make: standard deviations about means, or about 0 without an
    intercept.

    For linear regression the target is shifted and scaled likewise. Columns that do not vary keep their scale.

    Examples
    --------
    >>> told = Moments(rows=2, clients=1, constant_targets=0, not_binary=2, cut=0, means=np.array([4.0]),
    ...     deviations=np.array([3.0]), target_mean=0.5, target_deviation=0.1)
    >>> standard_from(told, intercept=True, linear=False, offset=False).centres
    (4.0,)
    >>> standard_from(told, intercept=False, linear=False, offset=False).scales
    (5.0,)
    """
    means = np.append(moments.means, moments.target_mean)
    spread = np.append(moments.deviations, moments.target_deviation)
    scales = spread if intercept else np.hypot(means, spread)
    scales = np.where(scales > 0, scales, 1.0)
    centres = means if intercept else np.zeros_like(means)
    if not linear:
        centres[-1], scales[-1] = 0.0, 1.0
    return Standard(
        features=len(moments.means),
        centres=tuple(centres[:-1].tolist()),
        scales=tuple(scales[:-1].tolist()),
        intercept=intercept,
        target_centre=float(centres[-1]),
        target_scale=float(scales[-1]),
        offset=offset,
    )
