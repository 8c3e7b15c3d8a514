"""What other methods would have done, on the same held-out rows: for whoever simulates, and may see all rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.api.terms import Terms
from fedassay.coverage.law import CoverageLaw, split_rank
from fedassay.data.federation import load
from fedassay.data.schema import Columns
from fedassay.data.split import select_part
from fedassay.protocol import Batch, Part
from fedassay.summaries.quantities import QUANTITIES, scores_of, widths
from fedassay.summaries.softmax_scores import sets
from fedassay.tasks.conformal import Conformal
from fedassay.tasks.conformal.found import law_to_json

Floats = NDArray[np.float64]

TEXTS = {
    "pooled": "split conformal prediction on all rows in one place, which nobody may have",
    "average": "the mean of the clients' own quantiles (FedCP-Avg), which promises nothing",
    "local": "each client alone, for its own rows",
}


def compared(
    results: Mapping[str, Any], task: Conformal, terms: Terms, data: Any, columns: Columns
) -> list[dict[str, Any]]:
    """Threshold, coverage and mean size on held-out rows, of what was found and of each baseline."""
    federation = load(data, client=columns.client, columns=columns.names)
    simulation, unit = terms.simulation, terms.protection.unit
    key = simulation.key_of_split()

    def part(name: str, which: Part) -> list[Batch]:
        rows = select_part(
            federation.rows_of(name), which, key=key, unit=unit, client=name, held_out=simulation.held_out
        )
        return list(rows.batches())

    fit = [_scores(task, part(name, Part.FIT)) for name in federation.clients]
    judging = [part(name, Part.HELD_OUT) for name in federation.clients]
    own = [_split(scores, task.level) for scores in fit]
    finite = [number for number in own if math.isfinite(number)]
    found = results["threshold"]
    thresholds: dict[str, list[float]] = {
        "pooled": [_split(np.concatenate(fit), task.level)] * len(fit),
        "average": [math.fsum(finite) / len(finite) if finite else math.inf] * len(fit),
        "local": own,
    }
    if results["method"] != "local":
        thresholds = {"found": [math.inf if found is None else float(found)] * len(fit), **thresholds}
    law = _law(sum(len(scores) for scores in fit), task.level)
    return [
        _entry(task, name, at, judging, results, law if name == "pooled" else None)
        for name, at in thresholds.items()
    ]


def _scores(task: Conformal, batches: list[Batch]) -> Floats:
    found = [scores_of(batch, task.quantity, task.parameters) for batch in batches]
    return np.concatenate(found) if found else np.empty(0)


def _split(scores: Floats, level: float) -> float:
    """The threshold of split conformal prediction."""
    rank = split_rank(len(scores), level)
    return float(np.partition(scores, rank - 1)[rank - 1]) if 1 <= rank <= len(scores) else math.inf


def _law(rows: int, level: float) -> dict[str, Any] | None:
    """What split conformal prediction would cover."""
    rank = split_rank(rows, level)
    if not 1 <= rank <= rows:
        return None
    return law_to_json(CoverageLaw(clients=1, rows=rows, local_rank=rank, server_rank=1), exact=True)


def _entry(
    task: Conformal,
    name: str,
    thresholds: list[float],
    judging: list[list[Batch]],
    results: Mapping[str, Any],
    law: dict[str, Any] | None,
) -> dict[str, Any]:
    rows, covered, sizes = 0, 0, 0.0
    for threshold, batches in zip(thresholds, judging, strict=True):
        for batch in batches:
            scores = scores_of(batch, task.quantity, task.parameters)
            rows += len(scores)
            covered += int((scores <= threshold).sum())
            sizes += _sizes(task, batch, threshold)
    one = thresholds[0] if name != "local" else None
    return {
        "method": results["method"] if name == "found" else name,
        "found": name == "found",
        "threshold": one if one is not None and math.isfinite(one) else None,
        "coverage": covered / rows if rows else None,
        "mean_size": sizes / rows if rows and math.isfinite(sizes) else None,
        "text": "what was found" if name == "found" else TEXTS[name],
        "coverage_law": law,
    }


def _sizes(task: Conformal, batch: Batch, threshold: float) -> float:
    """The sizes of the sets of these rows, added up; NaN where sets have none."""
    if QUANTITIES[task.quantity].is_softmax:
        return float(np.count_nonzero(sets(batch["logits"], threshold, task.quantity, task.parameters)))
    if task.quantity in ("conformity", "value"):
        return math.nan
    if math.isinf(threshold):
        return math.inf
    if task.quantity == "absolute":
        return 2 * threshold * len(batch["target"])
    return float(widths(batch, task.quantity, threshold).sum())
