"""The task: calibration, losses, accuracy and ranking of a multiclass model, from sums and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedassay.errors import UsageError
from fedassay.protocol import Query, Released, Setting, Sum
from fedassay.summaries.multiclass.class_histograms import ClassHistograms
from fedassay.summaries.multiclass.class_statistics import MOST_BITS, ClassStatistics, ClassTotals
from fedassay.summaries.multiclass.probabilities import checked_classes
from fedassay.summaries.score_histogram import LabelledHistogram
from fedassay.summaries.tree import best_widths
from fedassay.tasks.evaluation import class_evidence
from fedassay.tasks.evaluation.class_evidence import ClassEvidence
from fedassay.tasks.evaluation.class_ranking import class_auc, macro_auc
from fedassay.tasks.evaluation.evaluate import NOISY_REACH
from fedassay.tasks.evaluation.evidence import Evidence
from fedassay.tasks.evaluation.lockstep import Flow
from fedassay.tasks.evaluation.metric import LEVEL, Metric, undefined

EXACT_HEIGHT = 10
NOISY_HEIGHT = 8
"""Bins of the rankings, 2^height for each class: without noise, and where each of them gets noise."""

MOST_NUMBERS = 1 << 17
"""Histograms of many classes get coarser bins instead of a longer vector."""

RANKING = 0.4
"""The share of the budget that the rankings get: a row touches as many of their counts as there are classes."""

_SIGNED = 62
"""Bits of a total that surely does not wrap, with some room for noise."""


@dataclass(frozen=True, kw_only=True)
class EvaluateMulticlass:
    """Every standard metric of a multiclass model, with intervals, from one round.

    Parameters
    ----------
    classes : how many there are; public, so it must be declared.
    bins : of the calibration errors and the reliability curve, of equal width.
    height : 2^height bins for the ranking of each class; 0 for no ranking, which leaves the budget to the rest. By
        default 10 without noise and 8 under noise, less for more than 64 classes.
    level : the confidence level of all intervals.

    Guarantee: everything returned is computed from two sums in one round, `ClassStatistics` and `ClassHistograms`, that
    share the budget. Rows are assumed independent, for intervals.

    Reference: Definition 3.3 of the paper for the classwise error; docs/explanation/multiclass-evaluation.md.
    """

    classes: int | None = None
    bins: int = 15
    height: int | None = None
    level: float = LEVEL

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise UsageError(f"level: got {self.level}, expected a number between 0 and 1, such as 0.95.")
        classes = 2 if self.classes is None else checked_classes(self.classes)
        ClassStatistics(classes=classes, bins=self.bins)
        if self.height is not None and self.height != 0:
            ClassHistograms(classes=classes, height=self.height)

    def steps(self, setting: Setting) -> Flow:
        """Ask for the sums and the histograms at once; the ``results`` object of the public contract."""
        if self.classes is None:
            raise UsageError("classes: got none, expected how many the model has; give --classes.")
        ranked = self.height != 0
        sums: Query[Any] = self._statistics(setting, share=1 - RANKING if ranked else 1.0)
        if not ranked:
            released = yield sums
            return self.results(released, None)
        answers = yield sums, self._histograms(self.classes, setting)
        return self.results(*answers)

    def _statistics(self, setting: Setting, *, share: float) -> Query[ClassTotals]:
        assert self.classes is not None
        exact = ClassStatistics(classes=self.classes, bins=self.bins)
        if setting.noise(Sum(of=exact, share=share)).variance == 0:
            return Sum(of=exact, share=share)
        # Under noise one digit: as fine as totals over so many clients allow.
        bits = max(2, min(MOST_BITS, _SIGNED - 32 - setting.clients.bit_length()))
        return Sum(of=replace(exact, bits=bits, digits=1), share=share)

    def _histograms(self, classes: int, setting: Setting) -> Query[tuple[LabelledHistogram, ...]]:
        exact = self._histogram(classes, EXACT_HEIGHT)
        if setting.noise(Sum(of=exact, share=RANKING)).variance == 0:
            return Sum(of=exact, share=RANKING)
        flat = replace(self._histogram(classes, NOISY_HEIGHT), reach=NOISY_REACH)

        def noise_of(levels: int) -> float:
            tall = replace(flat, widths=tuple(1 << level for level in range(levels)))
            return setting.noise(Sum(of=tall, share=RANKING)).variance

        return Sum(of=replace(flat, widths=best_widths(1 << flat.height, noise_of)), share=RANKING)

    def _histogram(self, classes: int, height: int) -> ClassHistograms:
        tallest = (MOST_NUMBERS // (2 * classes)).bit_length() - 1
        return ClassHistograms(classes=classes, height=self.height or min(height, tallest))

    def results(
        self, sums: Released[ClassTotals], histograms: Released[tuple[LabelledHistogram, ...]] | None
    ) -> dict[str, Any]:
        """All metrics of a release, as plain JSON."""
        evidence, level = ClassEvidence(totals=sums.value, noise=sums.noise), self.level
        places = range(sums.value.classes)
        aucs: Sequence[Metric] = [undefined("rankings were not asked for", level=level) for _ in places]
        macro = aucs[0]
        if histograms is not None:
            ranked = [Evidence.of(histogram, histograms.noise) for histogram in histograms.value]
            aucs = [class_auc(one, level=level) for one in ranked]
            macro = macro_auc(ranked, aucs, level=level)
        metrics = {name: estimate(evidence, level=level) for name, estimate in _METRICS.items()}
        return {
            **{name: metric.to_json() for name, metric in metrics.items()},
            "roc_auc": macro.to_json(),
            "rows": max(0.0, evidence.rows),
            "bins": sums.value.bins,
            "reliability_curve": class_evidence.reliability_curve(evidence, level=level),
            "classes": [self._class(evidence, place, aucs[place]) for place in places],
            "notes": _notes(aucs) if histograms is not None else [],
        }

    def _class(self, evidence: ClassEvidence, place: int, auc: Metric) -> dict[str, Any]:
        level = self.level
        return {
            "class": place,
            "rows": max(0.0, evidence.class_rows(place)),
            "prevalence": class_evidence.prevalence(evidence, place, level=level).to_json(),
            "roc_auc": auc.to_json(),
            "calibration_error": class_evidence.class_calibration_error(
                evidence, place, level=level
            ).to_json(),
        }


_METRICS = {
    "classwise_calibration_error": class_evidence.classwise_calibration_error,
    "expected_calibration_error": class_evidence.expected_calibration_error,
    "brier_score": class_evidence.brier_score,
    "log_loss": class_evidence.log_loss,
    "accuracy": class_evidence.accuracy,
}


def _notes(aucs: Sequence[Metric]) -> list[str]:
    """Which classes are not in the mean of the AUCs."""
    without = [str(place) for place, metric in enumerate(aucs) if metric.value is None]
    if not without:
        return []
    which = f"Class {without[0]} has" if len(without) == 1 else f"Classes {', '.join(without[:20])} have"
    if len(without) > 20:
        which = f"{len(without)} classes ({', '.join(without[:20])}, ..) have"
    reasons = sorted({metric.reason.split(":")[0] for metric in aucs if metric.reason is not None})
    return [
        f"{which} no AUC ({'; '.join(reasons)}) and {'is' if len(without) == 1 else 'are'} not in the mean."
    ]
