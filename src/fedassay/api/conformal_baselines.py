"""What other methods would have done, on the same held-out rows: for whoever simulates, and may see all rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.api.terms import EntryTerms
from fedassay.data.federation import Federation
from fedassay.data.schema import CLIENT
from fedassay.data.split import select_pooled_part
from fedassay.estimation.coverage.law import CoverageLaw, split_rank
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Batch, Part, Rows
from fedassay.summaries.quantities import QUANTITIES, scores_of, sets_of, widths
from fedassay.tasks.conformal import Conformal
from fedassay.tasks.conformal.threshold import law_to_json

TEXTS = {
    "found": "what was found",
    "pooled": "split conformal prediction on all rows in one place, which no party may have",
    "average": "the mean of the clients' own quantiles (FedCP-Avg), which promises nothing",
    "local": "each client alone, for its own rows",
}


def compared(
    results: Mapping[str, Any], task: Conformal, terms: EntryTerms, federation: Federation
) -> list[dict[str, Any]]:
    """Threshold, coverage and mean size on held-out rows, of what was found and of each baseline."""
    fit, held_out = _parts(federation, terms)
    scores, ends = _by_client(task, fit, federation.client_count)
    own = np.array([_split(one, task.level) for one in np.split(scores, ends[:-1])])
    finite = own[np.isfinite(own)]
    everyone: dict[str, float | None] = {
        "found": math.inf if results["threshold"] is None else float(results["threshold"]),
        "pooled": _split(np.sort(scores), task.level),
        "average": float(finite.mean()) if finite.size else math.inf,
    }
    if results["method"] == "local":
        del everyone["found"]
    limits = {name: np.full(len(own), one) for name, one in everyone.items()} | {"local": own}
    tallies = {name: _Tally() for name in limits}
    for batch in held_out.batches():
        found = scores_of(batch, task.sets, task.score_parameters)
        for name, tally in tallies.items():
            at = limits[name][batch[CLIENT]]
            tally.rows += len(found)
            tally.covered += int((found <= at).sum())
            tally.sizes += _sizes(task, batch, at)
    return [
        {
            "method": results["method"] if name == "found" else name,
            "found": name == "found",
            "threshold": one if (one := everyone.get(name)) is not None and math.isfinite(one) else None,
            "coverage": tally.covered / tally.rows if tally.rows else None,
            "mean_size": tally.sizes / tally.rows if tally.rows and math.isfinite(tally.sizes) else None,
            "text": TEXTS[name],
            "coverage_law": _law(len(scores), task.level) if name == "pooled" else None,
        }
        for name, tally in tallies.items()
    ]


@dataclass
class _Tally:
    """Held-out rows so far: how many, how many covered, and the sizes of their sets added up."""

    rows: int = 0
    covered: int = 0
    sizes: float = 0.0


def _parts(federation: Federation, terms: EntryTerms) -> tuple[Rows, Rows]:
    """The rows that thresholds come from and those that were held out, split as they were in the run."""
    protection, simulation = terms.protection, terms.simulation
    if federation.one_row_each:
        protection = terms.trust.with_one_row_each(protection)
    fit, held_out = (
        select_pooled_part(
            federation,
            which,
            key=simulation.key_of_split(),
            unit=protection.unit,
            holdout=simulation.holdout,
        ).by_client
        for which in (Part.FIT, Part.HELD_OUT)
    )
    return fit, held_out


def _by_client(task: Conformal, rows: Rows, clients: int) -> tuple[Floats, NDArray[np.int64]]:
    """All scores, client after client and increasing within each, and where each client's end."""
    batches = [
        (scores_of(batch, task.sets, task.score_parameters), batch[CLIENT]) for batch in rows.batches()
    ]
    if not batches:
        return np.empty(0), np.zeros(clients, dtype=np.int64)
    scores, owner = (np.concatenate(column) for column in zip(*batches, strict=True))
    return scores[np.lexsort((scores, owner))], np.cumsum(np.bincount(owner, minlength=clients))


def _split(increasing: Floats, level: float) -> float:
    """The threshold of split conformal prediction."""
    rank = split_rank(len(increasing), level)
    return float(increasing[rank - 1]) if 1 <= rank <= len(increasing) else math.inf


def _law(rows: int, level: float) -> dict[str, Any] | None:
    """What split conformal prediction would cover."""
    rank = split_rank(rows, level)
    if not 1 <= rank <= rows:
        return None
    return law_to_json(CoverageLaw(clients=1, rows=rows, local_rank=rank, server_rank=1), exact=True)


def _sizes(task: Conformal, batch: Batch, thresholds: Floats) -> float:
    """The sizes of the sets of these rows, added up; NaN where sets have none, infinite where one holds everything."""
    if QUANTITIES[task.sets].gives_sets:
        return float(np.count_nonzero(sets_of(batch, thresholds[:, None], task.sets, task.score_parameters)))
    if task.sets in ("conformity", "value"):
        return math.nan
    if np.isinf(thresholds).any():
        return math.inf
    if task.sets == "absolute":
        return float(2 * thresholds.sum())
    return float(widths(batch, task.sets, thresholds).sum())
