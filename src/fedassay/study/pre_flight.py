"""Proves, before the first message, that everything can be written that a study writes at its end.

Results of made-up rows go through all of it: the page, the model card, the certificate and its check, artefacts, in the
very folder of the study. What breaks there would otherwise break after the budget is spent.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedassay.documents import markup
from fedassay.documents.page import page
from fedassay.documents.terminal import render
from fedassay.errors import FedassayError, UnsupportedQuery, UsageError
from fedassay.kernel.agenda import Agenda
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import Budget, Protection, TrustModel
from fedassay.study.file import StudyFile
from fedassay.study.folder import FILES, Signed, write_folder
from fedassay.study.parameters import described
from fedassay.study.simulation import Simulation, simulate
from fedassay.tasks.card import KINDS
from fedassay.trust.plain import Plain

CLIENTS, ROWS = 12, 20
"""Sites of made-up rows, and rows at each: most thresholds and metrics are defined."""

_Terms = tuple[TrustModel, Budget | None, Protection]


def require_writable(file: StudyFile, agenda: Agenda, folder: Path) -> None:
    """Write what results of made-up rows leave, in a folder of their own inside the study's, and remove it.

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
    """The result of a study of made-up rows; None where the tasks say that there is none."""
    try:
        return _simulated(file, agenda, rows, terms, mode="aggregate")
    except UnsupportedQuery:  # single clients have to be asked, or the trust model refuses
        pass
    except FedassayError:
        return None
    except Exception as error:
        raise _cannot_be_written(agenda, error) from error
    try:
        return _simulated(file, agenda, rows, terms, mode="faithful")
    except FedassayError:
        return None
    except Exception as error:
        raise _cannot_be_written(agenda, error) from error


def _simulated(
    file: StudyFile, agenda: Agenda, rows: int, terms: _Terms, *, mode: Literal["aggregate", "faithful"]
) -> Result:
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
        parameters={**described(file), "columns": columns},
        simulation=Simulation(seed=0, mode=mode, holdout=file.holdout),
        name=file.name,
    )


def _write(file: StudyFile, result: Result, folder: Path) -> None:
    """Everything that is printed, and written at the end."""
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
        write_folder(aside, result, study_text=file.text, signed=Signed(), write_page=_page_without_plots)
    except Exception as error:
        if isinstance(error, UsageError) and isinstance(error.__cause__, OSError):  # a full disk, say
            raise UsageError(
                f"{folder}: cannot be written to ({error.__cause__.strerror}); make room and run it again."
            ) from error
        tasks = ", ".join(result.results["tasks"])
        raise _cannot_be_written(tasks, error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _page_without_plots(document: Mapping[str, Any]) -> str:
    return page(document, draw=markup.undrawn)


def _cannot_be_written(tasks: Agenda | str, error: Exception) -> UsageError:
    names = tasks if isinstance(tasks, str) else ", ".join(item.name for item in tasks.items)
    return UsageError(
        f"study: what {names} would leave behind cannot be written ({type(error).__name__}: {error}); nothing was "
        "asked or charged. This is a defect of the software that defines the task; please report it."
    )


# --- made-up rows -----------------------------------------------------------------------------------------------


def _columns(file: StudyFile, agenda: Agenda) -> Iterator[tuple[str, str]]:
    """The columns that the tasks read, by role, called like their roles."""
    asked = {item.name: item.parameters for item in agenda.items}
    for task in file.tasks:
        if task.name in asked:
            for role in task.roles:
                yield role, ",".join(asked[task.name]["features"]) if role == "features" else role


def _rows(agenda: Agenda, columns: Mapping[str, str], rows: int, cohort: int) -> dict[str, NDArray[Any]]:
    """So many rows at each of enough sites; a single row has the label 0."""
    random = np.random.default_rng(0)
    count = max(CLIENTS, 2 * cohort)
    size = count * rows
    known = {
        name: value for item in agenda.items for name, value in item.parameters.items() if value is not None
    }
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
