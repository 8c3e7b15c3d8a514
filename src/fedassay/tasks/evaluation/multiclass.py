"""Multiclass evaluation task: calibration, losses, accuracy and ranking, from sums and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedassay.errors import ParameterError
from fedassay.estimation.least_squares import best_widths
from fedassay.estimation.metric import Metric, undefined
from fedassay.protocol.metrics import CLASS_METRICS
from fedassay.protocol.vocabulary import TOTAL_BITS, Query, Released, Setting, Sum
from fedassay.summaries.multiclass.class_statistics import MOST_BITS, ClassStatistics, ClassTotals
from fedassay.summaries.multiclass.histograms import ClassHistograms
from fedassay.summaries.score_histogram import LabelledHistogram
from fedassay.tasks.evaluation import class_evidence
from fedassay.tasks.evaluation.accuracy import level_noise
from fedassay.tasks.evaluation.class_evidence import NO_RANKINGS, ClassEvidence, class_auc
from fedassay.tasks.evaluation.comparisons import Flow
from fedassay.tasks.evaluation.evaluate import NOISY_REACH
from fedassay.tasks.evaluation.parameters import EvaluateMulticlassParameters

# --- the task -----------------------------------------------------------------------------------------------

EXACT_HEIGHT = 10
NOISY_HEIGHT = 8
"""Heights of the rankings, of 2^height bins for each class: without noise, and where each bin gets it."""

MOST_NUMBERS = 1 << 17
"""Length of a vector above which histograms of many classes get coarser bins."""

RANKING = 0.4
"""Share of the budget that the rankings get: a row touches as many of their counts as there are classes."""


@dataclass(frozen=True, kw_only=True)
class EvaluateMulticlass(EvaluateMulticlassParameters):
    """Every standard metric of a multiclass model, with intervals, from one round.

    Buckets have equal width. Without rankings (height 0) the budget is left to the rest; for more than 64 classes the
    default height is less.

    Guarantee: everything returned is computed from two sums in one round, `ClassStatistics` and `ClassHistograms`, that
    share the budget. Rows are assumed independent, for intervals.

    Reference: Definition 3.3 of the paper for the classwise error; docs/explanation/multiclass-evaluation.md.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.height:
            ClassHistograms(classes=self.classes or 2, height=self.height)

    def steps(self, setting: Setting) -> Flow:
        """Ask for the sums and the histograms at once; return ``results`` of the public contract."""
        if self.classes is None:
            raise ParameterError(
                "classes", "got none, expected the number of classes of the model; give `classes`."
            )
        ranked = self.height != 0
        sums: Query[Any] = self._statistics(setting, share=1 - RANKING if ranked else 1.0)
        if not ranked:
            released = yield sums
            return self.results(released, None)
        answers = yield sums, self._histograms(self.classes, setting)
        return self.results(*answers)

    def _statistics(self, setting: Setting, *, share: float) -> Query[ClassTotals]:
        assert self.classes is not None
        exact = ClassStatistics(classes=self.classes, bins=self.buckets)
        if setting.noise(Sum(of=exact, share=share)).variance == 0:
            return Sum(of=exact, share=share)
        # Under noise one digit: as fine as totals over this number of clients allow.
        bits = max(2, min(MOST_BITS, TOTAL_BITS - 32 - setting.clients.bit_length()))
        return Sum(of=replace(exact, bits=bits, digits=1), share=share)

    def _histograms(self, classes: int, setting: Setting) -> Query[tuple[LabelledHistogram, ...]]:
        exact = self._histogram(classes, EXACT_HEIGHT)
        if setting.noise(Sum(of=exact, share=RANKING)).variance == 0:
            return Sum(of=exact, share=RANKING)
        flat = replace(self._histogram(classes, NOISY_HEIGHT), reach=NOISY_REACH)

        def query(widths: tuple[int, ...]) -> Sum[tuple[LabelledHistogram, ...]]:
            return Sum(of=replace(flat, widths=widths), share=RANKING)

        return query(best_widths(1 << flat.height, level_noise(setting, query)))

    def _histogram(self, classes: int, height: int) -> ClassHistograms:
        tallest = (MOST_NUMBERS // (2 * classes)).bit_length() - 1
        return ClassHistograms(classes=classes, height=self.height or min(height, tallest))

    def results(
        self, sums: Released[ClassTotals], histograms: Released[tuple[LabelledHistogram, ...]] | None
    ) -> dict[str, Any]:
        """Return all metrics of a release, as plain JSON."""
        level, places = self.level, range(sums.value.classes)
        evidence = ClassEvidence(totals=sums.value, noise=sums.noise)
        if histograms is None:
            aucs: Sequence[Metric] = [undefined(NO_RANKINGS, level=level) for _ in places]
        else:
            ranked = [histogram.evidence(histograms.noise) for histogram in histograms.value]
            aucs = [class_auc(one, level=level) for one in ranked]
            evidence = replace(evidence, rankings=ranked, aucs=aucs)
        return {
            **{
                record.name: record.estimator(evidence, level=level).to_json()
                for record in CLASS_METRICS.values()
            },
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


def _notes(aucs: Sequence[Metric]) -> list[str]:
    """Name the classes that are not in the mean of the AUCs."""
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
