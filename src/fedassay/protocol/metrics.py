"""Metrics: one record for each, which results, schema, pages, plans and the pooling of sites read.

A record stands in one file together with its estimator, so that a metric is added by adding a file: ours are the
modules of `fedassay.estimation.metrics`, those of other packages are found through the entry-point group
``fedassay.metrics``. This module has no estimator, and importing records imports no array library: pages are made from
a result's JSON and records alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fedassay.errors import UsageError
from fedassay.protocol.cards import Catalogue, Named

MetricPlace = Literal["rows", "threshold", "operating-point"]
"""Places of a metric in an evaluation: over all rows, at each given threshold, at each threshold from 0.01 to 0.99."""

Scale = Literal["identity", "logit", "log"]

_LONGEST = 16
"""Characters of a name that fit the first column of a plan."""


@dataclass(frozen=True, kw_only=True)
class MetricRecord:
    """Everything that pages, plans and schemas need to know of a metric.

    Parameters
    ----------
    name : in results, targets and files; that of scikit-learn where it has one.
    title : for people.
    sentence : what it says about a model, as an apposition to the title.
    order : place in results and tables.
    parts : of an evaluation that have it.
    estimate : pure function of an `Evidence`, or of a `Confusion` where there is a threshold, with the keyword `level`;
        or the place of one that imports arrays.
    short : title for narrow columns.
    range : least and largest value.
    target : half-width of the interval that most validations could live with; None where that depends on the question.
    scale : scale on which sites are pooled and compared; None where they are not.
    bucketed : whether the estimator takes the number of `buckets` of the evaluation.
    expected : estimator for counts that are expected instead of released, which have no noise in them: value, interval
        and both standard errors to expect. None where `estimate` serves.
    test : whether it is a test, with a p-value instead of an interval.
    headline : whether it stands among the key numbers, before any table.
    forest : whether a plot shows it for each site or group; it then has a scale.

    Examples
    --------
    >>> METRICS["calibration_slope"].title, METRICS["calibration_slope"].label, METRICS["recall"].label
    ('calibration slope', 'cal. slope', 'recall')
    """

    name: str
    title: str
    sentence: str
    order: int
    parts: tuple[MetricPlace, ...]
    estimate: Callable[..., Any] | Named[Callable[..., Any]]
    short: str = ""
    range: tuple[float, float] = (-math.inf, math.inf)
    target: float | None = None
    scale: Scale | None = None
    bucketed: bool = False
    expected: Callable[..., Any] | Named[Callable[..., Any]] | None = None
    test: bool = False
    headline: bool = False
    forest: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "short", self.short or self.title)
        if not (self.name.isidentifier() and self.name.islower()):
            raise UsageError(
                f"metric: got the name {self.name!r}, expected one like a lower-case Python name."
            )
        if not self.parts:
            raise UsageError(f"metric {self.name}: got no parts, expected where an evaluation has it.")
        if self.scale is not None and self.parts != ("rows",):
            raise UsageError(
                f"metric {self.name}: got a scale of pooling, expected it only for a metric over all rows."
            )
        if self.forest and self.scale is None:
            raise UsageError(
                f"metric {self.name}: got a forest plot, expected a scale on which sites are pooled."
            )

    @property
    def estimator(self) -> Callable[..., Any]:
        """The function that estimates it."""
        return _loaded(self.estimate)

    def of(self, counts: Any, *, level: float, buckets: int) -> Any:
        """Estimate it from an `Evidence` (a `Confusion` where there is a threshold)."""
        return self.estimator(counts, level=level, **self._options(buckets))

    def of_expected(self, counts: Any, *, level: float, buckets: int) -> Any:
        """Estimate it from counts that are expected instead of released."""
        return _loaded(self.expected or self.estimate)(counts, level=level, **self._options(buckets))

    def _options(self, buckets: int) -> dict[str, int]:
        return {"buckets": buckets} if self.bucketed else {}

    @property
    def label(self) -> str:
        """The name, for readers who type it; where that is too long for a table, the short title."""
        return self.name if len(self.name) <= _LONGEST else self.short

    @property
    def is_share(self) -> bool:
        """True if it is between 0 and 1, and can be told in percent."""
        return self.range == (0.0, 1.0)


def _loaded(function: Callable[..., Any] | Named[Callable[..., Any]]) -> Callable[..., Any]:
    return function.load() if isinstance(function, Named) else function


METRICS: Catalogue[MetricRecord] = Catalogue(
    "fedassay.metrics", ("fedassay.estimation.metrics.*",), what="metric"
)
"""Every metric of a binary classifier that is installed."""

CLASS_METRICS: Catalogue[MetricRecord] = Catalogue(
    "fedassay.class_metrics", ("fedassay.tasks.evaluation.class_records",), what="metric"
)
"""Every metric of a classifier with several classes that is installed."""


def of_part(part: MetricPlace) -> tuple[MetricRecord, ...]:
    """The metrics that this part of an evaluation has, in their order."""
    return tuple(record for record in METRICS.values() if part in record.parts)


def compared() -> tuple[str, ...]:
    """Names of the metrics that are compared between sites and groups."""
    return tuple(record.name for record in METRICS.values() if record.scale is not None)


def planned() -> dict[str, float | None]:
    """The metrics that plans predict, all of a result that have an interval, with their usual targets."""
    records = (record for record in METRICS.values() if {"rows", "threshold"} & set(record.parts))
    return {record.name: record.target for record in records if not record.test}


def targets() -> dict[str, float]:
    """The usual target of each metric that has one."""
    return {record.name: record.target for record in METRICS.values() if record.target is not None}
