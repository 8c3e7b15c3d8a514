"""Displays of the curves of a binary classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import altair as alt

from fedassay.documents import curves
from fedassay.reports.displays.base import Display, numbers
from fedassay.reports.displays.source import Wanted


@dataclass(frozen=True, kw_only=True, repr=False)
class _CurveDisplay(Display):
    """A curve with a simultaneous band."""

    @property
    def curve(self) -> Mapping[str, Any]:
        """The entry of the results."""
        entry: Mapping[str, Any] = self.results[self.wanted.entry]
        return entry

    @property
    def thresholds(self) -> tuple[float | None, ...]:
        """The threshold of each point; None where no finite one excludes every score."""
        return numbers(self.curve, "thresholds")

    @property
    def lower(self) -> tuple[float, ...]:
        """The lower end of the band."""
        return numbers(self.curve, "lower")

    @property
    def upper(self) -> tuple[float, ...]:
        """The upper end of the band."""
        return numbers(self.curve, "upper")

    @property
    def level(self) -> float:
        """The confidence level of the band, for the whole curve at once."""
        return float(self.curve["level"])


@dataclass(frozen=True, kw_only=True, repr=False)
class RocCurveDisplay(_CurveDisplay):
    """The ROC curve of an evaluation, or of a distribution function by class, with its band.

    Attributes: `fpr`, `tpr`, `thresholds`, `lower`, `upper` (of the true positive rate), `level`, `roc_auc`.
    """

    wanted: ClassVar[Wanted] = Wanted(what="ROC curve", entry="roc_curve", tasks=("evaluate", "ecdf"))

    def _main(self) -> Mapping[str, Any]:
        return {"roc_auc": self.roc_auc, "interval": self.results["roc_auc"].get("interval")}

    @property
    def fpr(self) -> tuple[float, ...]:
        """False positive rates."""
        return numbers(self.curve, "fpr")

    @property
    def tpr(self) -> tuple[float, ...]:
        """True positive rates."""
        return numbers(self.curve, "tpr")

    @property
    def roc_auc(self) -> float | None:
        """The area under the curve."""
        return _value(self.results["roc_auc"])

    def draw(self) -> alt.LayerChart:
        """The curve, its band, and the diagonal."""
        return curves.roc(self.results)

    @property
    def alternative(self) -> str:
        """The plot in words."""
        return curves.roc_alternative(self.results)


@dataclass(frozen=True, kw_only=True, repr=False)
class PrecisionRecallDisplay(_CurveDisplay):
    """The precision-recall curve of an evaluation with its band, and the prevalence.

    Attributes: `precision`, `recall`, `thresholds`, `lower`, `upper` (of the precision), `level`,
    `average_precision`, `prevalence`.
    """

    wanted: ClassVar[Wanted] = Wanted(
        what="precision-recall curve", entry="precision_recall_curve", tasks=("evaluate",)
    )

    def _main(self) -> Mapping[str, Any]:
        metric = self.results["average_precision"]
        return {"average_precision": metric["value"], "interval": metric.get("interval")}

    @property
    def precision(self) -> tuple[float, ...]:
        """Precisions."""
        return numbers(self.curve, "precision")

    @property
    def recall(self) -> tuple[float, ...]:
        """Recalls."""
        return numbers(self.curve, "recall")

    @property
    def average_precision(self) -> float | None:
        """The area under the curve, as scikit-learn computes it."""
        return _value(self.results["average_precision"])

    @property
    def prevalence(self) -> float | None:
        """The share of positives: the precision of a model that knows nothing."""
        return _value(self.results["prevalence"])

    def draw(self) -> alt.LayerChart:
        """The curve, its band, and the prevalence."""
        return curves.precision_recall(self.results)

    @property
    def alternative(self) -> str:
        """The plot in words."""
        return curves.precision_recall_alternative(self.results)


@dataclass(frozen=True, kw_only=True, repr=False)
class NetBenefitDisplay(_CurveDisplay):
    """The net benefit of an evaluation over thresholds with its band, and that of treating all or none.

    Attributes: `thresholds`, `net_benefit`, `treat_all`, `lower`, `upper` (of the net benefit), `level`.

    Reference: Vickers and Elkin (2006), Decision curve analysis.
    """

    wanted: ClassVar[Wanted] = Wanted(
        what="net benefit curve", entry="net_benefit_curve", tasks=("evaluate",)
    )

    @property
    def net_benefit(self) -> tuple[float, ...]:
        """The net benefit of the model at each threshold."""
        return numbers(self.curve, "net_benefit")

    def _main(self) -> Mapping[str, Any]:
        known = [one for one in self.net_benefit if one is not None]
        return {"largest_net_benefit": float(max(known)) if known else None}

    @property
    def treat_all(self) -> tuple[float, ...]:
        """The net benefit of treating everyone; that of treating no one is 0."""
        return numbers(self.curve, "treat_all")

    def draw(self) -> alt.LayerChart:
        """Three curves, and the band of the model's."""
        return curves.net_benefit(self.results)

    @property
    def alternative(self) -> str:
        """The plot in words."""
        return curves.net_benefit_alternative(self.results)


def _value(metric: Mapping[str, Any]) -> float | None:
    value: float | None = metric["value"]
    return value
