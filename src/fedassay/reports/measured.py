"""Every number of a result with its interval, under a name: for programs that keep numbers. Reads only the JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedassay.documents.sheet import Document
from fedassay.reports.contents import card_of
from fedassay.reports.study import parts
from fedassay.tasks.card import KINDS

Results = Mapping[str, Any]

_BLOCKS = {
    "": "",
    "before": "before calibration",
    "after": "after calibration",
    "difference": "change by calibration",
    "held_out": "on held-out rows",
}
"""The parts of results that hold metrics by name, and what they are called."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One number: `task` is the name in the study (the kind of a single task), `block` where in its results it stands.

    `at` is the threshold that it belongs to, or the share of rows below a quantile. Without an interval `lower` and
    `upper` are None; so is an end that is infinite.

    Examples
    --------
    >>> one = Measured(task="evaluate", kind="evaluate", name="recall", value=0.8, lower=0.7, upper=0.9, level=0.95,
    ...                at=0.1)
    >>> one.key, one.title
    ('evaluate.recall_at_0.1', 'recall (sensitivity) at 0.1')
    """

    task: str
    kind: str
    name: str
    value: float
    lower: float | None = None
    upper: float | None = None
    level: float | None = None
    block: str = ""
    at: float | None = None

    @property
    def key(self) -> str:
        """A name for programs; no two numbers of a result have the same."""
        at = "" if self.at is None else f"_at_{self.at:.12g}"
        return ".".join(part for part in (self.task, self.block, f"{self.name}{at}") if part)

    @property
    def title(self) -> str:
        """A name for people, within the task."""
        record = KINDS[self.kind].document.load().metrics.get(self.name)
        title = self.name.replace("_", " ") if record is None else record.title
        at = "" if self.at is None else f" at {self.at:g}"
        return f"{title}{at}" + (f", {_BLOCKS[self.block]}" if self.block else "")


def measured(document: Document) -> Iterator[Measured]:
    """All numbers that have a value, in the order of the report."""
    for part in parts(document):
        results, found = part.document["results"], card_of(part.document).name
        named = {"task": part.name or found, "kind": found}
        yield from _metrics(results, named)
        yield from _at_thresholds(results.get("thresholds"), named)
        yield from _listed(results, named)


def _metrics(results: Results, named: Mapping[str, str]) -> Iterator[Measured]:
    # At the top level of an evaluation, what needs a threshold is that of the first one: it comes with it below.
    skipped: Results = next(iter(results.get("thresholds") or ()), {})
    vacuous = KINDS[named["kind"]].document.load()().is_vacuous(results)
    for block in _BLOCKS:
        if block == "held_out" and vacuous:  # noise around what is known anyway
            continue
        found = results.get(block) if block else results
        if not isinstance(found, Mapping):
            continue
        for name, metric in found.items():
            if _is_metric(metric) and not (block == "" and name in skipped):
                yield _one(metric, named, name=name, block=block)


def _at_thresholds(thresholds: Sequence[Results] | None, named: Mapping[str, str]) -> Iterator[Measured]:
    seen: set[float] = set()
    for row in thresholds or ():
        if row["threshold"] not in seen:
            seen.add(row["threshold"])
            for name, metric in row.items():
                if _is_metric(metric):
                    yield _one(metric, named, name=name, at=row["threshold"])


def _listed(results: Results, named: Mapping[str, str]) -> Iterator[Measured]:
    """Coefficients, quantiles, thresholds of prediction sets, and the p-value of a test."""
    for entry in results.get("coefficients") or ():
        if _is_metric(entry):
            yield _one(entry, named, name=f"coefficient_{entry['name']}")
    for entry in results.get("quantiles") or ():
        if _is_metric(entry):
            yield _one(entry, named, name="quantile", at=entry["quantile"])
    for name, metric in KINDS[named["kind"]].document.load()().held_out_metrics(results).items():
        if _is_metric(metric):
            yield _one(metric, named, name=name, block="held_out")
    for name, threshold in KINDS[named["kind"]].document.load()().thresholds(results).items():
        if isinstance(threshold, int | float):
            yield _one({"value": threshold}, named, name=name)
    p_value = (results.get("hosmer_lemeshow") or {}).get("p_value")
    if p_value is not None:
        yield _one({"value": p_value}, named, name="hosmer_lemeshow_p_value")


def _is_metric(metric: object) -> bool:
    return isinstance(metric, Mapping) and "interval" in metric and metric.get("value") is not None


def _one(metric: Results, named: Mapping[str, str], **where: Any) -> Measured:
    lower, upper = metric.get("interval") or (None, None)
    where = {**named, **where}
    return Measured(value=metric["value"], lower=lower, upper=upper, level=metric.get("level"), **where)
