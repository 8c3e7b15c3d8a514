"""The `parameters` of a study's result, from its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedassay.planning import Expectation, PlannedStudy
from fedassay.study.file import StudyFile


def described(file: StudyFile) -> dict[str, Any]:
    """The `parameters` of a study's result: what its file says, but for what stands elsewhere in the result."""
    data = None
    if file.data is not None:
        given = {
            name: getattr(file.data, name) for name in ("path", "query", "client", "partition", "clients")
        }
        given["missing"] = None if file.data.missing == "refuse" else file.data.missing
        data = {name: value for name, value in given.items() if value is not None}
        data["path"] = _public_path(file.data.path)
    return {
        "study": file.name,
        "title": file.title,
        "model": file.model,
        "data": data,
        "columns": {} if file.data is None else dict(file.data.columns),
        "split": {"holdout": file.holdout} if file.simulated else None,
        "seed": getattr(file.runtime, "seed", None),
        "rows_per_client": file.protection.rows_per_client,
        "training": None if file.training is None else asdict(file.training),
        "expected": None if file.expected is None else dict(file.expected),
    }


def _public_path(path: str) -> str:
    """Without the password of a database, and without the folders of whoever ran it."""
    if "://" in path:
        scheme, _, rest = path.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2]}"
    return Path(path).name


# --- a study file as the planner sees it --------------------------------------------------------------------


def planned_study(file: StudyFile, expected: Mapping[str, Any] | None = None) -> PlannedStudy:
    """The terms of a study and what it expects of the data; `expected` goes before what the file says."""
    return PlannedStudy(
        expectation=Expectation.of({**(file.expected or {}), **(expected or {})}),
        trust=file.trust,
        budget=file.budget,
        protection=file.protection,
        holdout=file.holdout,
    )
