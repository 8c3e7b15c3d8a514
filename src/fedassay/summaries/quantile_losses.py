"""A private local quantile: for each candidate, how far it is from the quantile of the client's scores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import DataError, UsageError
from fedassay.protocol import (
    LARGEST_ROWS_PER_CLIENT,
    UNBOUNDED,
    Memory,
    Protection,
    Rows,
    Sensitivity,
    Total,
    Vector,
)
from fedassay.summaries.quantities import scores_of
from fedassay.summaries.scored import OfQuantity, whole

Floats = NDArray[np.float64]

MOST_CANDIDATES = 1 << 16
LARGEST_SLOPE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class QuantileLosses(OfQuantity[float]):
    """The losses of B candidates e_1 < .. < e_B = +∞ for the t-th smallest of exactly n scores, in whole numbers.

    With c_b = #{scores <= e_b} and c_0 = 0, the loss of candidate b is

        below·(t - c_b)          if c_b < t: it misses that many scores
        above·(c_{b-1} - t + 1)  if c_{b-1} >= t: the candidate before has that many more than it needs
        0                        otherwise: e_b is the t-th smallest score, rounded up

    A client with fewer than n rows pads with +∞, so that it has n scores always: how many rows it has stays its secret,
    and adding, removing and replacing a row all replace one score of n by another. More than n rows are a `DataError`;
    `client.py` leaves out the excess at random before.

    Guarantee (`loss_range`): if one score is replaced, the losses all move by amounts within an interval of length
    below + above. For a score that falls, say, c_b grows by one for some b and stays for the others; the first kind of
    loss does not grow and falls by at most `below`, the second does not fall and grows by at most `above`. Choosing b
    with probability proportional to exp(-ε·loss_b/(below + above)) is therefore ε-differentially private: a part of
    the change that all losses share cancels. For any two sets of n scores the length is at most
    below·t + above·(n - t + 1): between two candidates a < b, the loss of a can be larger by at most below·t and
    smaller by at most above·(n - t + 1), for either set of scores.

    The published weights (Humbert et al. 2023, Algorithm 2), max(#{S < e_b}/q, #{S > e_b}/(1-q)), are of the same kind:
    for q = below/(below + above), t = qn and scores rounded up to candidates they are n plus
    (below + above)/(below·above) times max(below·(t - c_b), above·(c_{b-1} - t)), that is, these losses but for one
    step above the quantile and the cut at zero. Their range is the same, and for q >= 1/2 the published mechanism,
    which spends ε by sensitivity, is ε/(2q)-differentially private: there is no reason to have it too.

    Parameters
    ----------
    rows : n.
    lower, upper, points : the candidates, B = points from 2 to 2^16: B-1 equally spaced ones from the lower to the
        upper end (the upper end alone if there is one), and +∞.
    target : t, from 1 to n.
    below, above : the slopes.

    Examples
    --------
    >>> class FourRows:
    ...     def batches(self):
    ...         yield {"value": np.array([0.1, 0.6, 0.3, 0.3])}
    >>> summary = QuantileLosses(
    ...     quantity="value", rows=5, lower=0.0, upper=1.0, points=6, target=3, below=1, above=2
    ... )
    >>> summary.candidates, summary.measure(FourRows(), {})[0]
    (array([0.  , 0.25, 0.5 , 0.75, 1.  ,  inf]), array([3, 2, 0, 2, 4, 4]))
    """

    name: ClassVar[str] = "quantile-losses"
    additive: ClassVar[bool] = False

    rows: int
    lower: float
    upper: float
    points: int
    target: int
    below: int = 1
    above: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lower", "upper"):
            object.__setattr__(self, name, float(getattr(self, name)))
        whole(self.points, what="points", least=2, most=MOST_CANDIDATES)
        whole(self.rows, what="rows", least=1, most=LARGEST_ROWS_PER_CLIENT)
        whole(self.target, what="target", least=1, most=self.rows)
        for name in ("below", "above"):
            whole(getattr(self, name), what=name, least=1, most=LARGEST_SLOPE)
        width = self.upper - self.lower
        if not (width > 0 and math.isfinite(width)):
            raise UsageError(
                f"range: got {self.lower:g} to {self.upper:g}, expected a lower end below the upper end."
            )
        if not width / self.points > 8 * math.ulp(max(abs(self.lower), abs(self.upper))):
            raise UsageError(
                f"points: {self.points:,} between {self.lower:g} and {self.upper:g} are closer together than "
                "numbers can be; expected fewer."
            )

    @property
    def candidates(self) -> Floats:
        """e_1 .. e_B, the last one +∞."""
        with np.errstate(over="ignore"):  # before the last point is set to the upper end itself
            finite = np.linspace(self.lower, self.upper, self.points - 1) if self.points > 2 else [self.upper]
        return np.append(finite, np.inf)

    @property
    def length(self) -> int:
        """One loss per candidate."""
        return self.points

    @property
    def _ends(self) -> tuple[int, int]:
        """The largest loss below the quantile, and above it."""
        return self.below * self.target, self.above * (self.rows - self.target + 1)

    @property
    def largest(self) -> int:
        """The larger of them, below 2^53."""
        return max(self._ends)

    def measure(self, rows: Rows, memory: Memory) -> tuple[Vector, Memory]:
        """Count, pad, weigh."""
        counts = np.zeros(self.points, dtype=np.int64)
        candidates = self.candidates
        for batch in rows.batches():
            scores = scores_of(batch, self.quantity, self.parameters)
            counts += np.bincount(np.searchsorted(candidates, scores), minlength=self.points)
        missing = self.rows - int(counts.sum())
        if missing < 0:
            raise DataError(
                f"rows: got {self.rows - missing:,}, expected at most {self.rows:,}; the question has to say so too "
                "(rows per client), and the excess is then left out at random."
            )
        up_to = np.cumsum(counts)
        before = up_to - counts
        up_to[-1] = self.rows  # the padding is +∞
        return (
            self.below * np.maximum(0, self.target - up_to)
            + self.above * np.maximum(0, before - self.target + 1)
        ), memory

    def loss_range(self, protection: Protection) -> float:
        """The length of an interval in which all losses move if one protected unit changes."""
        if protection.rows_per_client != self.rows:
            raise UsageError(
                f"rows per client: got {protection.rows_per_client}, expected {self.rows}, the number of scores that "
                "every client is to have; give `rows_per_client`."
            )
        return float(min((self.below + self.above) * protection.rows_per_unit, sum(self._ends)))

    def sensitivity(self, protection: Protection) -> Sensitivity:
        """None that is finite: losses are for choosing (`loss_range`), and nobody adds them up."""
        return UNBOUNDED

    def read(self, total: Total) -> float:
        """The candidate that was chosen."""
        return float(self.candidates[int(np.argmax(total))])
