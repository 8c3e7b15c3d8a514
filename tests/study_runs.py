"""Studies that really run, small: rows, files, and a look at what clients were asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from fedassay.api.study import conduct, run_study
from fedassay.kernel.journal import FileJournal, Journal
from fedassay.kernel.run import Errand
from fedassay.privacy.amplification import cost_of
from fedassay.privacy.ledger.charges import Charge, compose
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import ATOMS, Part, Plan
from fedassay.runtimes.in_process.runtime import Aggregate
from fedassay.runtimes.messaging import MessagingRuntime
from fedassay.runtimes.simulated import Progress
from fedassay.study.file import StudyFile
from fedassay.study.folder import JOURNAL, prepare

ROWS = "rows.csv"
LEDGER = "ledger.sqlite"

Sections = Mapping[str, Mapping[str, Any]]


def rows(clients: int = 5, each: int = 30, seed: int = 1) -> pd.DataFrame:
    """Rows of a model that is too sure of itself, and two features for a regression."""
    rng, n = np.random.default_rng(seed), clients * each
    odds = rng.normal(size=n)
    label = (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(int)
    return pd.DataFrame(
        {
            "site": [f"s{place % clients}" for place in range(n)],
            "p": 1 / (1 + np.exp(-3 * odds)),
            "y": label,
            "v": rng.random(n),
            "a": odds + rng.normal(size=n),
            "b": rng.normal(size=n),
            "t": odds + rng.normal(size=n),
        }
    )


COLUMNS: dict[str, dict[str, str]] = {
    "evaluate": {"score": "p", "label": "y"},
    "calibrate": {"score": "p", "label": "y"},
    "conformal": {"score": "p", "label": "y"},
    "hosmer-lemeshow": {"score": "p", "label": "y"},
    "ecdf": {"value": "v"},
    "quantiles": {"value": "v"},
    "infer": {"features": "a,b", "target": "t"},
}
"""The columns that each kind of task needs."""


def study_text(
    tasks: Mapping[str, Mapping[str, Any]], sections: Sections | None = None, *, name: str = "small"
) -> str:
    """The text of a study over `ROWS` with the columns that its tasks need."""
    columns = {
        role: column
        for task, given in tasks.items()
        for role, column in COLUMNS[given.get("task", task)].items()
    }
    found: dict[str, Mapping[str, Any]] = {
        "data": {"path": ROWS, "client": "site"},
        "data.columns": columns,
        **(sections or {}),
        **{f"tasks.{task}": given for task, given in tasks.items()},
    }
    lines = [f'name = "{name}"']
    for section, entries in found.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in entries.items()]
    return "\n".join([*lines, ""])


def place(folder: Path, text: str, frame: pd.DataFrame | None = None) -> Path:
    """The study file in a folder, beside its rows."""
    folder.mkdir(exist_ok=True, parents=True)
    if not (folder / ROWS).exists():
        (rows() if frame is None else frame).to_csv(folder / ROWS, index=False)
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"


def conducted(path: Path, out: Path | None = None, progress: Progress | None = None) -> Result:
    """Run the study of a file, with its journal in a folder if one is named; no artefacts are written."""
    if out is None:
        return run_study(path, progress=progress)
    prepare(out)
    return conduct(StudyFile.read(path), out, progress=progress)


# --- what clients were asked ------------------------------------------------------------------------------


@dataclass
class Asked:
    """Every release that a runtime carried, by exchange and place in it: once, however often it goes on."""

    plans: dict[tuple[str, int], Plan] = field(default_factory=dict)
    tasks: dict[tuple[str, int], str] = field(default_factory=dict)

    def note(self, errand: Errand) -> None:
        for place, (plan, task) in enumerate(zip(errand.exchange.plans, errand.exchange.tasks, strict=True)):
            self.plans[errand.exchange.id.hex(), place] = plan
            self.tasks[errand.exchange.id.hex(), place] = task

    def shares(self) -> dict[Part, float]:
        """The shares that were asked for, by atom."""
        return {
            atom: sum(plan.query.share for plan in self.plans.values() if atom in plan.query.part.atoms)
            for atom in ATOMS
        }

    def spent(self, delta: float) -> float:
        """What these releases cost, from their noise and parts alone: `Charge.of` is not asked."""
        return compose([_charge(f"{key}", plan) for key, plan in self.plans.items()], delta)


def _charge(name: str, plan: Plan) -> Charge:
    protection, shuffled = plan.setting.protection, cost_of(plan)
    return Charge(
        id=name,
        dataset="",
        study="",
        law=plan.noise.law,
        scale=plan.noise.scale,
        l1=plan.sensitivity.l1,
        l2=plan.sensitivity.l2,
        trust_model=plan.setting.trust.name,
        part=plan.query.part,
        unit=protection.unit,
        neighbours=protection.neighbours,
        shuffled_epsilon=0.0 if shuffled is None else shuffled.epsilon,
        shuffled_delta=0.0 if shuffled is None else shuffled.delta,
        sampled=plan.sampled,
    )


def unrehearsed() -> Any:
    """Leave out the study of made-up rows that goes first: its clients are no clients of the study."""
    return mock.patch("fedassay.api.study.require_writable")


@contextmanager
def watched() -> Iterator[Asked]:
    """Look at what simulated clients are asked."""
    asked = Asked()
    one, other = MessagingRuntime.carry, Aggregate.carry

    def messages(self: MessagingRuntime, errand: Errand) -> Any:
        asked.note(errand)
        return one(self, errand)

    def totals(self: Aggregate, errand: Errand) -> Any:
        asked.note(errand)
        return other(self, errand)

    with (
        unrehearsed(),
        mock.patch.object(MessagingRuntime, "carry", messages),
        mock.patch.object(Aggregate, "carry", totals),
    ):
        yield asked


# --- what is left behind ----------------------------------------------------------------------------------


def charges(folder: Path) -> tuple[Charge, ...]:
    """What the study's ledger holds; nothing if there is none."""
    path = folder / LEDGER
    return DatabaseLedger(path, None).charges if path.exists() else ()


@contextmanager
def journal_of(out: Path) -> Iterator[Journal]:
    """The journal in the folder of a study."""
    journal = FileJournal(out / JOURNAL)
    try:
        yield journal
    finally:
        journal.close()
