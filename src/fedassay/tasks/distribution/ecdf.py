"""The task: one release of a whole distribution function, and everything that can be read from it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from fedassay.errors import UsageError
from fedassay.protocol import Released, Setting, Step, Sum
from fedassay.summaries.value_grid import MOST_POINTS, ValueGrid, power_of_two
from fedassay.summaries.value_tree import ValueTree
from fedassay.summaries.values import Distribution
from fedassay.tasks.distribution.described import Description
from fedassay.tasks.distribution.mechanisms import MECHANISMS, chosen, name_of
from fedassay.tasks.distribution.precision import check_precision
from fedassay.tasks.distribution.quantile_grid import FIRST_POINTS, FIRST_SHARE, quantile_points
from fedassay.tasks.distribution.quantiles import checked_quantile
from fedassay.tasks.distribution.search import rounded_up
from fedassay.tasks.distribution.shown import SMOOTHINGS
from fedassay.tasks.distribution.stored import Release
from fedassay.tasks.evaluation.intervals import z_value
from fedassay.tasks.evaluation.metric import LEVEL

GRIDS = ("uniform", "logarithmic", "quantile")


@dataclass(frozen=True, kw_only=True)
class Ecdf:
    """The distribution function of a scalar, with a simultaneous band, any quantile, and the ROC curve of two classes.

    Parameters
    ----------
    lower, upper : the range. Values outside count as its ends.
    points : how many points, rounded up to a power of two, at most 2^20.
    grid : ``uniform``, ``logarithmic`` (lower above 0), or ``quantile``: points at about equal shares of the rows, from
        a first look for a part of the budget.
    given : the points themselves, increasing; range, number and grid are then not used.
    mechanism : ``tree``, ``path``, ``factorised``, or ``auto`` for the one with the least variance.
    smoothing : ``none``, ``isotonic``, ``l1`` or ``l2``; see docs/explanation/smoothing.md.
    smoothed_points : smooth and show only so many of the points, evenly spread.
    quantiles : which ones to list. Others can be asked later, from the result alone (`quantile_at`).
    level : the confidence level of bands and intervals.
    labelled : whether rows have a binary label: positives and negatives are then released together, for one budget.
    public_labels : whether labels are public, so that a replaced row keeps its label.
    precision : the largest half-width of the band that noise may cause; a budget that is too small for it is refused
        before anything is spent.
    expected_rows : about how many rows there will be, for `precision`.

    Guarantee: everything returned is computed from one `Sum` (two for the grid ``quantile``), for the one budget. Rows
    are assumed independent, for bands and intervals.

    Reference: Barczewski, Mawass and Ramon; docs/explanation/distributions.md has the formulas.
    """

    lower: float = 0.0
    upper: float = 1.0
    points: int = 1024
    grid: str = "uniform"
    given: tuple[float, ...] = ()
    mechanism: str = "auto"
    smoothing: str = "isotonic"
    smoothed_points: int | None = None
    quantiles: tuple[float, ...] = ()
    level: float = LEVEL
    labelled: bool = False
    public_labels: bool = False
    precision: float | None = None
    expected_rows: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", float(self.lower))
        object.__setattr__(self, "upper", float(self.upper))
        object.__setattr__(self, "given", tuple(float(point) for point in self.given))
        object.__setattr__(self, "quantiles", tuple(checked_quantile(q) for q in self.quantiles))
        for name, value, known in (
            ("grid", self.grid, GRIDS),
            ("mechanism", self.mechanism, ("auto", *MECHANISMS)),
            ("smoothing", self.smoothing, SMOOTHINGS),
        ):
            if value not in known:
                raise UsageError(f"{name}: got {value!r}, expected one of {', '.join(known)}.")
        z_value(self.level)
        self._check_numbers()
        if self.public_labels and not self.labelled:
            raise UsageError("public labels: rows have no labels; expected them to be labelled.")
        if self.given and self.grid == "quantile":
            raise UsageError("grid: got points and the grid quantile, expected one of them.")
        self._leaves(self._grid())  # refuses bad ranges and points before any row is read

    def _check_numbers(self) -> None:
        if type(self.points) is not int or not 2 <= self.points <= MOST_POINTS:
            raise UsageError(f"points: got {self.points}, expected a whole number from 2 to 2^20.")
        if self.smoothed_points is not None and (
            type(self.smoothed_points) is not int or self.smoothed_points < 1
        ):
            raise UsageError(f"smoothed points: got {self.smoothed_points}, expected a whole number from 1.")
        if self.precision is not None and not 0 < self.precision < 1:
            raise UsageError(f"precision: got {self.precision}, expected a number between 0 and 1.")
        if self.expected_rows is not None and not 1 <= self.expected_rows < float("inf"):
            raise UsageError(f"expected rows: got {self.expected_rows}, expected a number of at least 1.")

    def steps(self, setting: Setting) -> Generator[Step, Any, dict[str, Any]]:
        """Ask for one distribution, or for a coarse one first; the ``results`` object of the public contract."""
        grid, share, first = self._grid(), 1.0, None
        if self.grid == "quantile":
            share = 1 - FIRST_SHARE
        self._check(grid, setting, share=share)
        if self.grid == "quantile":
            coarse = replace(grid, points=min(FIRST_POINTS, grid.points))
            first = yield from self._release(coarse, setting, share=FIRST_SHARE)
            # One fewer than leaves: what lies above the last point has a leaf too.
            grid = ValueGrid.of(quantile_points(first.everyone, grid.points - 1))
        release = yield from self._release(grid, setting, share=share)
        description = Description(
            level=self.level, smoothing=self.smoothing, smoothed_points=self.smoothed_points
        )
        return {
            **description.results(release, quantiles=self.quantiles),
            "grid": self._described_grid(release, first),
            "notes": self._notes(release, first) + description.notes(release.summary.grid),
        }

    def _release(self, grid: ValueGrid, setting: Setting, *, share: float) -> Generator[Step, Any, Release]:
        summary = chosen(self._leaves(grid), setting, mechanism=self.mechanism, share=share)
        released: Released[Distribution] = yield Sum(of=summary, share=share)
        return Release.of(released.value, released.noise)

    def _check(self, grid: ValueGrid, setting: Setting, *, share: float) -> None:
        """Refuse a budget that is too small. A grid at quantiles has as many leaves as the one that stands for it."""
        check_precision(
            chosen(self._leaves(grid), setting, mechanism=self.mechanism, share=share),
            setting,
            precision=self.precision,
            expected_rows=self.expected_rows,
            level=self.level,
            share=share,
        )

    def _grid(self) -> ValueGrid:
        """The grid to ask for, or the range of one that is not known yet."""
        if self.given:
            return ValueGrid.of(self.given)
        return ValueGrid(
            lower=self.lower,
            upper=self.upper,
            points=power_of_two(self.points),
            spacing="logarithmic" if self.grid == "logarithmic" else "uniform",
        )

    def _leaves(self, grid: ValueGrid) -> ValueTree:
        return ValueTree(
            lower=grid.lower,
            upper=grid.upper,
            points=grid.points,
            spacing=grid.spacing,
            given=grid.given,
            labelled=self.labelled,
            public_labels=self.public_labels,
        )

    def _described_grid(self, release: Release, first: Release | None) -> dict[str, Any]:
        grid = release.summary.grid
        return {
            "spacing": grid.spacing if first is None else "quantile",
            "lower": grid.lower if first is None else self.lower,
            "upper": grid.upper if first is None else self.upper,
            "points": grid.named,
            "leaves": grid.points,
            "first_look": None
            if first is None
            else {
                "points": first.summary.points,
                "share": FIRST_SHARE,
                "mechanism": name_of(first.summary, first.noise),
                "noise": first.noise.to_message(),
            },
        }

    def _notes(self, release: Release, first: Release | None) -> list[str]:
        notes = [] if self.given else rounded_up(self.points, power_of_two(self.points))
        if first is not None:
            notes.append(
                f"The {release.summary.grid.named:,} points are about at quantiles: a first look at "
                f"{first.summary.points} points used {FIRST_SHARE:.0%} of the budget, the release itself the rest."
            )
        if self.mechanism != "auto" and release.noise.variance == 0:
            notes.append(
                "There is no noise, so that all mechanisms are the same: counts per leaf were summed."
            )
        return notes
