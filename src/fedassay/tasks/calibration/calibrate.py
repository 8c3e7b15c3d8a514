"""The task: a calibrator from the fit rows, judged on the held-out rows, for the price of one release."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from fedassay.errors import ParameterError
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.metric import undefined
from fedassay.estimation.widths import best_widths
from fedassay.protocol import Part, Released, Setting, Sum
from fedassay.summaries.grid import LARGEST_REACH
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram
from fedassay.tasks.calibration import discrimination, losses, reliability
from fedassay.tasks.calibration.fitted import Fitted
from fedassay.tasks.calibration.methods import AUTO, Choice, fit
from fedassay.tasks.calibration.parameters import CalibrateParameters
from fedassay.tasks.calibration.recalibrated import Recalibrated
from fedassay.tasks.calibration.verdict import Verdict, verdict
from fedassay.tasks.evaluation.evaluate import EXACT_HEIGHT, NOISY_HEIGHT, NOISY_REACH, Evaluate
from fedassay.tasks.evaluation.stored import histogram_to_json

NOISY_FIT_HEIGHT = 8
"""Under noise the fit needs few bins: sums over buckets then have a third of the noise that they would have
with the 2^10 bins of the held-out histogram, and 256 bins resolve any smooth map."""

Pair = tuple[Released[LabelledHistogram], Released[LabelledHistogram]]


@dataclass(frozen=True, kw_only=True)
class Calibrate(CalibrateParameters):
    """A map from scores to calibrated probabilities, with metrics before and after on held-out rows.

    Guarantee: everything is computed from two released histograms of different units, one of the fit rows and
    one of the held-out rows; each may spend the whole budget (parallel composition, see `data.split`). How many
    units are held out is the sites' matter. Rows are assumed independent, for intervals.

    Reference: Cormode and Markov (2023), Sections 6 and 7.3; docs/explanation/calibration.md has the formulas.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bins is not None and self.method not in ("histogram", AUTO):
            raise ParameterError("bins", f"the method {self.method} has none; leave `bins` out.")
        # Refuses buckets that do not fit into the bins, before any row is read.
        Evaluate(height=self.height, buckets=self.buckets, transform=self.transform, level=self.level)

    def steps(self, setting: Setting) -> Generator[tuple[Sum[Any], Sum[Any]], Pair, dict[str, Any]]:
        """Ask for both histograms in one round trip, return the ``results`` object of the public contract."""
        fit_rows, held_out = self.histograms(setting)
        released = yield Sum(of=fit_rows, part=Part.FIT), Sum(of=held_out, part=Part.HELD_OUT)
        return self.results(*released)

    def histograms(self, setting: Setting) -> tuple[ScoreHistogram, ScoreHistogram]:
        """The histograms of the fit and of the held-out rows, chosen from public settings only.

        Under noise the levels are those with the smallest mean variance of a sum up to an edge: calibration
        is about sums over buckets.
        """
        exact = self._histogram(EXACT_HEIGHT, LARGEST_REACH)
        if setting.noise(Sum(of=exact, part=Part.FIT)).variance == 0:
            return exact, exact
        fit_rows, held_out = (
            _least_noisy(self._histogram(height, NOISY_REACH), setting)
            for height in (NOISY_FIT_HEIGHT, NOISY_HEIGHT)
        )
        return fit_rows, held_out

    def _histogram(self, height: int, reach: float) -> ScoreHistogram:
        return ScoreHistogram(
            transform="mixed" if self.transform == "auto" else self.transform,
            height=height if self.height is None else self.height,
            thresholds=tuple(j / self.buckets for j in range(1, self.buckets)),
            reach=reach,
        )

    def results(
        self, fit_rows: Released[LabelledHistogram], held_out: Released[LabelledHistogram]
    ) -> dict[str, Any]:
        """The calibrator, and what it does to held-out rows, as plain JSON."""
        fitting, judging = (one.value.evidence(one.noise) for one in (fit_rows, held_out))
        choice = fit(fitting, self.method, bins=self.bins)
        return {
            **self._outcome(choice, judging),
            **({"candidates": [dict(one) for one in choice.candidates]} if choice.candidates else {}),
            "histogram": {
                "rows": fitting.rows + judging.rows,
                "fit": {"rows": fitting.rows, **histogram_to_json(fit_rows.value, fit_rows.noise)},
                "held_out": {"rows": judging.rows, **histogram_to_json(held_out.value, held_out.noise)},
            },
        }

    def _outcome(self, choice: Choice, judging: Evidence) -> dict[str, Any]:
        untouched = Recalibrated.untouched(judging)
        before, curve = self._measured(untouched), self._curve(untouched)
        if choice.fitted is None:
            reason = f"there is no calibrator: {choice.reason}"
            nothing = undefined(reason, level=self.level).to_json()
            return {
                "method": None if self.method == AUTO else self.method,
                "parameters": {},
                "calibrator": None,
                "recommended": False,
                "reason": f"Not recommended: {reason}.",
                "before": before,
                "after": dict.fromkeys(before, nothing),
                "difference": dict.fromkeys(losses.LOSSES, nothing),
                "reliability_curve": {"before": curve, "after": None},
            }
        seen = Recalibrated.by(judging, choice.fitted.map)
        differences = {
            name: losses.difference(untouched, seen, loss, level=self.level)
            for name, loss in losses.LOSSES.items()
        }
        return {
            **_described(
                choice.fitted,
                verdict(
                    differences,
                    positives=seen.evidence.positive_rows,
                    negatives=seen.evidence.negative_rows,
                ),
            ),
            "before": before,
            "after": self._measured(seen),
            "difference": {name: metric.to_json() for name, metric in differences.items()},
            "reliability_curve": {"before": curve, "after": self._curve(seen)},
        }

    def _measured(self, seen: Recalibrated) -> dict[str, Any]:
        level, buckets = self.level, self.buckets
        metrics = {
            "roc_auc": discrimination.roc_auc(seen, level=level),
            "brier_score": losses.brier_score(seen, level=level),
            "log_loss": losses.log_loss(seen, level=level),
            "expected_calibration_error": reliability.expected_calibration_error(
                seen, buckets=buckets, level=level
            ),
            "expected_calibration_error_uniform": reliability.expected_calibration_error_uniform(
                seen, buckets=buckets, level=level
            ),
            "calibration_intercept": reliability.calibration_intercept(seen, level=level),
            "calibration_slope": reliability.calibration_slope(seen, level=level),
        }
        return {name: metric.to_json() for name, metric in metrics.items()}

    def _curve(self, seen: Recalibrated) -> dict[str, Any]:
        return reliability.reliability_curve(seen, buckets=self.buckets, level=self.level)


def _least_noisy(histogram: ScoreHistogram, setting: Setting) -> ScoreHistogram:
    def with_levels(widths: tuple[int, ...]) -> ScoreHistogram:
        return replace(histogram, widths=widths, multipliers=())

    def noise_variance_for(levels: int) -> float:
        widths = tuple(1 << level for level in range(levels))
        return setting.noise(Sum(of=with_levels(widths), part=Part.FIT)).variance

    return with_levels(best_widths(histogram.grid.leaves, noise_variance_for))


def _described(fitted: Fitted, judged: Verdict) -> dict[str, Any]:
    return {
        "method": fitted.method,
        "parameters": dict(fitted.parameters),
        "calibrator": fitted.map.to_json(),
        "recommended": judged.recommended,
        "reason": judged.reason,
    }
