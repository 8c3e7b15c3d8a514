"""The task: a calibrator from the fit rows, judged on the held-out rows, for the price of one release."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from fedassay.errors import ParameterError
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.intervals import Estimate, bounded, unbounded
from fedassay.estimation.least_squares import best_widths
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator, undefined
from fedassay.estimation.ratios import CLEAR
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Part, Released, Setting, Sum
from fedassay.summaries.grid import LARGEST_REACH
from fedassay.summaries.maps import EPSILON
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram
from fedassay.tasks.calibration import reliability
from fedassay.tasks.calibration import reliability as discrimination
from fedassay.tasks.calibration.logistic import Fitted
from fedassay.tasks.calibration.methods import AUTO, ChosenCalibrator, fit
from fedassay.tasks.calibration.parameters import CalibrateParameters
from fedassay.tasks.calibration.reliability import Recalibrated
from fedassay.tasks.evaluation.evaluate import EXACT_HEIGHT, NOISY_HEIGHT, NOISY_REACH, Evaluate
from fedassay.tasks.evaluation.stored import histogram_to_json

# --- brier score and log loss of calibrated scores ----------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What a score costs a positive and a negative row."""

    name: str
    of_positive: Callable[[Floats], Floats]
    of_negative: Callable[[Floats], Floats]

    def of(self, scores: Floats) -> tuple[Floats, Floats]:
        """Both, per leaf."""
        return self.of_positive(scores), self.of_negative(scores)


def _clipped(scores: Floats) -> Floats:
    return np.clip(scores, EPSILON, 1 - EPSILON)


BRIER = Loss(name="brier_score", of_positive=lambda s: (1 - s) ** 2, of_negative=lambda s: s**2)
LOG = Loss(
    name="log_loss",
    of_positive=lambda s: -np.log(_clipped(s)),
    of_negative=lambda s: -np.log1p(-_clipped(s)),
)
LOSSES: Mapping[str, Loss] = MappingProxyType({loss.name: loss for loss in (BRIER, LOG)})


@estimator
def brier_score(seen: Recalibrated, *, level: float = LEVEL) -> Metric:
    """The mean of (calibrated score - label)²."""
    n = seen.evidence.require_rows()
    return bounded(_mean(seen, BRIER), size=n, level=level)


@estimator
def log_loss(seen: Recalibrated, *, level: float = LEVEL) -> Metric:
    """The mean negative log-likelihood, clipped as scikit-learn clips; as in `evaluation.ratios`."""
    seen.evidence.require_rows()
    estimate = _mean(seen, LOG)
    if estimate.value < CLEAR * math.sqrt(estimate.privacy_variance):
        raise Undefined(
            f"not enough evidence: the estimate {estimate.value:.2g} is below {CLEAR:.0f} standard "
            f"deviations of the privacy noise ({math.sqrt(estimate.privacy_variance):.2g})"
        )
    return unbounded(estimate, level=level, lowest=0.0)


@estimator
def difference(before: Recalibrated, after: Recalibrated, loss: Loss, *, level: float = LEVEL) -> Metric:
    """The mean over rows of (loss after - loss before): below 0 if calibration helps.

    A paired quantity: both losses are of the same row, so what makes rows hard cancels, and the interval is
    much shorter than those of the two means. The binning bound is the largest change of the difference
    between the leaf's score and its two ends.
    """
    before.evidence.require_rows()
    here = _gap(loss, before.scores, after.scores)
    ends = (
        _gap(loss, before.at_lower, after.at_lower),
        _gap(loss, before.at_upper, after.at_upper),
    )
    return unbounded(_mean_of(before.evidence, here, ends), level=level)


Costs = tuple[Floats, Floats]
"""What a positive and a negative row cost, per leaf."""


def _gap(loss: Loss, before: Floats, after: Floats) -> Costs:
    (p, n), (q, m) = loss.of(before), loss.of(after)
    return q - p, m - n


def _mean(seen: Recalibrated, loss: Loss) -> Estimate:
    ends = (loss.of(seen.at_lower), loss.of(seen.at_upper))
    return _mean_of(seen.evidence, loss.of(seen.scores), ends)


def _mean_of(evidence: Evidence, here: Costs, ends: tuple[Costs, Costs]) -> Estimate:
    """The mean over rows of a cost, with its derivatives by the counts and the bound from the leaf's ends."""
    n = evidence.rows
    value = evidence.total(*here) / n
    spreads = (np.maximum(np.abs(ends[0][k] - here[k]), np.abs(ends[1][k] - here[k])) for k in (0, 1))
    # Linear in the counts, so unbiased under noise; a negative total says that the bound drowns in it.
    bound = max(0.0, evidence.total(*spreads) / n)
    return evidence.estimate(value, (here[0] - value) / n, (here[1] - value) / n, discretisation=bound)


# --- whether to use a calibrator ----------------------------------------------------------------------------

_WORDS = {BRIER.name: "Brier score", LOG.name: "log loss"}


@dataclass(frozen=True, kw_only=True)
class CalibrationVerdict:
    """Whether the calibrator is recommended, and why, in one sentence."""

    recommended: bool
    reason: str


FEWEST_ROWS = 20
"""Held-out rows of each class below which no calibrator is recommended: intervals of so few mean nothing."""


def verdict(differences: Mapping[str, Metric], *, positives: float, negatives: float) -> CalibrationVerdict:
    """Judge by the paired differences (after minus before) of the log loss and the Brier score.

    Recommended if the whole interval of the log loss lies below 0 and that of the Brier score does not lie
    above 0. Where noise leaves no log loss, the Brier score decides. Guarantee: a calibrator that does not
    lower the expected loss is recommended with probability at most (1 - level)/2, as far as the interval
    keeps its level; with fewer than 20 held-out rows of a class it does not, and nothing is recommended.
    """
    log, brier = differences[LOG.name], differences[BRIER.name]
    deciding, name = (log, LOG.name) if log.interval is not None else (brier, BRIER.name)
    if deciding.interval is None:
        return CalibrationVerdict(recommended=False, reason=f"Not recommended: {deciding.reason}.")
    fewest = min(positives, negatives)
    if fewest < FEWEST_ROWS:
        return CalibrationVerdict(
            recommended=False,
            reason=f"Not recommended: not enough evidence, the smaller class has about {max(0.0, fewest):.0f} "
            f"held-out rows, and {FEWEST_ROWS} are needed to judge.",
        )
    if brier.interval is not None and brier.interval[0] > 0:
        return CalibrationVerdict(
            recommended=False, reason=f"Not recommended: on held-out rows the {_change(BRIER.name, brier)}."
        )
    if deciding.interval[1] < 0:
        also = "" if name == BRIER.name or brier.interval is None else f"; the {_change(BRIER.name, brier)}"
        return CalibrationVerdict(
            recommended=True, reason=f"Recommended: on held-out rows the {_change(name, deciding)}{also}."
        )
    return CalibrationVerdict(
        recommended=False,
        reason=f"Not recommended: on held-out rows the {_change(name, deciding)}, which is not an improvement "
        "beyond the interval.",
    )


def _change(name: str, metric: Metric) -> str:
    assert metric.value is not None
    assert metric.interval is not None
    low, high = metric.interval
    return f"{_WORDS[name]} changes by {metric.value:+.2g} ({metric.level:.0%} interval {low:+.2g} to {high:+.2g})"


# --- the task -----------------------------------------------------------------------------------------------

NOISY_FIT_HEIGHT = 8
"""Under noise the fit needs few bins: sums over buckets then have a third of the noise that they would have
with the 2^10 bins of the held-out histogram, and 256 bins resolve any smooth map."""

_Pair = tuple[Released[LabelledHistogram], Released[LabelledHistogram]]


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

    def steps(self, setting: Setting) -> Generator[tuple[Sum[Any], Sum[Any]], _Pair, dict[str, Any]]:
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
            "brier_score": brier_score(seen, level=level),
            "log_loss": log_loss(seen, level=level),
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


def _described(fitted: Fitted, judged: CalibrationVerdict) -> dict[str, Any]:
    return {
        "method": fitted.method,
        "parameters": dict(fitted.parameters),
        "calibrator": fitted.map.to_json(),
        "recommended": judged.recommended,
        "reason": judged.reason,
    }
