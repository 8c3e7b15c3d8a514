"""Displays of an evaluation and of calibration: ``RocCurveDisplay.from_result(result).save("roc.png")``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fedassay.documents import comparisons, curves, reliability
from fedassay.documents.blocks import CurveBlock
from fedassay.documents.display import (
    Display,
    DisplayedEntry,
    ResultSource,
    listed,
    number,
    section_of,
)
from fedassay.errors import UsageError


@dataclass(frozen=True, kw_only=True, repr=False)
class _CurveDisplay(Display):
    """A curve with a simultaneous band."""

    area: ClassVar[str] = ""
    """Metric that is the area under the curve; empty if there is none."""

    @property
    def curve(self) -> Mapping[str, Any]:
        """The entry of the results."""
        entry: Mapping[str, Any] = self.results[self.wanted.entry]
        return entry

    def _main(self) -> Mapping[str, Any]:
        metric = self.results[self.area]
        return {self.area: metric["value"], "interval": metric.get("interval")}

    thresholds = listed(
        "thresholds", "The threshold of each point; None where no finite one excludes every score."
    )
    lower = listed("lower", "The lower end of the band.")
    upper = listed("upper", "The upper end of the band.")

    @property
    def level(self) -> float:
        """The confidence level of the band, for the whole curve at once."""
        return float(self.curve["level"])


@dataclass(frozen=True, kw_only=True, repr=False)
class RocCurveDisplay(_CurveDisplay):
    """The ROC curve of an evaluation, or of a distribution function by class, with its band.

    Attributes: `fpr`, `tpr`, `thresholds`, `lower`, `upper` (of the true positive rate), `level`, `roc_auc`.
    """

    wanted = DisplayedEntry("ROC curve", "roc_curve", ("evaluate", "ecdf"))
    make = curves.roc
    area = "roc_auc"

    fpr = listed("fpr", "False positive rates.")
    tpr = listed("tpr", "True positive rates.")
    roc_auc = number("roc_auc", "value", "The area under the curve.")


@dataclass(frozen=True, kw_only=True, repr=False)
class PrecisionRecallDisplay(_CurveDisplay):
    """The precision-recall curve of an evaluation with its band, and the prevalence.

    Attributes: `precision`, `recall`, `thresholds`, `lower`, `upper` (of the precision), `level`,
    `average_precision`, `prevalence`.
    """

    wanted = DisplayedEntry("precision-recall curve", "precision_recall_curve", ("evaluate",))
    make = curves.precision_recall
    area = "average_precision"

    precision = listed("precision", "Precisions.")
    recall = listed("recall", "Recalls.")
    average_precision = number(
        "average_precision", "value", "The area under the curve, as scikit-learn computes it."
    )
    prevalence = number(
        "prevalence", "value", "The share of positives: the precision of a model that knows nothing."
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class NetBenefitDisplay(_CurveDisplay):
    """The net benefit of an evaluation over thresholds with its band, and that of treating all or none.

    Attributes: `thresholds`, `net_benefit`, `treat_all`, `lower`, `upper` (of the net benefit), `level`.

    Reference: Vickers and Elkin (2006), Decision curve analysis.
    """

    wanted = DisplayedEntry("net benefit curve", "net_benefit_curve", ("evaluate",))
    make = curves.net_benefit

    net_benefit = listed("net_benefit", "The net benefit of the model at each threshold.")
    treat_all = listed(
        "treat_all",
        "The net benefit of treating everyone; that of treating no one is 0.",
    )

    def _main(self) -> Mapping[str, Any]:
        known = [one for one in self.net_benefit if one is not None]
        return {"largest_net_benefit": float(max(known)) if known else None}


@dataclass(frozen=True, kw_only=True, repr=False)
class ReliabilityDisplay(Display):
    """The reliability diagram: of a calibration before and after on held-out rows, of an evaluation as it is.

    With several classes it is about the most probable one. Of a study that has both tasks, the calibration is shown.

    Attributes: `curves` (by part: ``before`` and ``after``, or ``all``; each with `mean_score`, `observed`, `lower`,
    `upper` and so on, or with a `reason`), and `expected_calibration_error` by part.
    """

    wanted = DisplayedEntry("reliability diagram", "reliability_curve", ("calibrate", "evaluate"))
    main = ("expected_calibration_error",)

    @property
    def curves(self) -> Mapping[str, Mapping[str, Any]]:
        """Available curves, by part."""
        entry: Mapping[str, Any] = self.results["reliability_curve"]
        if not self._changes:
            return {"all": entry}
        return {part: entry[part] for part in reliability.BEFORE_AFTER if entry[part]}

    @property
    def expected_calibration_error(self) -> Mapping[str, float | None]:
        """The calibration error of each part."""
        of_part = {part: self.results[part] if self._changes else self.results for part in self.curves}
        return {part: found["expected_calibration_error"]["value"] for part, found in of_part.items()}

    @property
    def _changes(self) -> bool:
        return set(reliability.BEFORE_AFTER) <= set(self.results["reliability_curve"])

    @property
    def block(self) -> CurveBlock:
        """Observed fractions over mean scores, with intervals, and the diagonal."""
        make = reliability.change if self._changes else reliability.reliability
        return make(self.results, name=f"Reliability ({self.task})" if self.task else "Reliability")


@dataclass(frozen=True, kw_only=True, repr=False)
class ScoreDistributionDisplay(Display):
    """How the scores of positives and of negatives are distributed, in an evaluation.

    Attributes: `edges` of the buckets, rows in them (`positives`, `negatives`), and `density` of each class.
    """

    wanted = DisplayedEntry("score distribution", "score_distribution", ("evaluate",))
    make = curves.score_distribution

    edges = listed("edges", "One more than there are buckets.")
    positives = listed("positives", "Positive rows in each bucket.")
    negatives = listed("negatives", "Negative rows in each bucket.")

    def _main(self) -> Mapping[str, Any]:
        return {name: float(sum(getattr(self, name))) for name in curves.CLASSES}

    @property
    def density(self) -> Mapping[str, tuple[float, ...]]:
        """Density of the scores that is drawn, by class; see `curves.densities`."""
        scores = self.results["score_distribution"]
        return {
            name: tuple(curves.densities(scores, name)) if scores["edges"] else () for name in curves.CLASSES
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class ForestDisplay(Display):
    """Three metrics of each site or group of an evaluation, with intervals; below them what all rows say.

    Attributes: `names` of the sites or groups, and `metrics`: by metric a list of their entries (`value`, `interval`).
    """

    wanted = DisplayedEntry("forest plot", "roc_auc", ("evaluate",))
    make = comparisons.forest

    @classmethod
    def from_result(cls, result: ResultSource, task: str | None = None) -> Self:
        """See `Display.from_result`; where sites cannot be seen, the error gives the reason."""
        section = section_of(result, task=task, wanted=cls.wanted)
        if not comparisons.is_compared(section.results):
            unasked = "neither sites nor groups were asked for; give per_site or by"
            why = section.results.get("sites_reason") or unasked
            raise UsageError(f"forest plot: the evaluation has none, because {why}.")
        return cls(results=section.results, task=section.name)

    def _main(self) -> Mapping[str, Any]:
        what, entries = comparisons.compared_entries(self.results)
        return {f"{what}s": len(entries)}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sites, or else of the groups."""
        what, entries = comparisons.compared_entries(self.results)
        return tuple(str(entry[what]) for entry in entries)

    @property
    def metrics(self) -> Mapping[str, tuple[Mapping[str, Any], ...]]:
        """The metrics that are drawn, in the order of `names`."""
        _, entries = comparisons.compared_entries(self.results)
        drawn = comparisons.forest_metrics(self.results)
        return {metric: tuple(entry[metric] for entry in entries) for metric in drawn}
