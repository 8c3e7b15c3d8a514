"""The task: one release of a score histogram, and everything that can be said from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedassay.errors import UsageError
from fedassay.protocol import Released, Setting, Sum
from fedassay.summaries.grid import LARGEST_REACH
from fedassay.summaries.group_names import checked_groups
from fedassay.summaries.locate import TRANSFORMS
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram
from fedassay.tasks.evaluation import curves
from fedassay.tasks.evaluation.buckets import Buckets, equi_depth_edges
from fedassay.tasks.evaluation.calibration_error import (
    expected_calibration_error,
    expected_calibration_error_uniform,
    hosmer_lemeshow,
)
from fedassay.tasks.evaluation.evidence import Evidence
from fedassay.tasks.evaluation.groups import by_group
from fedassay.tasks.evaluation.lockstep import Flow, together
from fedassay.tasks.evaluation.metric import LEVEL, Metric
from fedassay.tasks.evaluation.operating_points import operating_points
from fedassay.tasks.evaluation.ranking import average_precision, roc_auc
from fedassay.tasks.evaluation.ratios import brier_score, log_loss, observed_expected_ratio, prevalence
from fedassay.tasks.evaluation.recalibration import calibration_intercept, calibration_slope
from fedassay.tasks.evaluation.resolution import least_noisy, most_telling
from fedassay.tasks.evaluation.score_distribution import score_distribution
from fedassay.tasks.evaluation.sites import by_site
from fedassay.tasks.evaluation.stored import histogram_to_json, threshold_entry
from fedassay.tasks.evaluation.versus import against

EXACT_HEIGHT = 15
"""Without noise: 32,768 bins, of which 16,384 uniform and 16,384 logit-spaced if mixed."""

NOISY_HEIGHT = 10
"""Under noise: more bins add noise to every sum over them, and 1,024 keep the binning bound below the
sampling error up to about 10^5 rows. `fedassay plan` says where others would serve better."""

NOISY_REACH = 8.0
"""Under noise, logit-spaced bins end at ±8 (a score of 3e-4): bins further out hold hardly a row, but their
noise would weigh on the log loss and the calibration slope in proportion to their logit."""


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Every standard metric of a binary classifier, with intervals, from one release.

    Parameters
    ----------
    thresholds : become edges of the grid, so that metrics at them are exact. Others can be asked later, from
        the result alone (`metrics_at`).
    height : 2^height bins. By default 15 without noise and 10 under noise.
    buckets : of the calibration error, the reliability curve and the equi-depth histogram.
    transform : the spacing of the bins. ``auto`` is ``mixed``, the common refinement of a uniform and a
        logit grid: its binning bound is never above that of either, so looking at the data to choose could
        not do better and would cost budget.
    level : the confidence level of all intervals.
    groups : names of subgroups; the results then have an entry for each in ``groups``. For the same budget, but
        the whole is the sum of the groups and of the rows outside them, with the noise of all of them.
    versus : whether there is a second model, whose metrics go into ``versus`` and the paired ``difference``.
    per_site : whether to say how much sites differ, in ``heterogeneity`` and, where the trust model lets single
        sites be seen, in ``sites``. Not under noise.

    Guarantee: everything returned is computed from what is released for the one budget; without `versus` and
    `per_site`, that is a single `Sum`. Rows are assumed independent, for intervals.

    Reference: Cormode and Markov (2023); docs/explanation/evaluation.md has the formulas.
    """

    thresholds: tuple[float, ...] = (0.5,)
    height: int | None = None
    buckets: int = 10
    transform: str = "auto"
    level: float = LEVEL
    groups: tuple[str, ...] = ()
    versus: bool = False
    per_site: bool = False

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
        object.__setattr__(self, "groups", checked_groups(self.groups) if self.groups else ())
        if self.groups and self.versus:
            raise UsageError(
                "by and versus: expected one of them, because a paired difference in each group would divide the "
                "budget of one comparison among all groups; compare the models on the rows of one group instead."
            )
        for height, reach in ((EXACT_HEIGHT, LARGEST_REACH), (NOISY_HEIGHT, NOISY_REACH)):
            # Refuses bad heights and thresholds before any row is read.
            self._histogram(height if self.height is None else self.height, reach)

    def steps(self, setting: Setting) -> Flow:
        """Ask for one histogram, or what the options need; the ``results`` object of the public contract."""
        if not self.per_site:
            return (yield from self._rows(setting, share=1.0))
        # No noise, so the shares are only told apart.
        parts = yield from together(self._rows(setting, share=0.5), by_site(self, setting, share=0.5))
        return {name: value for part in parts for name, value in part.items()}

    def _rows(self, setting: Setting, *, share: float) -> Flow:
        """What all rows say, whoever holds them."""
        if self.groups:
            return (yield from by_group(self, setting, share=share))
        if self.versus:
            return (yield from against(self, setting, share=share))
        released: Released[LabelledHistogram] = yield Sum(of=self.histogram(setting), share=share)
        return self.results(released)

    def histogram(self, setting: Setting) -> ScoreHistogram:
        """The histogram to ask for, chosen from public settings only: how much noise it would get."""
        exact = self._histogram(EXACT_HEIGHT if self.height is None else self.height, LARGEST_REACH)
        if setting.noise(Sum(of=exact)).variance == 0:
            return exact
        finest = self._histogram(NOISY_HEIGHT if self.height is None else self.height, NOISY_REACH)
        return most_telling(finest, setting) if self.height is None else least_noisy(finest, setting)

    def _histogram(self, height: int, reach: float) -> ScoreHistogram:
        # The ends of uniform buckets are edges too, so that the uniform calibration error has exact buckets.
        edges = (*self.thresholds, *(j / self.buckets for j in range(1, self.buckets)))
        transform = "mixed" if self.transform == "auto" else self.transform
        return ScoreHistogram(transform=transform, height=height, thresholds=edges, reach=reach)

    def results(self, released: Released[LabelledHistogram]) -> dict[str, Any]:
        """All metrics and curves of a release, as plain JSON."""
        evidence = Evidence.of(released.value, released.noise)
        equi_depth = Buckets(evidence=evidence, edges=tuple(equi_depth_edges(evidence, self.buckets)))
        return {
            **self._all_metrics(evidence),
            "roc_curve": curves.roc_curve(evidence, level=self.level),
            "precision_recall_curve": curves.precision_recall_curve(evidence, level=self.level),
            "reliability_curve": curves.reliability_curve(equi_depth, level=self.level),
            "net_benefit_curve": curves.net_benefit_curve(evidence, level=self.level),
            "operating_points": operating_points(evidence, level=self.level),
            "score_distribution": score_distribution(evidence),
            "buckets": equi_depth.to_json(),
            "histogram": {"rows": evidence.rows, **histogram_to_json(released.value, released.noise)},
        }

    def entry(self, evidence: Evidence) -> dict[str, Any]:
        """The metrics of some of the rows, or of another model, as plain JSON: a group, a site, the other model."""
        return {"rows": evidence.rows, **self._all_metrics(evidence)}

    def _all_metrics(self, evidence: Evidence) -> dict[str, Any]:
        entries = [threshold_entry(evidence, threshold, level=self.level) for threshold in self.thresholds]
        first = {name: metric for name, metric in entries[0].items() if name not in ("threshold", "applied")}
        return {
            **{name: metric.to_json() for name, metric in self.metrics(evidence).items()},
            **first,
            "thresholds": entries,
        }

    def metrics(self, evidence: Evidence) -> dict[str, Metric]:
        """The metrics that need no threshold, by name."""
        level = self.level
        return {
            "roc_auc": roc_auc(evidence, level=level),
            "average_precision": average_precision(evidence, level=level),
            "prevalence": prevalence(evidence, level=level),
            "brier_score": brier_score(evidence, level=level),
            "log_loss": log_loss(evidence, level=level),
            **self.calibration_errors(evidence),
            "calibration_intercept": calibration_intercept(evidence, level=level),
            "calibration_slope": calibration_slope(evidence, level=level),
            "observed_expected_ratio": observed_expected_ratio(evidence, level=level),
            "hosmer_lemeshow": hosmer_lemeshow(evidence, level=level),
        }

    def calibration_errors(self, evidence: Evidence) -> dict[str, Metric]:
        """The calibration error over equi-depth and over uniform buckets, by name."""
        estimators = (expected_calibration_error, expected_calibration_error_uniform)
        return {
            estimate.__name__: estimate(evidence, buckets=self.buckets, level=self.level)
            for estimate in estimators
        }
