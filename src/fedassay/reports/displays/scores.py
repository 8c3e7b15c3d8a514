"""Displays of what scores mean and how they are distributed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import altair as alt

from fedassay.documents import reliability_plots, score_plots
from fedassay.reports.displays.base import Display, numbers
from fedassay.reports.displays.source import Wanted

_ALL = "all"


@dataclass(frozen=True, kw_only=True, repr=False)
class ReliabilityDisplay(Display):
    """The reliability diagram: of a calibration before and after on held-out rows, of an evaluation as it is.

    With several classes it is about the most probable one. Of a study that has both tasks, the calibration is shown.

    Attributes: `curves` (by part: ``before`` and ``after``, or ``all``; each with `mean_score`, `observed`, `lower`,
    `upper` and so on, or with a `reason`), and `expected_calibration_error` by part.
    """

    wanted: ClassVar[Wanted] = Wanted(
        what="reliability diagram", entry="reliability_curve", tasks=("calibrate", "evaluate")
    )

    def _main(self) -> Mapping[str, Any]:
        return {"expected_calibration_error": self.expected_calibration_error}

    @property
    def curves(self) -> Mapping[str, Mapping[str, Any]]:
        """The curves that are there, by part."""
        entry: Mapping[str, Any] = self.results["reliability_curve"]
        if not self._changes:
            return {_ALL: entry}
        return {part: entry[part] for part in reliability_plots.PARTS if entry[part]}

    @property
    def expected_calibration_error(self) -> Mapping[str, float | None]:
        """The calibration error of each part."""
        of_part = {part: self.results[part] if self._changes else self.results for part in self.curves}
        return {part: found["expected_calibration_error"]["value"] for part, found in of_part.items()}

    @property
    def _changes(self) -> bool:
        return set(reliability_plots.PARTS) <= set(self.results["reliability_curve"])

    def draw(self) -> alt.LayerChart:
        """Observed fractions over mean scores, with intervals, and the diagonal."""
        draw = reliability_plots.change if self._changes else reliability_plots.reliability
        return draw(self.results, name=f"Reliability ({self.task})" if self.task else "Reliability")

    @property
    def alternative(self) -> str:
        """The plot in words."""
        if self._changes:
            return reliability_plots.change_alternative(self.results)
        return reliability_plots.reliability_alternative(self.results)


@dataclass(frozen=True, kw_only=True, repr=False)
class ScoreDistributionDisplay(Display):
    """How the scores of positives and of negatives are distributed, in an evaluation.

    Attributes: `edges` of the buckets, rows in them (`positives`, `negatives`), and `density` of each class.
    """

    wanted: ClassVar[Wanted] = Wanted(
        what="score distribution", entry="score_distribution", tasks=("evaluate",)
    )

    def _main(self) -> Mapping[str, Any]:
        return {name: float(sum(self.results["score_distribution"][name])) for name in score_plots.CLASSES}

    @property
    def edges(self) -> tuple[float, ...]:
        """One more than there are buckets."""
        return numbers(self.results["score_distribution"], "edges")

    @property
    def positives(self) -> tuple[float, ...]:
        """Positive rows in each bucket."""
        return numbers(self.results["score_distribution"], "positives")

    @property
    def negatives(self) -> tuple[float, ...]:
        """Negative rows in each bucket."""
        return numbers(self.results["score_distribution"], "negatives")

    @property
    def density(self) -> Mapping[str, tuple[float, ...]]:
        """What is drawn: by class, see `score_plots.densities`."""
        found = self.results["score_distribution"]
        return {
            name: tuple(score_plots.densities(found, name)) if found["edges"] else ()
            for name in score_plots.CLASSES
        }

    def draw(self) -> alt.LayerChart:
        """Both densities."""
        return score_plots.score_distribution(self.results)

    @property
    def alternative(self) -> str:
        """The plot in words."""
        return score_plots.score_distribution_alternative(self.results)
