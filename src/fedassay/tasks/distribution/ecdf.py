"""Task: one release of a whole distribution function, and everything that can be read from it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedassay.errors import ParameterError
from fedassay.estimation.curves import roc_curve
from fedassay.estimation.metric import Undefined
from fedassay.estimation.ranking import roc_auc
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Released, Setting, Step, Sum
from fedassay.summaries.distribution.grid import ValueGrid, power_of_two
from fedassay.summaries.distribution.tree import Distribution, ValueTree
from fedassay.tasks.distribution.curve import (
    Entry,
    ReleasedCurve,
    Shown,
    quantile_entry,
    spread_out,
    undefined_entry,
)
from fedassay.tasks.distribution.mechanisms import check_precision, chosen, name_of
from fedassay.tasks.distribution.parameters import EcdfParameters
from fedassay.tasks.distribution.search import counted, rounded_up
from fedassay.tasks.distribution.stored import Release

# --- from a release to the ``results`` of an ecdf -----------------------------------------------------------

MOST_LISTED = 4096
"""Largest number of points in the lists of a result."""


def _list(values: Floats) -> list[float]:
    return [float(value) for value in values]


# --- a grid whose points are close together where the rows are ----------------------------------------------

FIRST_SHARE = 0.3
"""Part of the budget for the first look; the release itself gets the rest."""

FIRST_POINTS = 1 << 8
"""Number of points of the first look."""

_EVEN = 0.1
"""Part of the points that is spread evenly, so that no stretch of the range is left without points."""


def quantile_points(curve: ReleasedCurve, count: int) -> tuple[float, ...]:
    """Return at most `count` increasing points within the range of a curve, so that few rows lie between two; the last
    is the upper end.

    The curve is made monotone and read as a line between its points; one row in ten is taken to be spread evenly. If
    there are too few rows to say anything, all are.

    Guarantee: between two neighbouring points there is at most a share 1/(0.9·count) of the rows that the first look
    saw, as far as they are spread evenly within its leaves.
    """
    grid = curve.grid
    x = np.concatenate([[grid.lower], grid.thresholds])
    even = (x - grid.lower) / (grid.upper - grid.lower)
    try:
        mixed = (1 - _EVEN) * np.concatenate([[0.0], curve.monotone]) + _EVEN * even
    except Undefined:
        mixed = even
    inner = np.interp(np.arange(1, count) / count, mixed, x)
    return (*np.unique(inner[(inner > grid.lower) & (inner < grid.upper)]).tolist(), grid.upper)


# --- the task -----------------------------------------------------------------------------------------------


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
        """Ask for one distribution, or for a coarse one first; return the ``results`` object of the public contract."""
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
        return {
            **self._described(release),
            "grid": self._described_grid(release, first),
            "notes": self._notes(release, first),
        }

    def _described(self, release: Release) -> dict[str, Any]:
        """Return everything that a release says.

        Lists have one entry per point; those of a curve with too few rows are empty, and there is a `reason`.
        """
        grid = release.summary.grid
        places = spread_out(grid.named, self.smoothed_points)
        listed = places[spread_out(len(places), MOST_LISTED)]
        of_all, entries = self._read(release.everyone, self.quantiles)
        results = {
            "points": _list(grid.thresholds[listed]),
            **of_all,
            "level": self.level,
            "quantiles": entries,
        }
        if release.summary.labelled:
            for name in ("positives", "negatives"):
                results[name], _ = self._read(release.named(name), ())
            # As in an evaluation: ``value > threshold`` predicts positive.
            results["roc_curve"] = roc_curve(release.evidence, level=self.level)
            results["roc_auc"] = roc_auc(release.evidence, level=self.level).to_json()
        return {
            **results,
            "mechanism": name_of(release.summary, release.noise),
            "smoothing": self.smoothing,
            "smoothed_points": self.smoothed_points,
            "noise": release.noise.to_message(),
            "distribution": release.to_json(),
        }

    def _read(self, curve: ReleasedCurve, quantiles: Sequence[float]) -> tuple[dict[str, Any], list[Entry]]:
        """Return the lists of a curve and the entries of quantiles."""
        try:
            shown = Shown.of(curve, smoothing=self.smoothing, smoothed_points=self.smoothed_points)
        except Undefined as reason:
            empty: dict[str, Any] = {name: [] for name in ("values", "lower", "upper")}
            errors: dict[str, list[float]] = {"sampling": [], "privacy": []}
            lists = {**empty, "standard_error": errors, "rows": self._rows(curve), "reason": str(reason)}
            return lists, [undefined_entry(q, reason, level=self.level) for q in quantiles]
        entries = [quantile_entry(curve, shown, q, level=self.level) for q in quantiles]
        return {**self._lists(curve, shown), "rows": self._rows(curve)}, entries

    def _lists(self, curve: ReleasedCurve, shown: Shown) -> dict[str, Any]:
        kept = spread_out(len(shown.places), MOST_LISTED)
        places, values = shown.places[kept], shown.values[kept]
        lower, upper = curve.band(level=self.level)
        return {
            "values": _list(values),
            # A band is about the truth, and made of what was released; smoothing may move a value out of it.
            "lower": _list(np.minimum(lower[places], values)),
            "upper": _list(np.maximum(upper[places], values)),
            "standard_error": {
                "sampling": _list(np.sqrt(values * (1 - values) / curve.rows)),
                "privacy": _list(np.sqrt(curve.share_variances(values, places))),
            },
        }

    def _rows(self, curve: ReleasedCurve) -> dict[str, Any]:
        return counted(curve.rows, 0.0 if curve.exact else curve.law.total, level=self.level)

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
        """Return the grid to ask for, or the range of a grid that is not known yet."""
        if isinstance(self.grid, tuple):
            return ValueGrid.of(self.grid)
        return ValueGrid(
            lower=self.lower,
            upper=self.upper,
            points=power_of_two(self.points),
            spacing="logarithmic" if self.grid == "logarithmic" else "uniform",
        )

    def _leaves(self, grid: ValueGrid) -> ValueTree:
        return ValueTree(**asdict(grid), labelled=self.labelled, public_labels=self.public_labels)

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
        shown = len(spread_out(release.summary.grid.named, self.smoothed_points))
        if shown > MOST_LISTED:
            notes.append(
                f"Of {shown:,} points, {MOST_LISTED:,} are listed, evenly spread; all are in the stored distribution, "
                "from which later quantiles are read."
            )
        return notes
