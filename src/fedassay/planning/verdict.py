"""Enough data, not enough, or not decidable: predicted intervals against the widths one can live with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fedassay.errors import UsageError
from fedassay.estimation.metric import Metric


class Verdict(StrEnum):
    """Whether the data are enough for a metric."""

    ENOUGH = "enough data"
    NOT_ENOUGH = "not enough"
    UNDECIDABLE = "not decidable"


def judged(target: float, widths: Sequence[float]) -> Verdict:
    """Enough (not enough) if the width is at most (above) the target under every assumption.

    If the assumptions disagree, they decide, not the data: nobody can know beforehand.
    """
    short = [width <= target for width in widths]
    if all(short):
        return Verdict.ENOUGH
    return Verdict.UNDECIDABLE if any(short) else Verdict.NOT_ENOUGH


def half_width(metric: Metric) -> float:
    """Half the length of the interval to expect; infinite for a metric that will have no value."""
    if metric.interval is None:
        return math.inf
    return (metric.interval[1] - metric.interval[0]) / 2


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A metric as predicted, and whether its interval will be short enough.

    Parameters
    ----------
    metric : value, errors and interval to expect under the assumptions.
    target : the half-width that is short enough.
    varied : the half-widths if the assumptions are mistaken in the ways of `Expectation.varied`.

    Examples
    --------
    >>> metric = Metric(value=0.8, interval=(0.78, 0.82), level=0.95, sampling=0.01, privacy=0, discretisation=0)
    >>> str(Predicted(metric=metric, target=0.03, varied=(0.018, 0.025)).verdict)
    'enough data'
    >>> str(Predicted(metric=metric, target=0.03, varied=(0.018, 0.035)).verdict)
    'not decidable'
    """

    metric: Metric
    target: float
    varied: tuple[float, ...] = ()

    @property
    def half_width(self) -> float:
        """Half the length of the interval to expect."""
        return half_width(self.metric)

    @property
    def verdict(self) -> Verdict:
        """By `judged`."""
        return judged(self.target, (self.half_width, *self.varied))

    def to_dict(self) -> dict[str, Any]:
        """As in a result, with what planning adds."""
        widths = [width for width in (self.half_width, *self.varied) if math.isfinite(width)]
        return {
            **self.metric.to_json(),
            "half_width": self.half_width if math.isfinite(self.half_width) else None,
            "half_width_range": [min(widths), max(widths)]
            if widths and len(widths) == 1 + len(self.varied)
            else None,
            "target": self.target,
            "verdict": str(self.verdict),
        }


def checked_targets(targets: Mapping[str, float], known: Mapping[str, float]) -> dict[str, float]:
    """Targets by name, all of them known and above zero."""
    for name, width in targets.items():
        if name not in known:
            raise UsageError(f"target: got {name!r}, expected one of {', '.join(known)}.")
        if not 0 < width < math.inf:
            raise UsageError(f"target {name}: got {width:g}, expected a number above 0.")
    return dict(targets)


def in_words(verdicts: Mapping[str, Verdict]) -> str:
    """All verdicts in one line.

    Examples
    --------
    >>> in_words({"roc_auc": Verdict.NOT_ENOUGH, "f1": Verdict.ENOUGH})
    'Enough data for f1; not enough data for roc_auc.'
    """
    by: dict[Verdict, list[str]] = {verdict: [] for verdict in Verdict}
    for name, verdict in verdicts.items():
        by[verdict].append(name)
    if len(by[Verdict.ENOUGH]) == len(verdicts) > 2:
        return "Enough data for everything."
    parts = []
    if by[Verdict.ENOUGH]:
        parts.append(f"enough data for {_listed(by[Verdict.ENOUGH])}")
    if by[Verdict.NOT_ENOUGH]:
        parts.append(f"not enough data for {_listed(by[Verdict.NOT_ENOUGH])}")
    if by[Verdict.UNDECIDABLE]:
        parts.append(
            f"not decidable for {_listed(by[Verdict.UNDECIDABLE])}: it depends on the true prevalence and AUC"
        )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
