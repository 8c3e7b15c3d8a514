"""The task: one release of a score histogram, and everything that can be said from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedassay.errors import ParameterError
from fedassay.estimation import curves
from fedassay.estimation.buckets import Buckets, equi_depth_edges
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.metric import Metric
from fedassay.metrics import of_part
from fedassay.protocol import Released, Setting, Sum
from fedassay.summaries.grid import LARGEST_REACH
from fedassay.summaries.group_names import checked_groups
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram
from fedassay.tasks.evaluation.groups import by_group
from fedassay.tasks.evaluation.lockstep import Flow, together
from fedassay.tasks.evaluation.operating_points import operating_points
from fedassay.tasks.evaluation.parameters import EvaluateParameters
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
class Evaluate(EvaluateParameters):
    """Every standard metric of a binary classifier, with intervals, from one release.

    Thresholds become edges of the grid, so that metrics at them are exact (`metrics_at` asks for others later). The
    binning bound of ``mixed`` bins is never above that of uniform or logit ones: looking at the data to choose could
    not do better, and would cost budget. Groups share one budget: the whole is the sum of the groups and of the rows
    outside them, with the noise of all of them.

    Guarantee: everything returned is computed from what is released for the one budget; without `versus` and
    `per_site`, that is a single `Sum`. Rows are assumed independent, for intervals.

    Reference: Cormode and Markov (2023); docs/explanation/evaluation.md has the formulas.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.thresholds:
            raise ParameterError(
                "thresholds", "got none, expected at least one number from 0 to 1, such as 0.5."
            )
        object.__setattr__(self, "groups", checked_groups(self.groups) if self.groups else ())
        if self.groups and self.versus:
            raise ParameterError(
                "versus",
                "got it together with `by`, expected one of them: a paired difference in each group would divide the "
                "budget of one comparison; compare the models on the rows of one group instead.",
            )
        for height, reach in ((EXACT_HEIGHT, LARGEST_REACH), (NOISY_HEIGHT, NOISY_REACH)):
            # Refuses thresholds that do not fit into the bins, before any row is read.
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
        """The histogram to ask for, chosen from public settings only: how much noise it would get.

        The task remembers what it has chosen for a setting: it is rehearsed before it is run. As long as nobody knows
        how many clients there are (0), the finest histogram stands for the one that will be chosen.
        """
        if setting not in self._chosen:
            self._chosen[setting] = self._choose(setting)
        return self._chosen[setting]

    @cached_property
    def _chosen(self) -> dict[Setting, ScoreHistogram]:
        return {}

    def _choose(self, setting: Setting) -> ScoreHistogram:
        exact = self._histogram(EXACT_HEIGHT if self.height is None else self.height, LARGEST_REACH)
        if setting.noise(Sum(of=exact)).variance == 0:
            return exact
        finest = self._histogram(NOISY_HEIGHT if self.height is None else self.height, NOISY_REACH)
        if setting.clients == 0:
            return finest
        return most_telling(finest, setting) if self.height is None else least_noisy(finest, setting)

    def _histogram(self, height: int, reach: float) -> ScoreHistogram:
        # The ends of uniform buckets are edges too, so that the uniform calibration error has exact buckets.
        edges = (*self.thresholds, *(j / self.buckets for j in range(1, self.buckets)))
        transform = "mixed" if self.transform == "auto" else self.transform
        return ScoreHistogram(transform=transform, height=height, thresholds=edges, reach=reach)

    def results(self, released: Released[LabelledHistogram]) -> dict[str, Any]:
        """All metrics and curves of a release, as plain JSON."""
        evidence = released.value.evidence(released.noise)
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
        return {
            record.name: record.of(evidence, level=self.level, buckets=self.buckets)
            for record in of_part("rows")
        }
