"""What users of prediction sets have to know before they rely on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedassay.estimation.coverage import scores_needed
from fedassay.summaries.grouped_histogram import OTHER
from fedassay.tasks.conformal.conformal import Conformal

MOST_NAMED = 5


def warnings_about(results: Mapping[str, Any], task: Conformal) -> tuple[str, ...]:
    """Sentences for users of these sets: who has too few rows, which sets hold everything, how sites differ."""
    found = []
    needed = scores_needed(task.level, confidence=task.request.confidence)
    alone = results["method"] == "local"
    small = [
        f"{one['site']} ({one['rows']:,})"
        for one in results.get("sites") or ()
        if 0 < one["rows"] < (needed if alone else one["rank"])
    ]
    if small:
        found.append(
            f"Too few rows for a quantile of their own at this level: {', '.join(small[:10])}"
            f"{' and others' if len(small) > 10 else ''}; {needed} would be enough. "
            + (
                "They are left out of the mean."
                if results["method"] == "average"
                else "They count as infinite."
            )
        )
    differences = results.get("heterogeneity")
    if differences is not None and differences["alarming"]:
        found.append(differences["text"])
    if results["infinite"]:
        found.append(f"The set holds everything: {results['reason']}.")
    parts = results.get("groups") or {}
    empty = [name for name, one in parts.items() if one["rows"] == 0 and name != OTHER]
    if empty:
        found.append(
            f"No row is in the {task.condition} {_listed(empty)}, of which nothing can be said"
            + ("; rows with other names count as other." if task.condition == "group" else ".")
        )
    full = [name for name, one in parts.items() if one["infinite"] and one["rows"]]
    if full:
        found.append(
            f"The sets of the {task.condition} {_listed(full)} hold everything: {parts[full[0]]['reason']}."
        )
    return tuple(found)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:MOST_NAMED])
    return shown if len(names) <= MOST_NAMED else f"{shown} and {len(names) - MOST_NAMED} more"
