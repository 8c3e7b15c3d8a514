"""Public knowledge that a simulation looks up where the user has not stated it, each with a warning.

In a release all of it has to be stated: which groups there are, between which numbers scores lie and how many rows
clients have are facts about somebody's rows.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fedassay.api.terms import EntryTerms, Roles
from fedassay.data.federation import Federation, load
from fedassay.data.findings import listed
from fedassay.data.inventory import group_names
from fedassay.data.partition import Partition
from fedassay.data.wide import looks_like_probabilities
from fedassay.errors import DataError
from fedassay.estimation.coverage import scores_needed
from fedassay.protocol.vocabulary import Setting
from fedassay.summaries.quantities import QUANTITIES, public_range, scores_of
from fedassay.tasks.conformal import Conformal

_RELEASE = "In a release it must be stated, because it is information about the rows."


def likely(setting: Setting, client: str | Partition | None) -> Setting:
    """The setting that a rehearsal can know: each row may be a client of its own; rows may still be looked up."""
    protection = (
        setting.protection if client is not None else setting.trust.with_one_row_each(setting.protection)
    )
    if protection.rows_per_client is None and setting.trust.private:
        protection = replace(protection, rows_per_client=2)  # any number but one, which would be another case
    return replace(setting, protection=protection)


def stand_in(task: Conformal) -> Conformal:
    """The task with something in the place of what is looked up later."""
    if QUANTITIES[task.sets].is_softmax and task.classes is None:
        task = replace(task, classes=2, conditional=task.conditional or "none")
    return task if task.score_range else replace(task, score_range=(0.0, 1.0))


def completed(
    task: Conformal, terms: EntryTerms, data: Any, columns: Roles, *, by: str | None
) -> tuple[Conformal, EntryTerms, Federation, tuple[str, ...]]:
    """The task and terms with all that they need, the rows, and what was looked up; groups in the column `by`."""
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
    """Refuse a federation that has too few rows in all for the coverage, whatever the method."""
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
    """How many classes there are, and whether the first rows look like probabilities."""
    for batch in federation.pooled().batches():
        logits = np.asarray(batch["logits"])
        return int(logits.shape[1]), looks_like_probabilities(logits)
    raise DataError("logits: got no rows, expected at least one.")


def _range(task: Conformal, federation: Federation) -> tuple[float, float]:
    """The range that everyone knows, and where nobody does, that of the data, widened to round numbers."""
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
    """Without the digits that rounding has added."""
    return float(f"{number:.12g}")
