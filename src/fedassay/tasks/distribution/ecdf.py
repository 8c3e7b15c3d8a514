"""The task: one release of a whole distribution function, and everything that can be read from it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from fedassay.errors import ParameterError
from fedassay.protocol import Released, Setting, Step, Sum
from fedassay.summaries.value_grid import ValueGrid, power_of_two
from fedassay.summaries.value_tree import ValueTree
from fedassay.summaries.values import Distribution
from fedassay.tasks.distribution.described import Description
from fedassay.tasks.distribution.mechanisms import chosen, name_of
from fedassay.tasks.distribution.parameters import EcdfParameters
from fedassay.tasks.distribution.precision import check_precision
from fedassay.tasks.distribution.quantile_grid import FIRST_POINTS, FIRST_SHARE, quantile_points
from fedassay.tasks.distribution.search import rounded_up
from fedassay.tasks.distribution.stored import Release


@dataclass(frozen=True, kw_only=True)
class Ecdf(EcdfParameters):
    """The distribution function of a scalar, with a simultaneous band, any quantile, and the ROC curve of two classes.

    Points of the grid ``quantile`` are at about equal shares of the rows, from a first look for a part of the budget.
    Where `grid` lists the points themselves, increasing, range and number are not used. Quantiles that are not listed
    can be asked later, from the result alone (`quantile_at`). Positives and negatives are released together, for one
    budget.

    Guarantee: everything returned is computed from one `Sum` (two for the grid ``quantile``), for the one budget. Rows
    are assumed independent, for bands and intervals.

    Reference: Barczewski, Mawass and Ramon; docs/explanation/distributions.md has the formulas, and
    docs/explanation/smoothing.md those of smoothing.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.public_labels and not self.labelled:
            raise ParameterError("public_labels", "rows have no labels; expected them to be labelled.")
        self._leaves(self._grid())  # refuses bad ranges and points before any row is read

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
        if isinstance(self.grid, tuple):
            return ValueGrid.of(self.grid)
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
        notes = [] if isinstance(self.grid, tuple) else rounded_up(self.points, power_of_two(self.points))
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
