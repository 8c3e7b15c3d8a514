"""Features on a common scale, and the way back: fits are stable and steps need no tuning, results are as asked for.

Each client shifts and scales its rows by public numbers (the means and scales of all rows, from one sum, or none at
all); the server translates estimates and covariances back. With f features, an intercept and u = x·theta,

    u = s·(Σ_j b_j (x_j - m_j)/d_j + b_0) + c   =>   theta_j = s b_j/d_j,   theta_0 = s(b_0 - Σ_j b_j m_j/d_j) + c,

a linear map of b, so that standard errors translate exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError
from fedassay.protocol import Batch
from fedassay.summaries.columns import column
from fedassay.summaries.regression.losses import Design

Floats = NDArray[np.float64]

INTERCEPT = "intercept"
MOST_FEATURES = 256


@dataclass(frozen=True, kw_only=True)
class Standard:
    """How rows of `features` numbers become rows of a design: shifted, scaled, with a 1 in front for the intercept.

    Parameters
    ----------
    features : f, public. Rows with another number count for nothing.
    centres, scales : m and d, one for each feature; empty for 0 and 1.
    intercept : whether the first parameter is one. Without it nothing is shifted.
    target_centre, target_scale : c and s; other than 0 and 1 only for linear regression.
    offset : whether rows have an offset. In linear regression it is taken off the target.

    Examples
    --------
    >>> standard = Standard(features=1, centres=(3.0,), scales=(2.0,))
    >>> standard.design({"features": np.array([[5.0]]), "target": np.array([1.0])}).x
    array([[1., 1.]])
    >>> standard.back(np.array([1.0, 4.0]))
    array([-5.,  2.])
    """

    features: int
    centres: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    intercept: bool = True
    target_centre: float = 0.0
    target_scale: float = 1.0
    offset: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.features <= MOST_FEATURES or self.parameters < 1:
            raise UsageError(
                f"features: got {self.features}, expected 1 to {MOST_FEATURES} (or none but an intercept)."
            )
        for name, kept in (("centres", 0.0), ("scales", 1.0)):
            given = tuple(float(number) for number in getattr(self, name)) or (kept,) * self.features
            if len(given) != self.features or not np.isfinite(given).all():
                raise UsageError(f"{name}: expected {self.features} finite numbers.")
            object.__setattr__(self, name, given)
        if not all(scale > 0 for scale in (*self.scales, self.target_scale)):
            raise UsageError("scales: expected numbers above 0.")
        if not self.intercept and (any(self.centres) or self.target_centre):
            raise UsageError("centres: without an intercept nothing can be shifted.")

    @property
    def parameters(self) -> int:
        """How many parameters there are, the intercept included."""
        return self.features + int(self.intercept)

    @property
    def roles(self) -> tuple[str, ...]:
        """The columns that are read."""
        return ("features", "target", "offset") if self.offset else ("features", "target")

    def design(self, batch: Batch, *, linear: bool = False) -> Design:
        """The rows of a batch; none if they have another number of features."""
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
        """The linear part of the way back: covariances C become matrix·C·matrixᵀ."""
        first = int(self.intercept)
        matrix = np.zeros((self.parameters, self.parameters))
        places = np.arange(self.features)
        matrix[places + first, places + first] = self.target_scale / np.array(self.scales)
        if self.intercept:
            matrix[0, 0] = self.target_scale
            matrix[0, 1:] = -self.target_scale * np.array(self.centres) / np.array(self.scales)
        return matrix

    def back(self, theta: Floats) -> Floats:
        """Parameters in the units of the data."""
        shift = np.zeros(self.parameters)
        shift[0] = self.target_centre  # zero where there is no intercept
        return np.asarray(self.matrix @ theta + shift)

    def forth(self, theta: Floats) -> Floats:
        """The other way: parameters of the design, from those in the units of the data."""
        shift = np.zeros(self.parameters)
        shift[0] = self.target_centre
        return np.asarray(np.linalg.solve(self.matrix, theta - shift))
