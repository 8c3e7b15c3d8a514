"""The task: one release of a score histogram, and everything that can be said from it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from fedassay.errors import UsageError
from fedassay.protocol import Released, Setting, Sum
from fedassay.summaries.locate import TRANSFORMS
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram
from fedassay.summaries.tree import best_widths
from fedassay.tasks.evaluation import curves
from fedassay.tasks.evaluation.buckets import Buckets, equi_depth_edges
from fedassay.tasks.evaluation.calibration_error import (
    expected_calibration_error,
    expected_calibration_error_uniform,
    hosmer_lemeshow,
)
from fedassay.tasks.evaluation.evidence import Evidence
from fedassay.tasks.evaluation.metric import LEVEL, Metric
from fedassay.tasks.evaluation.ranking import average_precision, roc_auc
from fedassay.tasks.evaluation.ratios import brier_score, log_loss, observed_expected_ratio, prevalence
from fedassay.tasks.evaluation.recalibration import calibration_intercept, calibration_slope
from fedassay.tasks.evaluation.stored import histogram_to_json, threshold_entry

EXACT_HEIGHT = 15
"""Without noise: 32,768 bins, of which 16,384 uniform and 16,384 logit-spaced if mixed."""

NOISY_HEIGHT = 10
"""Under noise: more bins add noise to every sum over them, and 1,024 keep the binning error below the sampling
error up to about 10^5 rows."""


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Every standard metric of a binary classifier, with intervals, from one release.

    Parameters
    ----------
    thresholds : become edges of the grid, so that metrics at them are exact. Others can be asked later, from the
        result alone (`metrics_at`).
    height : 2^height bins. By default 15 without noise and 10 under noise.
    buckets : of the calibration error, the reliability curve and the equi-depth histogram.
    transform : the spacing of the bins. ``auto`` is ``mixed``, the common refinement of a uniform and a logit grid:
        its binning bound is never above that of either, so looking at the data to choose could not do better
        and would cost budget.
    level : the confidence level of all intervals.

    Guarantee: everything returned is computed from the one released histogram; the privacy cost is that of one
    `Sum`. Rows are assumed independent, for intervals.

    Reference: Cormode and Markov (2023); docs/explanation/evaluation.md has the formulas.
    """

    thresholds: tuple[float, ...] = (0.5,)
    height: int | None = None
    buckets: int = 10
    transform: str = "auto"
    level: float = LEVEL

    def __post_init__(self) -> None:
        object.__setattr__(self, "thresholds", tuple(float(threshold) for threshold in self.thresholds))
        if not self.thresholds:
            raise UsageError("thresholds: got none, expected at least one number in [0, 1], such as 0.5.")
        if self.transform not in ("auto", *TRANSFORMS):
            expected = ", ".join(("auto", *TRANSFORMS))
            raise UsageError(f"transform: got {self.transform!r}, expected one of {expected}.")
        if not 0 < self.level < 1:
            raise UsageError(f"level: got {self.level}, expected a number between 0 and 1, such as 0.95.")
        if not 1 <= self.buckets <= 200:
            raise UsageError(f"buckets: got {self.buckets}, expected a whole number from 1 to 200.")
        for height in (EXACT_HEIGHT, NOISY_HEIGHT):
            self._histogram(self.height or height, (1,))  # refuses bad thresholds and heights before any row is read

    def steps(self, setting: Setting) -> Generator[Sum[LabelledHistogram], Released[LabelledHistogram], dict[str, Any]]:
        """Ask for one histogram, return the ``results`` object of the public contract."""
        released = yield Sum(of=self.histogram(setting))
        return self.results(released)

    def histogram(self, setting: Setting) -> ScoreHistogram:
        """The histogram to ask for, chosen from public settings only: how much noise it would get."""
        exact = self._histogram(self.height or EXACT_HEIGHT, (1,))
        if setting.noise(Sum(of=exact)).variance == 0:
            return exact
        height = self.height or NOISY_HEIGHT

        def noise_variance_for(levels: int) -> float:
            widths = tuple(1 << level for level in range(levels))
            return setting.noise(Sum(of=self._histogram(height, widths))).variance

        return self._histogram(height, best_widths(1 << height, noise_variance_for))

    def _histogram(self, height: int, widths: tuple[int, ...]) -> ScoreHistogram:
        # The boundaries of uniform buckets are edges too, so that the uniform calibration error has exact buckets.
        edges = (*self.thresholds, *(j / self.buckets for j in range(1, self.buckets)))
        transform = "mixed" if self.transform == "auto" else self.transform
        return ScoreHistogram(transform=transform, height=height, thresholds=edges, widths=widths)

    def results(self, released: Released[LabelledHistogram]) -> dict[str, Any]:
        """All metrics and curves of a release, as plain JSON."""
        evidence = Evidence.of(released.value, released.noise)
        entries = [threshold_entry(evidence, threshold, level=self.level) for threshold in self.thresholds]
        first = {name: metric for name, metric in entries[0].items() if name not in ("threshold", "applied")}
        equi_depth = Buckets(evidence=evidence, edges=tuple(equi_depth_edges(evidence, self.buckets)))
        return {
            **{name: metric.to_json() for name, metric in self._metrics(evidence).items()},
            **first,
            "thresholds": entries,
            "roc_curve": curves.roc_curve(evidence, level=self.level),
            "precision_recall_curve": curves.precision_recall_curve(evidence, level=self.level),
            "reliability_curve": curves.reliability_curve(equi_depth, level=self.level),
            "net_benefit_curve": curves.net_benefit_curve(evidence, level=self.level),
            "buckets": equi_depth.to_json(),
            "histogram": {"rows": evidence.rows, **histogram_to_json(released.value, released.noise)},
        }

    def _metrics(self, evidence: Evidence) -> dict[str, Metric]:
        level, buckets = self.level, self.buckets
        return {
            "roc_auc": roc_auc(evidence, level=level),
            "average_precision": average_precision(evidence, level=level),
            "prevalence": prevalence(evidence, level=level),
            "brier_score": brier_score(evidence, level=level),
            "log_loss": log_loss(evidence, level=level),
            "expected_calibration_error": expected_calibration_error(evidence, buckets=buckets, level=level),
            "expected_calibration_error_uniform": expected_calibration_error_uniform(
                evidence, buckets=buckets, level=level
            ),
            "calibration_intercept": calibration_intercept(evidence, level=level),
            "calibration_slope": calibration_slope(evidence, level=level),
            "observed_expected_ratio": observed_expected_ratio(evidence, level=level),
            "hosmer_lemeshow": hosmer_lemeshow(evidence, level=level),
        }
