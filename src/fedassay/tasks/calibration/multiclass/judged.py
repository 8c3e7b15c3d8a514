"""What a multiclass calibrator does to held-out rows: metrics before and after, the changes, and a verdict.

One round trip. The changes are paired (`MapChanges`): both losses are of the same row. What the rows show before and
after (`ClassStatistics`, without and with the map) is asked beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from fedassay.estimation.metric import LEVEL, Metric, undefined
from fedassay.protocol import (
    LARGEST_ROWS_PER_CLIENT,
    TOTAL_BITS,
    Part,
    Query,
    Released,
    Setting,
    Sum,
    Summary,
)
from fedassay.summaries.multiclass.class_statistics import MOST_BITS, ClassStatistics, ClassTotals
from fedassay.summaries.multiclass.logit_map import LogitMap
from fedassay.summaries.multiclass.map_changes import MapChanges
from fedassay.tasks.calibration.multiclass.paired import (
    Paired,
    accuracy_change,
    brier_score_change,
    log_loss_change,
)
from fedassay.tasks.calibration.multiclass.verdict import verdict
from fedassay.tasks.evaluation.multiclass import EvaluateMulticlass

PAIRED = 0.7
"""The share of the changes, if the rest is asked too: a private judgement is about the verdict first."""

WORTH = 20.0
"""Standard deviations of noise that the rows must be able to amount to: below, shares of rows err by more than 5 %."""

LOSS_BOUND, BRIER_BOUND = 2.0, 1.0
"""What the change of a row counts at most under noise, which grows with them.

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
"""What is shown before and after."""

_DIFFERENCES: Mapping[str, Callable[..., Metric]] = MappingProxyType(
    {"log_loss": log_loss_change, "brier_score": brier_score_change, "accuracy": accuracy_change}
)

_NOT_ASKED = (
    "not asked for: they would drown in privacy noise even if all rows were held out; "
    "the budget goes to the comparison of before and after"
)


@dataclass(frozen=True, kw_only=True)
class Judging:
    """A map, judged on held-out rows. A task yields `queries` and hands what comes back to `results`.

    Parameters
    ----------
    map : the calibrator; a constant here, as the rows that it was fitted to are other units.
    buckets : of the calibration errors and the reliability curves, of equal width.
    level : the confidence level of all intervals.

    Guarantee: the shares sum to 1, all of held-out rows. Without noise everything equals what the pooled rows show.
    Under noise the changes of single rows are bounded (`LOSS_BOUND`, `BRIER_BOUND`) and get most of the budget; where a
    public bound on the rows says that before and after would drown, all of it. Rows are assumed independent, for
    intervals.
    """

    map: LogitMap
    buckets: int = 15
    level: float = LEVEL

    def __post_init__(self) -> None:
        self._evaluation()  # refuses bad values before any row is read

    def queries(self, setting: Setting) -> tuple[Query[Any], ...]:
        """The changes, and what rows show before and after: three queries, or one, for one round trip."""
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
        """Everything about the held-out rows that results of a calibration hold, as plain JSON."""
        changes, *both = released
        paired = Paired(totals=changes.value, noise=changes.noise)
        differences = {name: estimate(paired, level=self.level) for name, estimate in _DIFFERENCES.items()}
        judged = verdict(differences, paired)
        shown = self._shown(*both) if both else self._nothing_shown()
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

    def _shown(self, before: Released[ClassTotals], after: Released[ClassTotals]) -> dict[str, Any]:
        old, new = (self._evaluation().results(one, None) for one in (before, after))
        metrics = [{name: one[name] for name in METRICS} for one in (old, new)]
        if self.map.keeps_order:
            metrics[1]["accuracy"] = old["accuracy"]  # the same number: noise must not make two of it
        classes = [
            {
                "class": a["class"],
                "rows": a["rows"],
                "before": a["calibration_error"],
                "after": b["calibration_error"],
            }
            for a, b in zip(old["classes"], new["classes"], strict=True)
        ]
        return {
            "before": metrics[0],
            "after": metrics[1],
            "reliability_curve": {"before": old["reliability_curve"], "after": new["reliability_curve"]},
            "classes": classes,
        }

    def _nothing_shown(self) -> dict[str, Any]:
        nothing = undefined(_NOT_ASKED, level=self.level).to_json()
        names = ("edges", "mean_score", "observed", "share", "lower", "upper")
        curve = {**{name: [] for name in names}, "level": self.level, "reason": _NOT_ASKED}
        return {
            "before": dict.fromkeys(METRICS, nothing),
            "after": dict.fromkeys(METRICS, nothing),
            "reliability_curve": {"before": curve, "after": curve},
            "classes": [
                {"class": place, "rows": None, "before": nothing, "after": nothing}
                for place in range(self.map.width)
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
    """The most that one client can have."""
    return setting.protection.rows_per_client or LARGEST_ROWS_PER_CLIENT


def _bits(setting: Setting, weight: int) -> int:
    """Of the only digit under noise: as fine as totals over so many clients allow, a row weighing up to this much."""
    room = TOTAL_BITS - (_rows(setting) * weight * setting.clients).bit_length()
    return max(2, min(MOST_BITS, room))


def _missing(classes: list[str], rows: float) -> list[str]:
    """Which classes no held-out row has."""
    if not classes or rows <= 0:
        return []
    if len(classes) == 1:
        return [f"Class {classes[0]}: no held-out row has it."]
    more = ", .." if len(classes) > 20 else ""
    return [f"{len(classes)} classes ({', '.join(classes[:20])}{more}): no held-out row has them."]
