"""What a first study can ask: tasks that its columns allow, and that its trust model answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fedassay.data.federation import load
from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.run import rehearse
from fedassay.study.file import StudyFile
from fedassay.study.first import Draft
from fedassay.summaries.quantities import QUANTITIES, scores_of
from fedassay.tasks.card import KINDS


def tasks_of(columns: Mapping[str, str]) -> tuple[str, ...]:
    """The tasks that these columns allow.

    Examples
    --------
    >>> tasks_of({"target": "y", "prediction": "p"})
    ('conformal',)
    """
    fitting = (
        card.asked_as
        for card in KINDS.values()
        if KINDS[card.asked_as].in_first_study
        and any(roles <= columns.keys() for roles in card.study_rules.column_sets())
    )
    possible = tuple(dict.fromkeys(fitting))
    if not possible:
        raise UsageError(
            f"columns: got the roles {', '.join(columns)}, which no task can do with alone; expected score and label, "
            "class and logits, target and prediction, value, or features and target."
        )
    return possible


def parameters_of(
    tasks: tuple[str, ...],
    source: Any,
    columns: Mapping[str, str],
    *,
    level: float | None,
    classes: int | None,
) -> dict[str, dict[str, Any]]:
    """Entries that tasks cannot do without: the coverage, and public ranges, for which the first rows are looked at."""
    found = {
        task: KINDS[task].study_rules.first_entries(columns, level, classes, partial(_range, source, columns))
        for task in tasks
    }
    return {task: entries for task, entries in found.items() if entries}


def _range(source: Any, columns: Mapping[str, str], quantity: str) -> list[float]:
    """A range with room for twice as much as the first rows have, in round numbers."""
    roles = {role: columns[role] for role in QUANTITIES[quantity].columns}
    batch = next(iter(load(source, columns=roles).pooled().batches()))
    scores = scores_of(batch, quantity, ())
    low, high = float(scores.min()), float(scores.max())
    room = (high - low) / 2 or max(abs(high), 1.0)
    known = QUANTITIES[quantity].lower
    return [_rounded(low - room, math.floor) if known is None else known, _rounded(high + room, math.ceil)]


def _rounded(number: float, how: Any) -> float:
    """To two digits, downwards or upwards."""
    if number == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(number))) - 1)
    return float(f"{how(number / step) * step:.6g}")


def affordable(
    draft: Draft, out: Path, profile: Mapping[str, Any], *, insist: bool
) -> tuple[Draft, dict[str, str]]:
    """The draft without tasks that its trust model does not answer, and why not; raises if they were insisted on.

    A public number of rows per client is added where that is all that is missing.
    """
    kept, refused = draft, _refused(draft, out, profile)
    if refused and "largest_client" in profile:
        bounded = replace(draft, rows_per_client=int(profile["largest_client"]))
        again = _refused(bounded, out, profile)
        if len(again) < len(refused):
            kept, refused = bounded, again
    remaining = tuple(task for task in kept.tasks if task not in refused)
    if refused and (insist or not remaining):
        raise UnsupportedQuery(next(iter(refused.values())))
    return replace(kept, tasks=remaining), refused


def _refused(draft: Draft, out: Path, profile: Mapping[str, Any]) -> dict[str, str]:
    study = StudyFile.parse(draft.text(), out)
    known = {
        task.name: {"classes": profile.get("classes", 2)}
        for task in study.tasks
        if "classes" in task.looked_up
    }
    features = {task.name: {"features": ["x"]} for task in study.tasks if "features" in task.looked_up}
    found = {}
    for job in study.agenda(known={**known, **features}).jobs(study.setting(int(profile.get("clients", 0)))):
        try:
            rehearse(job.task, job.setting)
        except (UnsupportedQuery, UsageError) as error:
            found[job.name] = str(error)
    return found
