"""The reference of metrics, made from their records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from fedassay.protocol.metrics import CLASS_METRICS, METRICS, MetricPlace, MetricRecord

_WHERE: Mapping[MetricPlace, str] = {
    "rows": "all rows",
    "threshold": "each threshold",
    "operating-point": "0.01 to 0.99",
}

_HEAD = """# Metrics

Generated from the code (`make docs`). Names are those of results (`result["roc_auc"]`), of the targets of a plan
(`--target roc_auc=0.01`) and, where it has one, of scikit-learn. *Target* is the half-width of an interval that counts
as short enough in a plan where no other is given; plans leave metrics without one out. *Sites* is the scale on which
sites are pooled (`--per-site`); metrics without one are not compared between sites. Formulas and intervals:
[evaluation](../explanation/evaluation.md) and [several classes](../explanation/multiclass-evaluation.md).
"""


def metrics_page() -> str:
    """Every metric with what it says, where it is found, its range, its usual target and its scale of pooling."""
    lines = [
        _HEAD,
        "## Two classes",
        "",
        *_table(METRICS.values()),
        "",
        "## Several classes",
        "",
        *_table(CLASS_METRICS.values()),
        "",
        "A package of your own can add metrics: see [contributing](../contributing.md).",
    ]
    return "\n".join(lines) + "\n"


def _table(records: Iterable[MetricRecord]) -> list[str]:
    head = ["name", "title", "what it says", "for", "range", "target", "sites"]
    return [_row(head), _row(["---"] * len(head)), *(_row(_cells(record)) for record in records)]


def _cells(record: MetricRecord) -> list[str]:
    low, high = record.range
    return [
        f"`{record.name}`",
        record.title if record.short == record.title else f"{record.title}; short: {record.short}",
        record.sentence,
        ", ".join(_WHERE[part] for part in record.parts),
        "any" if math.isinf(low) else f"from {low:g}" if math.isinf(high) else f"{low:g} to {high:g}",
        "" if record.target is None else f"{record.target:g}",
        record.scale or "",
    ]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
