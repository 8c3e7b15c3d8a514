"""Quantiles by search: single points of a distribution function that is never looked at as a whole.

Servers that keep what clients have sent (see `Points`) evaluate any point later, with the noise that belongs to it. A
quantile among 2^L points takes L of them (Barczewski, Mawass and Ramon, Algorithm 1), and no other is ever opened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from fedassay.errors import ParameterError
from fedassay.estimation.evidence import enough
from fedassay.estimation.intervals import Estimate, unbounded, z_value
from fedassay.estimation.metric import Undefined
from fedassay.protocol.vocabulary import Noise, Points, Released, Setting, Step
from fedassay.summaries.distribution.grid import power_of_two
from fedassay.summaries.distribution.path import ValuePath
from fedassay.tasks.distribution.curve import binomial_margins, entry_at, undefined_entry
from fedassay.tasks.distribution.parameters import SearchQuantilesParameters


def search(
    points: int, targets: Sequence[float]
) -> Generator[tuple[int, ...], Sequence[float], tuple[int, ...]]:
    """Find where a function of the places 0..points-1 first reaches each target, by halving; for all targets at once.

    Yields the places at which it needs the function next, and receives its values there. No place is asked for
    twice. Returns a place p for each target, with f(p-1) below the target and f(p) not, as far as they were looked
    at; the last place is never looked at, and is the answer if all others are too low. For a function that does not
    decrease this is the first place that reaches the target.

    Examples
    --------
    >>> flow = search(8, [2.5, 5.5])  # of a function that is its place
    >>> next(flow), flow.send([3.0]), flow.send([1.0, 5.0])
    ((3,), (1, 5), (2, 6))
    >>> flow.send([2.0, 6.0])
    Traceback (most recent call last):
    StopIteration: (3, 6)
    """
    known: dict[int, float] = {}
    low, high = [-1] * len(targets), [points - 1] * len(targets)
    while True:
        middle = [(a + b) // 2 for a, b in zip(low, high, strict=True)]
        going = [k for k in range(len(targets)) if high[k] - low[k] > 1]
        if not going:
            return tuple(high)
        wanted = tuple(sorted({middle[k] for k in going} - known.keys()))
        if wanted:
            values = yield wanted
            known.update(zip(wanted, values, strict=True))
        for k in going:
            if known[middle[k]] < targets[k]:
                low[k] = middle[k]
            else:
                high[k] = middle[k]


def inverse_by_search(at: Callable[[int], float], points: int, target: float) -> int:
    """Return the place where a function first reaches a target: `search` for one target and a function at hand.

    Examples
    --------
    >>> inverse_by_search(lambda place: place / 1024, 1 << 32, 1000.0)
    1024000
    """
    flow = search(points, [target])
    try:
        wanted = next(flow)
        while True:
            wanted = flow.send([at(place) for place in wanted])
    except StopIteration as found:
        return int(found.value[0])


@dataclass(frozen=True, kw_only=True)
class SearchQuantiles(SearchQuantilesParameters):
    """Quantiles of a scalar among up to 2^20 points, from single evaluations on the same stored noise.

    Servers check every row at every point: many points are for few rows.

    Guarantee: clients are asked once, and the whole costs what one release of all points would cost.

    Intervals: q ± m, mapped back by two more searches, with m for sampling and noise as in `quantile_entry`. Two points
    share at least the root's draw, which is all that is assumed here. Rows are assumed independent.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.quantiles:
            raise ParameterError("quantiles", "got none, expected at least one number between 0 and 1.")
        _ = self.summary  # refuses bad ranges before any row is read

    @property
    def summary(self) -> ValuePath:
        """Summary that is evaluated."""
        return ValuePath(
            lower=self.lower, upper=self.upper, points=power_of_two(self.points), spacing=self.grid
        )

    def steps(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
        """Ask for the last point, then for those that the searches need."""
        path = self.summary
        last: Released[Any] = yield Points(of=path, at=(path.points - 1,))
        rows, noise, evaluations = float(last.value[0]), last.noise, 1
        total_variance = noise.variance * path.overlap
        results: dict[str, Any] = {
            "rows": counted(rows, total_variance, level=self.level),
            "mechanism": "path" if noise.variance else "none",
            "grid": {"spacing": self.grid, "lower": self.lower, "upper": self.upper, "points": path.points},
            "noise": noise.to_message(),
            "level": self.level,
            "notes": rounded_up(self.points, path.points),
        }
        try:
            enough("rows", rows, total_variance)
        except Undefined as reason:
            entries = [undefined_entry(q, reason, level=self.level) for q in self.quantiles]
            return {**results, "quantiles": entries, "evaluations": evaluations}
        margins = [self._margins(q, rows, noise) for q in self.quantiles]
        shares = [
            share
            for q, (below, above) in zip(self.quantiles, margins, strict=True)
            for share in (q, q - below, q + above)
        ]
        flow = search(path.points, [share * rows * (1 - 1e-12) for share in shares])
        try:
            wanted = next(flow)
            while True:
                evaluations += len(wanted)
                released: Released[Any] = yield Points(of=path, at=wanted)
                wanted = flow.send([float(value) for value in released.value])
        except StopIteration as finished:
            found: tuple[int, ...] = finished.value
        entries = [
            entry_at(path.grid, q, found[3 * k], ends=(found[3 * k + 1], found[3 * k + 2]), level=self.level)
            for k, q in enumerate(self.quantiles)
        ]
        return {**results, "quantiles": entries, "evaluations": evaluations}

    def _margins(self, q: float, rows: float, noise: Noise) -> tuple[float, float]:
        """Return how far F̂ may be below and above q: rows, and the noise of F̂ - q·F̂_N, in quadrature."""
        below, above = binomial_margins(q, rows, level=self.level)
        nodes = self.summary.overlap
        variance = noise.variance * (nodes * (1 + q * q) - 2 * q)
        reach = z_value(self.level) * math.sqrt(variance) / rows
        return math.hypot(below, reach), math.hypot(above, reach)


def counted(rows: float, variance: float, *, level: float) -> dict[str, Any]:
    """Return the number of rows: a count of these rows, so that only noise makes it uncertain."""
    estimate = Estimate(value=rows, sampling_variance=0.0, privacy_variance=variance)
    return unbounded(estimate, level=level, lowest=0.0).to_json()


def rounded_up(asked: int, used: int) -> list[str]:
    """Return a note if the number of points is not the requested number."""
    if asked == used:
        return []
    return [f"The number of points must be a power of two: {asked:,} was rounded up to {used:,}."]
