"""From a release to the ``results`` of an ecdf, as plain JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedassay.estimation.intervals import Estimate, unbounded
from fedassay.estimation.metric import Undefined
from fedassay.summaries.value_grid import ValueGrid
from fedassay.tasks.distribution.curve import Curve, Floats
from fedassay.tasks.distribution.mechanisms import name_of
from fedassay.tasks.distribution.quantiles import Entry, quantile_entry, undefined_entry
from fedassay.tasks.distribution.roc import ranking_results
from fedassay.tasks.distribution.shown import Shown, shown_places, spread_out
from fedassay.tasks.distribution.stored import Release

MOST_LISTED = 4096
"""Lists of a result have at most so many points."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """How results are shown: the level of bands and intervals, and the smoothing (see `Ecdf`)."""

    level: float
    smoothing: str
    smoothed_points: int | None

    def results(self, release: Release, *, quantiles: Sequence[float]) -> dict[str, Any]:
        """Everything that a release says.

        Lists have one entry per point; those of a curve with too few rows are empty, and there is a `reason`.
        """
        grid = release.summary.grid
        places = shown_places(grid, self.smoothed_points)
        listed = places[spread_out(len(places), MOST_LISTED)]
        of_all, entries = self._read(release.everyone, quantiles)
        results = {
            "points": _list(grid.thresholds[listed]),
            **of_all,
            "level": self.level,
            "quantiles": entries,
        }
        if release.summary.labelled:
            for name in ("positives", "negatives"):
                results[name], _ = self._read(release.named(name), ())
            results |= ranking_results(release.evidence, level=self.level)
        return {
            **results,
            "mechanism": name_of(release.summary, release.noise),
            "smoothing": self.smoothing,
            "smoothed_points": self.smoothed_points,
            "noise": release.noise.to_message(),
            "distribution": release.to_json(),
        }

    def notes(self, grid: ValueGrid) -> list[str]:
        """What a reader should know about the lists."""
        shown = len(shown_places(grid, self.smoothed_points))
        if shown <= MOST_LISTED:
            return []
        return [
            f"Of {shown:,} points, {MOST_LISTED:,} are listed, evenly spread; all are in the stored distribution, from "
            "which later quantiles are read."
        ]

    def _read(self, curve: Curve, quantiles: Sequence[float]) -> tuple[dict[str, Any], list[Entry]]:
        """The lists of a curve and the entries of quantiles."""
        try:
            shown = Shown.of(curve, smoothing=self.smoothing, smoothed_points=self.smoothed_points)
        except Undefined as reason:
            empty: dict[str, Any] = {name: [] for name in ("values", "lower", "upper")}
            errors: dict[str, list[float]] = {"sampling": [], "privacy": []}
            lists = {**empty, "standard_error": errors, "rows": self._rows(curve), "reason": str(reason)}
            return lists, [undefined_entry(q, reason, level=self.level) for q in quantiles]
        entries = [quantile_entry(curve, shown, q, level=self.level) for q in quantiles]
        return {**self._lists(curve, shown), "rows": self._rows(curve)}, entries

    def _lists(self, curve: Curve, shown: Shown) -> dict[str, Any]:
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

    def _rows(self, curve: Curve) -> dict[str, Any]:
        """How many rows there are: a count of these rows, so that only noise makes it uncertain."""
        variance = 0.0 if curve.exact else curve.law.total
        estimate = Estimate(value=curve.rows, sampling_variance=0.0, privacy_variance=variance)
        return unbounded(estimate, level=self.level, lowest=0.0).to_json()


def _list(values: Floats) -> list[float]:
    return [float(value) for value in values]
