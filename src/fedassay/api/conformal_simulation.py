"""Steps that only a simulation of prediction sets can take, because it may see all rows: look-ups and comparisons.

Public knowledge that the user has not stated is looked up, each with a warning. In a release all of it has to be
stated: the names of groups, the range of scores and the numbers of rows of clients are facts about the rows of persons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.api.terms import EntryTerms, Roles
from fedassay.data.federation import Federation, load
from fedassay.data.findings import listed
from fedassay.data.inventory import group_names
from fedassay.data.partition import Partition
from fedassay.data.schema import CLIENT
from fedassay.data.selection import select_pooled_part
from fedassay.data.wide import looks_like_probabilities
from fedassay.errors import DataError
from fedassay.estimation.coverage import scores_needed
from fedassay.estimation.coverage.law import CoverageLaw, split_rank
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Batch, Part, Rows, Setting
from fedassay.summaries.quantities import QUANTITIES, public_range, scores_of, sets_of, widths
from fedassay.tasks.conformal import Conformal
from fedassay.tasks.conformal.threshold import law_to_json

_RELEASE = "In a release it must be stated, because it is information about the rows."


def likely(setting: Setting, client: str | Partition | None) -> Setting:
    """Return the setting that a rehearsal can know: each row may be a client; rows may still be looked up."""
    protection = (
        setting.protection if client is not None else setting.trust.with_one_row_each(setting.protection)
    )
    if protection.rows_per_client is None and setting.trust.private:
        protection = replace(protection, rows_per_client=2)  # any number but 1, which would be another case
    return replace(setting, protection=protection)


def stand_in(task: Conformal) -> Conformal:
    """Return the task with placeholders for values that are looked up later."""
    if QUANTITIES[task.sets].is_softmax and task.classes is None:
        task = replace(task, classes=2, conditional=task.conditional or "none")
    return task if task.score_range else replace(task, score_range=(0.0, 1.0))


def completed(
    task: Conformal, terms: EntryTerms, data: Any, columns: Roles, *, by: str | None
) -> tuple[Conformal, EntryTerms, Federation, tuple[str, ...]]:
    """Return the completed task and terms, the rows, and warnings about looked-up values; groups are in column `by`."""
    warnings: list[str] = []
    if by is not None:
        found = group_names(data, by)
        task = replace(task, groups=found)
        given = " ".join(f"--group {name}" for name in found[:5])
        warnings.append(
            f"The groups were taken from the data ({listed(list(found), most=5)}). In a release they must be stated, "
            f"because they are information about the rows. Give {given}{' ..' if len(found) > 5 else ''}."
        )
    federation = load(data, client=columns.client, columns=columns.names)
    check_rows(task, federation, part=1 - task.holdout)
    if QUANTITIES[task.sets].is_softmax:
        width, suspicious = _width(federation)
        if suspicious:
            warnings.append(
                "The logits look like probabilities: all are at least 0 and each row adds up to 1. Scores of them mean "
                "something else; give logits, or the logarithms of the probabilities."
            )
        task = replace(task, classes=width, groups=() if task.condition == "class" else task.groups)
    setting = replace(terms.setting, clients=federation.client_count)
    if federation.one_row_each:
        setting = replace(setting, protection=setting.trust.with_one_row_each(setting.protection))
    if setting.protection.rows_per_client is None and task.chooses(setting):
        most_have = np.sort(federation.rows_per_client)[federation.client_count // 4]
        fewest = max(1, math.floor(int(most_have) * (1 - task.holdout)))
        terms = replace(terms, protection=replace(terms.protection, rows_per_client=fewest))
        warnings.append(
            f"Every client uses {fewest:,} rows, as many as three quarters of them have{_held(task.holdout)}; smaller "
            f"ones count as if what they lack were infinite. This was taken from the data. {_RELEASE} Give "
            "--rows-per-client."
        )
    if task.needs_range(setting):
        low, high = _range(task, federation)
        task = replace(task, score_range=(low, high))
        warnings.append(
            f"The range of the scores, {low:g} to {high:g}, was taken from the data. {_RELEASE} Give --score-range "
            f"{low:g},{high:g}, or a wider one."
        )
    elif (task.score_range or task.bins is not None) and task.sees_scores(setting):
        warnings.append("Scores are seen as they are, so that neither bins nor their range are used.")
    return task, terms, federation, tuple(warnings)


def check_rows(task: Conformal, federation: Federation, *, part: float) -> None:
    """Refuse a federation that has too few rows in all for the coverage with any method."""
    needed = scores_needed(task.level, confidence=task.request.confidence)
    rows = int(federation.rows_per_client.sum() * part)
    if rows >= needed or task.method == "average":
        return
    clients = [
        f"{name} ({count})"
        for name, count in zip(federation.clients[:5], federation.rows_per_client[:5], strict=True)
    ]
    more = " and others" if federation.client_count > 5 else ""
    raise DataError(
        f"coverage {task.level:g}: the clients have {rows} rows together, expected at least {needed}; with fewer only "
        f"a set of everything covers so much; add rows to {', '.join(clients)}{more}, or lower the level."
    )


def _held(holdout: float) -> str:
    return f" beside the {holdout:.0%} that are held out" if holdout else ""


def _width(federation: Federation) -> tuple[int, bool]:
    """Return the number of classes, and whether the first rows look like probabilities."""
    for batch in federation.pooled().batches():
        logits = np.asarray(batch["logits"])
        return int(logits.shape[1]), looks_like_probabilities(logits)
    raise DataError("logits: got no rows, expected at least one.")


def _range(task: Conformal, federation: Federation) -> tuple[float, float]:
    """Return the public range, with unknown ends from the data, widened to round numbers."""
    low, high = public_range(task.sets, task.score_parameters, classes=task.classes)
    smallest, largest = math.inf, -math.inf
    for batch in federation.pooled().batches():
        scores = scores_of(batch, task.sets, task.score_parameters)
        if scores.size:
            smallest, largest = min(smallest, float(scores.min())), max(largest, float(scores.max()))
    step = 10.0 ** (math.floor(math.log10(max(largest - smallest, abs(largest), 1e-300))) - 1)
    low = math.floor(smallest / step) * step if low is None else low
    high = math.ceil(largest / step) * step if high is None else high
    return _tidy(low), _tidy(high if high > low else low + step)


def _tidy(number: float) -> float:
    """Remove the digits that rounding has added."""
    return float(f"{number:.12g}")


# --- comparison with other methods, on the same held-out rows ------------------------------------------------

TEXTS = {
    "found": "what was found",
    "pooled": "split conformal prediction on all rows in one place, which no party may have",
    "average": "the mean of the clients' own quantiles (FedCP-Avg), which promises nothing",
    "local": "each client alone, for its own rows",
}


def compared(
    results: Mapping[str, Any], task: Conformal, terms: EntryTerms, federation: Federation
) -> list[dict[str, Any]]:
    """Return threshold, coverage and mean size on held-out rows, of the result and of each baseline."""
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
    """Held-out rows so far: their number, the number of covered rows, and the sum of the sizes of their sets."""

    rows: int = 0
    covered: int = 0
    sizes: float = 0.0


def _parts(federation: Federation, terms: EntryTerms) -> tuple[Rows, Rows]:
    """Return the rows for thresholds and the held-out rows, split as in the run."""
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
    """Return all scores, by client and increasing within each, and the end of each client's scores."""
    batches = [
        (scores_of(batch, task.sets, task.score_parameters), batch[CLIENT]) for batch in rows.batches()
    ]
    if not batches:
        return np.empty(0), np.zeros(clients, dtype=np.int64)
    scores, owner = (np.concatenate(column) for column in zip(*batches, strict=True))
    return scores[np.lexsort((scores, owner))], np.cumsum(np.bincount(owner, minlength=clients))


def _split(increasing: Floats, level: float) -> float:
    """Return the threshold of split conformal prediction."""
    rank = split_rank(len(increasing), level)
    return float(increasing[rank - 1]) if 1 <= rank <= len(increasing) else math.inf


def _law(rows: int, level: float) -> dict[str, Any] | None:
    """Return the coverage law of split conformal prediction."""
    rank = split_rank(rows, level)
    if not 1 <= rank <= rows:
        return None
    return law_to_json(CoverageLaw(clients=1, rows=rows, local_rank=rank, server_rank=1), exact=True)


def _sizes(task: Conformal, batch: Batch, thresholds: Floats) -> float:
    """Return the sum of the sizes of the sets of rows; NaN if sets have no size, infinite if a set holds everything."""
    if QUANTITIES[task.sets].gives_sets:
        return float(np.count_nonzero(sets_of(batch, thresholds[:, None], task.sets, task.score_parameters)))
    if task.sets in ("conformity", "value"):
        return math.nan
    if np.isinf(thresholds).any():
        return math.inf
    if task.sets == "absolute":
        return float(2 * thresholds.sum())
    return float(widths(batch, task.sets, thresholds).sum())
