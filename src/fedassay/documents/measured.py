"""Numbers of a result with intervals, under names, for programs that store numbers. Reads only the JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedassay.documents.blocks import Document
from fedassay.documents.kind import KINDS
from fedassay.documents.report import TaskSection, sections

_BLOCKS = {
    "": "",
    "before": "before calibration",
    "after": "after calibration",
    "difference": "change by calibration",
    "held_out": "on held-out rows",
}
"""Parts of results that hold metrics by name, and their titles."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Number of a result: `task` is the name in the study (the kind of a single task), `block` the part of its results.

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
        """Name for programs, unique within a result."""
        at = "" if self.at is None else f"_at_{self.at:.12g}"
        return ".".join(part for part in (self.task, self.block, f"{self.name}{at}") if part)

    @property
    def title(self) -> str:
        """Name for readers, within the task."""
        record = KINDS[self.kind].document.load().metrics.get(self.name)
        title = self.name.replace("_", " ") if record is None else record.title
        at = "" if self.at is None else f" at {self.at:g}"
        return f"{title}{at}" + (f", {_BLOCKS[self.block]}" if self.block else "")


def measured(document: Document) -> Iterator[Measured]:
    """Yield all numbers that have a value, in the order of the report."""
    for section in sections(document):
        kind = section.card.name
        for metric, where in _metrics(section):
            if isinstance(metric, Mapping) and "interval" in metric and metric.get("value") is not None:
                lower, upper = metric["interval"] or (None, None)
                where |= {"lower": lower, "upper": upper, "level": metric.get("level")}
                yield Measured(task=section.name or kind, kind=kind, value=metric["value"], **where)


def _metrics(section: TaskSection) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield all entries that may be metrics, with name and place."""
    results, kind = section.results, section.kind
    listed = list(kind.listed_metrics(results))
    # A metric in a list also stands at the top level, for the first entry of the list: the list below yields it.
    skipped = {name for name, _, _ in listed}
    for block in _BLOCKS:
        found = results.get(block) if block else results
        if not isinstance(found, Mapping) or (block == "held_out" and kind.is_vacuous(results)):
            continue  # for sets that hold everything, held-out rows show noise around known values
        for name, metric in found.items():
            if block or name not in skipped:
                yield metric, {"name": name, "block": block}
    yield from ((metric, {"name": name, "at": at}) for name, at, metric in listed)
    for name, metric in kind.held_out_metrics(results).items():
        yield metric, {"name": name, "block": "held_out"}
    for name, value in kind.plain_numbers(results).items():
        if isinstance(value, int | float):
            yield {"value": value, "interval": None}, {"name": name}
