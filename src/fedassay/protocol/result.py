"""The result of a run as one JSON document: what every report, schema and later check reads."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedassay.errors import UsageError
from fedassay.protocol.files import write_atomically
from fedassay.protocol.vocabulary import Setting
from fedassay.version import VERSION

STUDY = "study"
"""The task of a result that holds those of several."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Result(Mapping[str, Any]):
    """Everything that a run says, in the order of the public contract.

    `results` belongs to the task; the rest is the same for all tasks. As a mapping, a result is its `results`:
    ``"roc_auc" in result``, ``list(result)``, ``dict(result)``. Reports are made from `to_dict()` alone.
    """

    task: str
    parameters: Mapping[str, Any]
    results: Mapping[str, Any]
    privacy: Mapping[str, Any]
    cohort: Mapping[str, Any]
    runtime: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    fedassay: str = VERSION

    def __getitem__(self, name: str) -> Any:
        """A metric or curve of the task by its name, such as ``result["roc_auc"]``.

        A study has tasks: ``result.task_result("evaluate")["roc_auc"]``.
        """
        try:
            return self.results[name]
        except KeyError:
            raise KeyError(self._where(name)) from None

    def __iter__(self) -> Iterator[str]:
        """The names of the task's metrics and curves."""
        return iter(self.results)

    def __len__(self) -> int:
        """The number of metrics and curves."""
        return len(self.results)

    def __repr__(self) -> str:
        """Name the result; its numbers are in `results`."""
        named = {"study": self.parameters["study"]} if self.task == STUDY else {}
        about = {
            "task": self.task,
            **named,
            "trust_model": self.privacy["trust_model"],
            "clients": self.cohort["clients"],
        }
        return f"Result({', '.join(f'{name}={value!r}' for name, value in about.items())})"

    def task_result(self, name: str) -> Result:
        """The result of one task of a study, as if it had been asked alone.

        Privacy, cohort, runtime and warnings are those of the whole study: epsilon is that of all tasks together.
        """
        if self.task != STUDY:
            raise UsageError(f"task {name!r}: the result is that of one task, {self.task}; use it as it is.")
        tasks = self.results["tasks"]
        if name not in tasks:
            raise UsageError(
                f"task {name!r}: the study has no such task, expected one of {', '.join(tasks)}."
            )
        entry = tasks[name]
        columns = self.parameters.get("columns") or {}
        return replace(
            self,
            task=entry["task"],
            parameters={**columns, **entry["parameters"]},
            results=entry["results"],
        )

    def _where(self, name: str) -> str:
        """The error about an entry that is missing; of a study, with the tasks that have it."""
        tasks = self.results.get("tasks", {}) if self.task == STUDY else {}
        if name in tasks:
            return f'{name}: it is a task of the study, see result.task_result("{name}")'
        holders = [task for task, entry in tasks.items() if name in entry["results"]]
        if holders:
            places = " or ".join(f'result["tasks"]["{task}"]["results"]["{name}"]' for task in holders)
            return (
                f'{name}: the result is that of a study; see {places}, or result.task_result("{holders[0]}")'
            )
        return (
            f"{name}: the result of {self.task} has no such entry, expected one of {', '.join(self.results)}"
        )

    @classmethod
    def from_json(cls, text: str) -> Result:
        """Read the text that `to_json` wrote, in this process or another."""
        content: dict[str, Any] = json.loads(text)
        return cls(**{**content, "warnings": tuple(content["warnings"])})

    def to_dict(self) -> dict[str, Any]:
        """The document as plain Python objects."""
        return {**asdict(self), "warnings": list(self.warnings)}

    def to_json(self) -> str:
        """The document as text. Not-a-number never appears: an undefined metric is null with a reason."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(content, indent=2, allow_nan=False) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the document; the file is complete or it is not there."""
        write_atomically(Path(path), self.to_json())


def describe_privacy(setting: Setting, *, simulated: bool) -> dict[str, Any]:
    """The `privacy` part of a result."""
    budget, protection = setting.budget, setting.protection
    statement = setting.trust.statement(setting)
    if simulated:
        statement += (
            " This run was a simulation: one process held all rows, so the statement describes what a "
            "release with the same settings would guarantee; what only the simulating process can know "
            "(rows left out, warnings about the data, a comparison with other methods) would not be in a release."
        )
    return {
        "trust_model": setting.trust.name,
        "unit": str(protection.unit),
        "neighbours": str(protection.neighbours),
        "epsilon": None if budget is None else budget.epsilon,
        "delta": None if budget is None else budget.delta,
        "simulated": simulated,
        "statement": statement,
    }


def describe_cohort(
    *,
    rows: float | None,
    asked: int,
    answered: int,
    truncated: int | None,
    missing: int | None = None,
    openings: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The `cohort` part of a result. A simulation alone knows `truncated`; `rows` is None where results do not tell.

    `missing` counts the rows that were left out as a value is missing; None where such rows are an error.

    `openings` say of each total of a release who opened it, and with which signature (`Journal.openings`).
    """
    return {
        "clients": answered,
        "dropped": asked - answered if answered else 0,  # without any answer no question was sent
        "truncated": truncated,
        **({} if missing is None else {"missing": missing}),
        "rows": None if rows is None else max(0, rows),  # noise can take an estimate below
        **({"openings": list(openings)} if openings else {}),
    }
