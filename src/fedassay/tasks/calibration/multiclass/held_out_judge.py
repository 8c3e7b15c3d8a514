"""Held-out judge of multiclass calibrators: metrics before and after, paired differences, and the verdict.

One round trip. The changes are paired (`MapChanges`): both losses are of the same row. The statistics of rows before
and after (`ClassStatistics`, without and with the map) are asked for in the same round trip.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedassay.estimation.curves import ReliabilityLists
from fedassay.estimation.evidence import enough
from fedassay.estimation.intervals import Estimate, unbounded, z_value
from fedassay.estimation.metric import LEVEL, Metric, Undefined, estimator, undefined
from fedassay.protocol.vocabulary import (
    LARGEST_ROWS_PER_CLIENT,
    TOTAL_BITS,
    Noise,
    Part,
    Query,
    Released,
    Setting,
    Sum,
    Summary,
)
from fedassay.summaries.multiclass.class_statistics import (
    LARGEST_BRIER,
    LARGEST_LOSS,
    MOST_BITS,
    ClassStatistics,
    ScaledTotals,
)
from fedassay.summaries.multiclass.map_changes import Change, ChangeTotals, MapChanges
from fedassay.summaries.multiclass.scaling_maps import LogitMap
from fedassay.tasks.calibration.calibrate import LOSS_NAMES, CalibrationVerdict, change_of, not_recommended
from fedassay.tasks.evaluation.multiclass import EvaluateMulticlass

ROUNDING = 1e-9
"""Mean change below which the difference is due to floating-point rounding."""

ORDER_KEPT = "the order of classes does not change"


@dataclass(frozen=True, kw_only=True, eq=False)
class Paired:
    """Totals of changes over held-out rows, exact or noisy."""

    totals: ChangeTotals
    noise: Noise

    @property
    def rows(self) -> float:
        """Number of rows."""
        return float(self.totals.rows.value)

    @property
    def wrong(self) -> float:
        """Number of rows that the model itself has wrong."""
        return float(self.totals.wrong.value)

    def variance(self, part: ScaledTotals) -> float:
        """Return the privacy variance of a total."""
        return part.factor * self.noise.variance

    def require_rows(self) -> float:
        """Return n, if it is enough for a mean and its variance."""
        n = enough("held-out rows", self.rows, self.variance(self.totals.rows))
        if n < 2:
            raise Undefined("there are fewer than 2 held-out rows")
        return n

    def mean(self, change: Change) -> Estimate:
        """Estimate the mean change of a row. The variance corrects for squares rounded toward zero."""
        n = self.require_rows()
        v = float(change.first.value) / n
        square = float(change.second.value) / n + change.second.resolution
        return Estimate(
            value=v,
            sampling_variance=(square - v * v) / (n - 1),
            privacy_variance=(self.variance(change.first) + v * v * self.variance(self.totals.rows)) / n**2,
            discretisation=max(ROUNDING, change.first.resolution),
        )

    def differences(self, *, level: float) -> dict[str, Metric]:
        """Estimate the changes of all metrics, after less before."""
        return {
            "log_loss": loss_change(self, "loss", level=level),
            "brier_score": loss_change(self, "brier", level=level),
            "accuracy": accuracy_change(self, level=level),
        }

    def skewness(self, change: Change) -> float:
        """Compute γ of the changes of single rows; 0 if cubes were not asked for or are within rounding."""
        n = self.rows
        scale = math.pow(self.mean(change).sampling_variance * (n - 1), 1.5)
        if change.third is None or change.third.resolution > 0.1 * scale:
            return 0.0
        v, square, cube = (float(part.value) / n for part in (change.first, change.second, change.third))
        return (cube - 3 * v * square + 2 * v**3) / scale


_BOUNDS = {"loss": LARGEST_LOSS, "brier": LARGEST_BRIER}


@estimator
def loss_change(paired: Paired, name: str, *, level: float = LEVEL) -> Metric:
    """Estimate the change of the mean log ``loss`` or ``brier`` score; below 0 if the map helps.

    ``bound`` is in the details if changes of single rows were cut at it.
    """
    change = paired.totals.changes[name]
    estimate, details = paired.mean(change), {} if change.bound >= _BOUNDS[name] else {"bound": change.bound}
    if paired.noise.variance > 0:
        return replace(unbounded(estimate, level=level), details=details)
    low, high = skewed_interval(estimate, paired.skewness(change), paired.rows, level=level)
    ends = (low - estimate.discretisation, high + estimate.discretisation)
    return replace(estimate.metric(estimate.value, ends, level=level), details=details)


def skewed_interval(estimate: Estimate, skewness: float, rows: float, *, level: float) -> tuple[float, float]:
    """Compute the interval of a mean of skewed numbers, without noise.

    Most rows change a little, and the few that the model has wrong change a lot in the other direction. With the normal
    interval, a calibrator that is no better would be called better far more often than stated. Measured, where it
    should be 2.5 %: 14 % with 7 wrong rows of 50 and 7 % with 27 of 200; with this interval 8 % and 3 %.

    t is Studentised; g(t) = t + a t²/3 + a² t³/27 + a/6 with a = γ/√n is normal up to terms of order 1/n and has the
    inverse 3((1 + a(x - a/6))^{1/3} - 1)/a.

    Reference: Hall, On the Removal of Skewness by Transformation, J. R. Statist. Soc. B 54, 1992.

    Examples
    --------
    >>> even = Estimate(value=0.0, sampling_variance=1.0, privacy_variance=0.0)
    >>> low, high = skewed_interval(even, 3.0, 100, level=0.95)
    >>> round(low, 2), round(high, 2)
    (-1.63, 2.65)
    """
    z, a = z_value(level), skewness / math.sqrt(rows)

    def inverse(x: float) -> float:
        return x if abs(a) < 1e-9 else 3 * (math.cbrt(1 + a * (x - a / 6)) - 1) / a

    low, high = (estimate.value - estimate.standard_error * inverse(x) for x in (z, -z))
    # Where skewness is extreme the interval may not hold its own estimate.
    return min(low, estimate.value), max(high, estimate.value)


@estimator
def accuracy_change(paired: Paired, *, level: float = LEVEL) -> Metric:
    """Estimate the change of the share of correct rows: exactly 0 where the map keeps the order of classes.

    The interval adds half a row to each of the four pairs of right and wrong, so that it has some width where no row
    has changed. Reference: Agresti and Min, Simple Improved Confidence Intervals for Comparing Matched Proportions,
    Statistics in Medicine 24, 2005.
    """
    change = paired.totals.changes.get("correct")
    if change is None:
        nothing = Estimate(value=0.0, sampling_variance=0.0, privacy_variance=0.0)
        return replace(nothing.metric(0.0, (0.0, 0.0), level=level), details={"note": ORDER_KEPT})
    n, plain = paired.require_rows(), paired.mean(change)
    m, won, changed = n + 2, float(change.first.value), max(0.0, float(change.second.value))
    estimate = replace(
        plain, sampling_variance=(changed + 1 - won**2 / m) / m**2, discretisation=change.first.resolution
    )
    half = z_value(level) * estimate.standard_error + estimate.discretisation
    low, high = min(won / m - half, plain.value), max(won / m + half, plain.value)
    value = min(1.0, max(-1.0, plain.value))
    return estimate.metric(value, (max(-1.0, low), min(1.0, high)), level=level)


# --- recommendation of a multiclass calibrator --------------------------------------------------------------

LARGEST_FALL = 0.01
"""Largest fall of the accuracy: a calibrator that loses more is never recommended."""

FEWEST_ROWS = 10
"""Smallest number of held-out rows that are right, and also wrong: intervals of fewer mean nothing."""

_CLEAR = 2.0
_MORE = "more held-out rows or a larger epsilon would help"


def verdict(differences: Mapping[str, Metric], paired: Paired) -> CalibrationVerdict:
    """Judge by the paired differences (after less before) of log loss, Brier score and accuracy.

    Recommended if the whole interval of the log loss or of the Brier score lies below 0, neither of them above 0, the
    log loss is not estimated to rise (where no noise blurs it), and the accuracy does not fall by more than 1 %: not in
    the estimate, and if that is a fall at all, or under noise, not within the interval of its change either.

    Guarantee: a calibrator that lowers neither expected loss is recommended with probability at most 1 - level, as far
    as the two intervals keep their level. With fewer than 10 held-out rows that the model has right, or 10 that it has
    wrong, they do not, and nothing is recommended. Under noise the losses are those with bounded changes.
    """
    log, accuracy, private = differences["log_loss"], differences["accuracy"], paired.noise.variance > 0
    if log.interval is None or accuracy.value is None or accuracy.interval is None:
        return not_recommended(f"{log.reason or accuracy.reason}{'; ' + _MORE if private else ''}")
    few = _too_few(paired)
    if few:
        return not_recommended(few)
    falls = f"on held-out rows the accuracy {change_of(accuracy, percent=True)}"
    unclear = f"{falls}, so that a fall of more than 1 % cannot be ruled out{_why(accuracy)}"
    if accuracy.value < -LARGEST_FALL:
        drowned = private and accuracy.interval[1] > -LARGEST_FALL
        return not_recommended(unclear if drowned else f"{falls}, an estimated fall of more than 1 %")
    losses = {name: differences[name] for name in LOSS_NAMES}
    for name, metric in losses.items():
        if metric.interval is not None and metric.interval[0] > 0:
            return not_recommended(
                f"on held-out rows the {LOSS_NAMES[name]} {change_of(metric)}, which is worse"
            )
    if not any(metric.interval is not None and metric.interval[1] < 0 for metric in losses.values()):
        return not_recommended(
            f"on held-out rows the {_changes(losses)}, no improvement beyond the intervals{_why(log)}"
        )
    if accuracy.interval[0] < -LARGEST_FALL and (private or accuracy.value < 0):
        return not_recommended(unclear)
    if not private and log.value is not None and log.value > 0:
        return not_recommended(
            f"on held-out rows the {_changes(losses)}: a few rows lose a lot, which the Brier score hardly sees"
        )
    also = ORDER_KEPT if "note" in accuracy.details else f"the accuracy {change_of(accuracy, percent=True)}"
    return CalibrationVerdict(
        recommended=True, reason=f"Recommended: on held-out rows the {_changes(losses)}; {also}."
    )


def _too_few(paired: Paired) -> str:
    """Name the rows that are too few, if any; two standard deviations of noise are allowed for."""
    counts = {"right": paired.rows - paired.wrong, "wrong": paired.wrong}
    slack = _CLEAR * math.sqrt(paired.variance(paired.totals.wrong) + paired.variance(paired.totals.rows))
    for name, count in counts.items():
        if count + slack < FEWEST_ROWS:
            return (
                f"not enough evidence, the model has {max(0.0, count):.0f} of {paired.rows:.0f} held-out rows {name}, "
                f"and {FEWEST_ROWS} are needed to judge; hold out more rows"
            )
    return ""


def _why(metric: Metric) -> str:
    """Name the main part of the uncertainty, and a remedy."""
    if (metric.privacy or 0.0) > (metric.sampling or 0.0):
        return f"; most of the uncertainty is privacy noise, {_MORE}"
    return "; more held-out rows would tell more"


def _changes(losses: Mapping[str, Metric]) -> str:
    return " and the ".join(f"{LOSS_NAMES[name]} {change_of(metric)}" for name, metric in losses.items())


# --- effect of a multiclass calibrator on held-out rows -----------------------------------------------------

PAIRED = 0.7
"""Share of the changes, if the rest is asked too: a private judgement is about the verdict first."""

WORTH = 20.0
"""Smallest bound on the rows, in standard deviations of noise: below, shares of rows err by more than 5 %."""

LOSS_BOUND, BRIER_BOUND = 2.0, 1.0
"""Bounds on the change of a row under noise, which grows with them.

The best temperatures of ten models of images change the log loss of a row by up to 7.5 and its Brier score by up to
0.6. With the bound 2 the mean change of the log loss is largest against its noise; with 0.5 its sign turns, as most
rows get a little worse and few get much better. The same happens to the Brier score, at 0.5 with stronger maps.
"""

METRICS = (
    "classwise_calibration_error",
    "expected_calibration_error",
    "brier_score",
    "log_loss",
    "accuracy",
)
"""Metrics that are shown before and after."""

_NOT_ASKED = (
    "not asked for: they would drown in privacy noise even if all rows were held out; "
    "the budget goes to the comparison of before and after"
)


@dataclass(frozen=True, kw_only=True)
class Judging:
    """Judgement of a map on held-out rows. A task yields `queries` and passes the releases to `results`.

    Parameters
    ----------
    map : the calibrator; a constant here, as the rows that it was fitted to are other units.
    buckets : number of buckets, of equal width, of the calibration errors and the reliability curves.
    level : the confidence level of all intervals.

    Guarantee: the shares sum to 1, all of held-out rows. Without noise all results equal those of the pooled rows.
    Under noise the changes of single rows are bounded (`LOSS_BOUND`, `BRIER_BOUND`) and get most of the budget; where
    noise would hide before and after, by a public bound on the rows, all of it. Rows are assumed independent, for
    intervals.
    """

    map: LogitMap
    buckets: int = 15
    level: float = LEVEL

    def __post_init__(self) -> None:
        self._evaluation()  # refuses bad values before any row is read

    def queries(self, setting: Setting) -> tuple[Query[Any], ...]:
        """Return the queries of the changes and of before and after: three, or one, for one round trip."""
        noisy = self._noisy_changes(setting)
        statistics = ClassStatistics(classes=self.map.width, bins=self.buckets)
        if setting.noise(_sum(noisy, PAIRED)).variance == 0:
            return _sum(self._changes, PAIRED), *self._before_and_after(statistics)
        statistics = replace(statistics, bits=_bits(setting, 1), digits=1, most_rows=_rows(setting))
        before, after = self._before_and_after(statistics)
        bound = setting.protection.rows_per_client
        deviation = math.sqrt(setting.noise(before).variance) / 2**statistics.bits
        if bound is not None and bound * setting.clients < WORTH * deviation:
            return (_sum(noisy, 1.0),)
        return _sum(noisy, PAIRED), before, after

    @property
    def _changes(self) -> MapChanges:
        return MapChanges(classes=self.map.width, kind=self.map.kind, theta=tuple(self.map.theta.tolist()))

    def _noisy_changes(self, setting: Setting) -> MapChanges:
        return replace(
            self._changes,
            loss_bound=LOSS_BOUND,
            brier_bound=BRIER_BOUND,
            moments=2,
            bits=_bits(setting, 2),
            digits=1,
            most_rows=_rows(setting),
        )

    def _before_and_after(self, before: ClassStatistics) -> tuple[Sum[Any], Sum[Any]]:
        after = replace(before, kind=self._changes.kind, theta=self._changes.theta)
        return _sum(before, (1 - PAIRED) / 2), _sum(after, (1 - PAIRED) / 2)

    def results(self, released: tuple[Released[Any], ...]) -> dict[str, Any]:
        """Return the part of the results of a calibration about the held-out rows, as plain JSON."""
        changes, *both = released
        paired = Paired(totals=changes.value, noise=changes.noise)
        differences = paired.differences(level=self.level)
        judged = verdict(differences, paired)
        evaluated = [self._evaluation().results(one, None) for one in both] or [self._unseen()] * 2
        shown = self._shown(*evaluated)
        return {
            "recommended": judged.recommended,
            "reason": judged.reason,
            **shown,
            "difference": {name: metric.to_json() for name, metric in differences.items()},
            "rows": max(0.0, paired.rows),
            "notes": self._notes(paired, shown["classes"]),
        }

    def _evaluation(self) -> EvaluateMulticlass:
        return EvaluateMulticlass(classes=self.map.width, buckets=self.buckets, height=0, level=self.level)

    def _unseen(self) -> dict[str, Any]:
        """Return the results of an evaluation of rows that were not asked for."""
        nothing = undefined(_NOT_ASKED, level=self.level).to_json()
        return {
            **dict.fromkeys(METRICS, nothing),
            "reliability_curve": ReliabilityLists(bins=self.buckets, level=self.level).to_json(
                reason=_NOT_ASKED
            ),
            "classes": [{"rows": None, "calibration_error": nothing}] * self.map.width,
        }

    def _shown(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
        metrics = [{name: one[name] for name in METRICS} for one in (before, after)]
        if self.map.keeps_order:
            metrics[1]["accuracy"] = before["accuracy"]  # the same number: noise must not make two of it
        return {
            "before": metrics[0],
            "after": metrics[1],
            "reliability_curve": {"before": before["reliability_curve"], "after": after["reliability_curve"]},
            "classes": [
                {
                    "class": place,
                    "rows": old["rows"],
                    "before": old["calibration_error"],
                    "after": new["calibration_error"],
                }
                for place, (old, new) in enumerate(zip(before["classes"], after["classes"], strict=True))
            ],
        }

    def _notes(self, paired: Paired, classes: list[dict[str, Any]]) -> list[str]:
        if paired.noise.variance == 0:
            return _missing([str(one["class"]) for one in classes if one["rows"] == 0], paired.rows)
        bounds = paired.totals.changes
        note = (
            f"Under privacy noise the change of a held-out row counts at most {bounds['loss'].bound:g} in the log loss "
            f"and {bounds['brier'].bound:g} in the Brier score: what few rows lose beyond that is not seen."
        )
        asked = any(one["rows"] is not None for one in classes)
        return [note] if asked else [note, f"Metrics before and after were {_NOT_ASKED}."]


def _sum(of: Summary[Any], share: float) -> Sum[Any]:
    return Sum(of=of, share=share, part=Part.HELD_OUT)


def _rows(setting: Setting) -> int:
    """Return the largest number of rows of one client."""
    return setting.protection.rows_per_client or LARGEST_ROWS_PER_CLIENT


def _bits(setting: Setting, weight: int) -> int:
    """Return the bits of the only digit under noise: as fine as totals over all clients allow.

    A row weighs up to `weight`.
    """
    room = TOTAL_BITS - (_rows(setting) * weight * setting.clients).bit_length()
    return max(2, min(MOST_BITS, room))


def _missing(classes: list[str], rows: float) -> list[str]:
    """Name the classes that no held-out row has."""
    if not classes or rows <= 0:
        return []
    if len(classes) == 1:
        return [f"Class {classes[0]}: no held-out row has it."]
    more = ", .." if len(classes) > 20 else ""
    return [f"{len(classes)} classes ({', '.join(classes[:20])}{more}): no held-out row has them."]
