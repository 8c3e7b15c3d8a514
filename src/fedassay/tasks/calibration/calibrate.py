"""Calibration task: fit a calibrator and judge it on held-out rows, for the price of one release."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from fedassay.errors import ParameterError
from fedassay.estimation.calibration_error import Buckets
from fedassay.estimation.curves import reliability_curve
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.least_squares import best_widths
from fedassay.estimation.metric import Metric, undefined
from fedassay.estimation.ratios import BRIER, LOG, Loss
from fedassay.protocol.metrics import METRICS
from fedassay.protocol.vocabulary import Part, Released, Setting, Sum
from fedassay.summaries.grid import LARGEST_REACH
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram
from fedassay.tasks.calibration.methods import AUTO, ChosenCalibrator, fit
from fedassay.tasks.calibration.parameters import CalibrateParameters
from fedassay.tasks.calibration.recalibrated import Recalibrated, difference, roc_auc
from fedassay.tasks.evaluation.accuracy import level_noise
from fedassay.tasks.evaluation.evaluate import EXACT_HEIGHT, NOISY_HEIGHT, NOISY_REACH, Evaluate
from fedassay.tasks.evaluation.stored import histogram_to_json

MEASURED = (
    "brier_score",
    "log_loss",
    "expected_calibration_error",
    "expected_calibration_error_uniform",
    "calibration_intercept",
    "calibration_slope",
)
"""Metrics that are shown before and after, in addition to the ROC AUC."""

LOSSES: Mapping[str, Loss] = MappingProxyType({"brier_score": BRIER, "log_loss": LOG})

# --- recommendation of a calibrator -------------------------------------------------------------------------

LOSS_NAMES = {"log_loss": "log loss", "brier_score": "Brier score"}


@dataclass(frozen=True, kw_only=True)
class CalibrationVerdict:
    """Recommendation for or against a calibrator, with its reason in one sentence."""

    recommended: bool
    reason: str


FEWEST_ROWS = 20
"""Held-out rows of each class below which no calibrator is recommended: intervals of fewer mean nothing."""


def verdict(differences: Mapping[str, Metric], *, positives: float, negatives: float) -> CalibrationVerdict:
    """Judge by the paired differences (after minus before) of the log loss and the Brier score.

    Recommended if the whole interval of the log loss lies below 0 and that of the Brier score does not lie
    above 0. Where noise leaves no log loss, the Brier score decides. Guarantee: a calibrator that does not
    lower the expected loss is recommended with probability at most (1 - level)/2, as far as the interval
    keeps its level; with fewer than 20 held-out rows of a class it does not, and nothing is recommended.
    """
    log, brier = differences["log_loss"], differences["brier_score"]
    deciding, name = (log, "log_loss") if log.interval is not None else (brier, "brier_score")
    if deciding.interval is None:
        return not_recommended(f"{deciding.reason}")
    fewest = min(positives, negatives)
    if fewest < FEWEST_ROWS:
        return not_recommended(
            f"not enough evidence, the smaller class has about {max(0.0, fewest):.0f} held-out rows, and "
            f"{FEWEST_ROWS} are needed to judge"
        )
    if brier.interval is not None and brier.interval[0] > 0:
        return not_recommended(f"on held-out rows the {_change('brier_score', brier)}")
    if deciding.interval[1] >= 0:
        return not_recommended(
            f"on held-out rows the {_change(name, deciding)}, which is not an improvement beyond the interval"
        )
    also = "" if deciding is brier or brier.interval is None else f"; the {_change('brier_score', brier)}"
    return CalibrationVerdict(
        recommended=True, reason=f"Recommended: on held-out rows the {_change(name, deciding)}{also}."
    )


def not_recommended(reason: str) -> CalibrationVerdict:
    """Return the verdict against a calibrator, for this reason."""
    return CalibrationVerdict(recommended=False, reason=f"Not recommended: {reason}.")


def _change(name: str, metric: Metric) -> str:
    return f"{LOSS_NAMES[name]} {change_of(metric)}"


def change_of(metric: Metric, *, percent: bool = False) -> str:
    """Describe a change, such as ``changes by -0.02 (95% interval -0.03 to -0.01)``."""
    assert metric.value is not None
    assert metric.interval is not None
    change, low, high = (
        f"{100 * number:+.2g} %" if percent else f"{number:+.2g}"
        for number in (metric.value, *metric.interval)
    )
    return f"changes by {change} ({metric.level:.0%} interval {low} to {high})"


# --- the task -----------------------------------------------------------------------------------------------

NOISY_FIT_HEIGHT = 8
"""Height of the fit histogram under noise. The fit needs few bins: sums over buckets then have a third of
the noise that they would have with the 2^10 bins of the held-out histogram, and 256 bins resolve any smooth map."""

_Pair = tuple[Released[LabelledHistogram], Released[LabelledHistogram]]


@dataclass(frozen=True, kw_only=True)
class Calibrate(CalibrateParameters):
    """A map from scores to calibrated probabilities, with metrics before and after on held-out rows.

    Guarantee: everything is computed from two released histograms of different units, one of the fit rows and
    one of the held-out rows; each may spend the whole budget (parallel composition, see `data.split`). The sites
    decide how many units are held out. Rows are assumed independent, for intervals.

    Reference: Cormode and Markov (2023), Sections 6 and 7.3; docs/explanation/calibration.md has the formulas.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bins is not None and self.method not in ("histogram", AUTO):
            raise ParameterError("bins", f"the method {self.method} has none; leave `bins` out.")
        # Refuses buckets that do not fit into the bins, before any row is read.
        Evaluate(height=self.height, buckets=self.buckets, transform=self.transform, level=self.level)

    def steps(self, setting: Setting) -> Generator[tuple[Sum[Any], Sum[Any]], _Pair, dict[str, Any]]:
        """Ask for both histograms in one round trip; return the ``results`` object of the public contract."""
        fit_rows, held_out = self.histograms(setting)
        released = yield Sum(of=fit_rows, part=Part.FIT), Sum(of=held_out, part=Part.HELD_OUT)
        return self.results(*released)

    def histograms(self, setting: Setting) -> tuple[ScoreHistogram, ScoreHistogram]:
        """Choose the histograms of the fit and of the held-out rows, from public settings only.

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
        """Return the calibrator and its effect on held-out rows, as plain JSON."""
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

    def _outcome(self, choice: ChosenCalibrator, judging: Evidence) -> dict[str, Any]:
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
                "difference": dict.fromkeys(LOSSES, nothing),
                "reliability_curve": {"before": curve, "after": None},
            }
        seen = Recalibrated.by(judging, choice.fitted.map)
        differences = {
            name: difference(untouched, seen, loss, level=self.level) for name, loss in LOSSES.items()
        }
        judged = verdict(differences, positives=judging.positive_rows, negatives=judging.negative_rows)
        return {
            "method": choice.fitted.method,
            "parameters": dict(choice.fitted.parameters),
            "calibrator": choice.fitted.map.to_json(),
            "recommended": judged.recommended,
            "reason": judged.reason,
            "before": before,
            "after": self._measured(seen),
            "difference": {name: metric.to_json() for name, metric in differences.items()},
            "reliability_curve": {"before": curve, "after": self._curve(seen)},
        }

    def _measured(self, seen: Recalibrated) -> dict[str, Any]:
        metrics = {
            "roc_auc": roc_auc(seen, level=self.level),
            **{name: METRICS[name].of(seen, level=self.level, buckets=self.buckets) for name in MEASURED},
        }
        return {name: metric.to_json() for name, metric in metrics.items()}

    def _curve(self, seen: Recalibrated) -> dict[str, Any]:
        return reliability_curve(Buckets.equi_depth(seen, self.buckets), level=self.level)


def _least_noisy(histogram: ScoreHistogram, setting: Setting) -> ScoreHistogram:
    def counted(widths: tuple[int, ...]) -> ScoreHistogram:
        return replace(histogram, widths=widths, multipliers=())

    noise = level_noise(setting, lambda widths: Sum(of=counted(widths), part=Part.FIT))
    return counted(best_widths(histogram.grid.leaves, noise))
