"""Checks before the first message: can a study be afforded, and can it write all of its results?

The ledger itself judges every release when it is made. But a study that is refused half-way has spent half of its
budget for nothing, so the whole of it is judged first, and the cheapest way out is named.

What is written at the end is written once before, from results of made-up rows: the page, the model card, the
certificate and its check, artefacts, in the very folder of the study. What breaks there would otherwise break after the
budget is spent.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.documents import markup
from fedassay.documents.page import page
from fedassay.documents.terminal import render
from fedassay.errors import BudgetExceeded, FedassayError, UnsupportedQuery, UsageError
from fedassay.kernel.agenda import Agenda
from fedassay.kernel.expected_cost import foreseen, largest_epsilon, needed
from fedassay.privacy.ledger.charges import Charge, Ledger, MemoryLedger, compose
from fedassay.privacy.ledger.database import DatabaseLedger
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import Budget, Protection, Setting, TrustModel
from fedassay.runtimes.card import ReleaseParameters
from fedassay.runtimes.in_process.card import Mode
from fedassay.study.file import StudyFile
from fedassay.study.folder import FILES, write_folder
from fedassay.study.simulation import Simulation, simulate
from fedassay.tasks.card import KINDS
from fedassay.trust.plain import Plain

# --- what can be afforded -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Books:
    """A ledger, the name under which a study charges it, and the cap of all studies together."""

    ledger: Ledger
    dataset: str
    cap: Budget | None = None

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Charges on these rows before this study."""
        recorded: Sequence[Charge] = getattr(self.ledger, "charges", ())
        return tuple(one for one in recorded if one.dataset == self.dataset)

    @property
    def head(self) -> str | None:
        """Hash at the end of the ledger, if it is one that lasts."""
        return self.ledger.head if isinstance(self.ledger, DatabaseLedger) else None


def opened_books(study: StudyFile) -> Books:
    """Open the ledger that a study names; one in memory for a simulation that names none."""
    section, runtime = study.ledger, study.runtime
    cap, place = section.cap, section.place
    home = runtime.home if isinstance(runtime, ReleaseParameters) else None
    folder = study.path.absolute().parent
    anchor = folder / "ledger.head" if place is not None and "://" in place else None
    if home is not None:
        place, anchor = place or str(home / "ledger.sqlite"), home / "ledger.head"
    if place is None:
        return Books(ledger=MemoryLedger(None), dataset=section.dataset, cap=cap)
    where = place if "://" in place else folder / place
    ledger = DatabaseLedger(where, cap, allow_exact=True, anchor=anchor)
    return Books(ledger=ledger, dataset=section.dataset, cap=cap)


def require_affordable(
    study: StudyFile, agenda: Agenda, books: Books, setting: Setting, *, own: frozenset[str] = frozenset()
) -> None:
    """Refuse a study that its ledger would refuse at some point, before any site is asked.

    Assumption: that of `foreseen`. The ledger, which judges each release exactly, has the last word.

    Edge cases: where nothing was spent before, a total that covers the budget of the study is always enough.

    Parameters
    ----------
    setting : of the whole study, with all that is known when it begins.
    own : exchanges that this very study has begun before it broke off, in hex; their charges do not count twice.
    """
    cap = books.cap
    if cap is None or setting.budget is None:
        return
    before = [one for one in books.charges if not one.exact and str(one.id).partition("/")[0] not in own]
    if not before and setting.budget.epsilon <= cap.epsilon and setting.budget.delta <= cap.delta:
        return
    total = needed(before, foreseen(agenda, setting), cap)
    if total > cap.epsilon:
        raise _Shortage(study, agenda, setting, before, cap).refusal(total)


@dataclass(frozen=True)
class _Shortage:
    """A study, the charges before it, and the cap that it would exceed."""

    study: StudyFile
    agenda: Agenda
    setting: Setting
    before: Sequence[Charge]
    cap: Budget

    def refusal(self, total: float) -> BudgetExceeded:
        """Return the refusal, with the changes that would make the study affordable: the smallest first."""
        spent, cap, finite = compose(self.before, self.cap.delta), self.cap, math.isfinite(total)
        ways = self.less_epsilon() + self.fewer_tasks() if spent < cap.epsilon and finite else []
        ways += [f"a total of {_up(total):.3g} in [ledger]"] if finite else []
        ways += self.in_the_ledger()
        where = self.study.document.where(("privacy", "epsilon"))
        amount = f"{total:.3g}" if finite else "more than any epsilon"
        out = f"Cheapest change: {ways[0]}." if ways else "Nothing of it fits: nothing is left."
        others = f" Others: {'; '.join(ways[1:])}." if len(ways) > 1 else ""
        return BudgetExceeded(
            f"{where}: the study cannot be afforded, and no site was asked: with what was spent on "
            f"{self.study.ledger.dataset} before ({spent:.3g}) it would come to {amount} of {cap.epsilon:.3g} at delta "
            f"{cap.delta:.3g}. {out}{others}"
        )

    def less_epsilon(self) -> list[str]:
        """Return advice with the largest epsilon of the study that fits."""
        assert self.setting.budget is not None
        largest = largest_epsilon(self.agenda, self.setting, self.before, self.cap)
        if largest is None:
            return []
        return [f"epsilon = {largest:g} instead of {self.setting.budget.epsilon:g} in [privacy]"]

    def fewer_tasks(self) -> list[str]:
        """Return advice to drop the task of the smallest share without which the others fit unchanged.

        Where the file gives no shares, those that stay would get the share of the one that goes: that does not help.
        """
        if not self.study.gives_shares:
            return []
        items, written = self.agenda.items, self.study.document.content["tasks"]
        for item in sorted(items, key=lambda one: one.share):
            if any("after" in written[one.name] for one in items if one.after == item.name):
                continue  # what names it would have to change too
            # As the file would be read without it: what builds on it would stand alone.
            left = tuple(
                replace(one, after=None) if one.after == item.name else one
                for one in items
                if one is not item
            )
            try:
                if left and self.needed(Agenda(items=left)) <= self.cap.epsilon:
                    return [f"leave out [tasks.{item.name}]"]
            except FedassayError:
                continue
        return []

    def needed(self, agenda: Agenda) -> float:
        """Compute the epsilon of this agenda together with the charges before."""
        return needed(self.before, foreseen(agenda, self.setting), self.cap)

    def in_the_ledger(self) -> list[str]:
        """Return the changes to the ledger where no epsilon is enough, whatever was spent before."""
        protection, budget = self.setting.protection, self.setting.budget
        kinds = {(one.unit, one.neighbours) for one in self.before}
        kinds -= {(protection.unit, protection.neighbours)}
        if kinds:
            unit, neighbours = sorted(kinds)[0]
            return [
                f"another dataset in [ledger], as on {self.study.ledger.dataset} budget was spent per {unit} under "
                f"{neighbours}, which adds up with nothing else"
            ]
        alone = needed([], foreseen(self.agenda, self.setting), self.cap)
        if self.cap.delta == 0 and not math.isfinite(alone):
            return [f"delta = {budget.delta if budget else 0:g} in [ledger], with its epsilon"]
        return []


def _up(value: float) -> float:
    step: float = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / step) * step


# --- what can be written ------------------------------------------------------------------------------------

CLIENTS, ROWS = 12, 20
"""Number of sites of made-up rows, and of rows at each: most thresholds and metrics are defined."""

_Terms = tuple[TrustModel, Budget | None, Protection]


def require_writable(file: StudyFile, agenda: Agenda, folder: Path) -> None:
    """Write the results of made-up rows in a temporary folder inside the study's, and remove it.

    Three sets of rows: one on which most numbers are defined, without noise; the same under the study's own trust
    model; and one with a single class, on which they are not. Plots are left out: a page is complete without them.

    Raises
    ------
    UsageError
        If something cannot be written, with the task that it belongs to. Nothing was asked or charged.
    """
    for name in (*FILES, *(KINDS[item.task].file_of(item.name) for item in agenda.items)):
        if (folder / name).is_dir():
            raise UsageError(f"{folder / name}: is a folder, expected a file or nothing; move it away.")
    plain: _Terms = (Plain(), None, Protection())
    own: _Terms = (file.trust, file.budget, file.protection)
    for rows, terms in ((ROWS, plain), (ROWS, own), (1, own)):
        whole = _made_up(file, agenda, rows, terms)
        # Where one task has no answer for such rows, each of the others is tried alone.
        alone = [
            Agenda(items=(replace(item, share=1.0, after=None),))
            for item in agenda.items
            if whole is None and len(agenda.items) > 1
        ]
        for result in (whole, *(_made_up(file, one, rows, terms) for one in alone)):
            if result is not None:
                _write(file, result, folder)


def _made_up(file: StudyFile, agenda: Agenda, rows: int, terms: _Terms) -> Result | None:
    """Return the result of a study of made-up rows; None where the tasks report that there is none."""
    modes: tuple[Mode, ...] = ("aggregate", "faithful")
    for mode in modes:
        try:
            return _simulated(file, agenda, rows, terms, mode=mode)
        except UnsupportedQuery:  # in aggregate no single client can be asked
            continue
        except FedassayError:
            return None
        except Exception as error:
            tasks = ", ".join(item.name for item in agenda.items)
            raise _cannot_be_written(tasks, error) from error
    return None


def _simulated(file: StudyFile, agenda: Agenda, rows: int, terms: _Terms, *, mode: Mode) -> Result:
    trust, budget, protection = terms
    columns = dict(_columns(file, agenda))
    return simulate(
        agenda,
        _rows(agenda, columns, rows, getattr(trust, "minimum_cohort", 0)),
        columns=columns,
        client="site",
        trust=trust,
        budget=budget,
        protection=protection,
        parameters={**file.described, "columns": columns},
        simulation=Simulation(seed=0, mode=mode, holdout=file.holdout),
        name=file.name,
    )


def _write(file: StudyFile, result: Result, folder: Path) -> None:
    """Write everything that is printed, and written at the end."""
    from rich.console import Console

    folder.mkdir(parents=True, exist_ok=True)
    try:
        aside = Path(tempfile.mkdtemp(prefix=".pre-flight-", dir=folder))
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be written to ({error.strerror}); give another folder."
        ) from error
    try:
        render(result.to_dict(), Console(quiet=True))
        plain = partial(page, draw=markup.undrawn)
        write_folder(aside, result, file, write_page=plain)
    except Exception as error:
        if isinstance(error, UsageError) and isinstance(error.__cause__, OSError):  # a full disk, say
            raise UsageError(
                f"{folder}: cannot be written to ({error.__cause__.strerror}); make room and run it again."
            ) from error
        raise _cannot_be_written(", ".join(result.results["tasks"]), error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _cannot_be_written(tasks: str, error: Exception) -> UsageError:
    return UsageError(
        f"study: what {tasks} would leave behind cannot be written ({type(error).__name__}: {error}); nothing was "
        "asked or charged. This is a defect of the software that defines the task; please report it."
    )


# --- made-up rows -----------------------------------------------------------------------------------------------


def _columns(file: StudyFile, agenda: Agenda) -> Iterator[tuple[str, str]]:
    """Yield the columns that the tasks read, by role, called like their roles."""
    asked = {item.name: item.parameters for item in agenda.items}
    for task in file.tasks:
        if task.name in asked:
            for role in task.roles:
                yield role, ",".join(asked[task.name]["features"]) if role == "features" else role


def _rows(agenda: Agenda, columns: Mapping[str, str], rows: int, cohort: int) -> dict[str, NDArray[Any]]:
    """Make this number of rows at each of enough sites; a single row has the label 0."""
    random = np.random.default_rng(0)
    count = max(CLIENTS, 2 * cohort)
    size = count * rows
    every = (item.parameters.items() for item in agenda.items)
    known = {name: value for parameters in every for name, value in parameters if value is not None}
    label = random.integers(0, 2, size) if rows > 1 else np.zeros(size, dtype=np.int64)
    score = np.clip(0.2 + 0.5 * label + random.uniform(-0.2, 0.2, size), 0.01, 0.99)
    classes = int(known.get("classes") or 2)
    groups = known.get("groups")  # names, or how many of them a test makes
    group = groups[0] if isinstance(groups, list | tuple) and groups else "a"
    lower, upper = float(known.get("lower", 0.0)), float(known.get("upper", 1.0))
    low, high = known.get("score_range") or (0.0, 1.0)
    made: dict[str, NDArray[Any]] = {
        "score": score,
        "versus": score[::-1].copy(),
        "label": label,
        "target": label.astype(np.float64),
        "class": label % classes,
        "logits": random.normal(size=(size, classes)) + 2 * np.eye(classes)[label % classes],
        "group": np.array([group] * size),
        "value": random.uniform(lower, upper, size),
        "prediction": score,
        "scale": np.full(size, 1.0),
        "lower": score - 0.5,
        "upper": score + 0.5,
        "conformity": random.uniform(low, high, size),
        "offset": np.zeros(size),
    }
    table = {name: made[role] for role, name in columns.items() if role != "features"}
    if "features" in columns:
        table |= {name: random.normal(size=size) for name in columns["features"].split(",")}
    return {**table, "site": np.repeat([f"site-{place:04}" for place in range(count)], rows)}
