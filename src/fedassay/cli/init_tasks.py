"""What a first study can ask: tasks that its columns allow, and that its trust model answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedassay.data.federation import load
from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.run import rehearse
from fedassay.study.file import StudyFile
from fedassay.study.first import Draft
from fedassay.summaries.quantities import QUANTITIES, scores_of

_NEEDS: Mapping[str, tuple[frozenset[str], ...]] = {
    "evaluate": (frozenset({"score", "label"}), frozenset({"class", "logits"})),
    "calibrate": (frozenset({"score", "label"}), frozenset({"class", "logits"})),
    "conformal": tuple(frozenset(one.columns) for name, one in QUANTITIES.items() if name != "value"),
    "ecdf": (frozenset({"value"}),),
    "infer": (frozenset({"features", "target"}),),
}
"""Tasks of a first study, and the roles of which one set has to be there."""


def tasks_of(columns: Mapping[str, str]) -> tuple[str, ...]:
    """The tasks that these columns allow.

    Examples
    --------
    >>> tasks_of({"target": "y", "prediction": "p"})
    ('conformal',)
    """
    possible = tuple(task for task, sets in _NEEDS.items() if any(roles <= columns.keys() for roles in sets))
    if not possible:
        raise UsageError(
            f"columns: got the roles {', '.join(columns)}, which no task can do with alone; expected score and label, "
            "class and logits, target and prediction, value, or features and target."
        )
    return possible


def parameters_of(
    tasks: tuple[str, ...], source: Any, columns: Mapping[str, str], *, level: float | None
) -> dict[str, dict[str, Any]]:
    """Entries that tasks cannot do without: the coverage, and public ranges, for which the first rows are looked at."""
    found: dict[str, dict[str, Any]] = {}
    if "conformal" in tasks:
        found["conformal"] = {"level": 0.9 if level is None else level}
        quantity = _measured(columns)
        if quantity is not None:
            found["conformal"]["score_range"] = _range(source, columns, quantity)
    if "ecdf" in tasks:
        low, high = _range(source, columns, "value")
        found["ecdf"] = {"lower": low, "upper": high}
    return found


def _measured(columns: Mapping[str, str]) -> str | None:
    """The conformity score of these columns, if nobody can know its range."""
    for name in ("conformity", "cqr", "normalised", "absolute"):
        if columns.keys() >= set(QUANTITIES[name].columns):
            return name
    return None


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
