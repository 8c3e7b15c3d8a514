"""A study file as the planner sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedassay.planning import Expectation, PlannedStudy
from fedassay.study.file import StudyFile


def planned_study(file: StudyFile, expected: Mapping[str, Any] | None = None) -> PlannedStudy:
    """The terms of a study and what it expects of the data; `expected` goes before what the file says."""
    return PlannedStudy(
        expectation=Expectation.of({**(file.expected or {}), **(expected or {})}),
        trust=file.trust,
        budget=file.budget,
        protection=file.protection,
        holdout=file.holdout,
    )
