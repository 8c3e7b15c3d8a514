"""`fedassay plan study`: what a study file would find out, how to split its budget, and what would be enough."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedassay.cli import options, output, plan_study_words
from fedassay.errors import FederationError, UsageError
from fedassay.files import write_atomically
from fedassay.planning import PlannedStudy, StudyExpectation, StudyPlan, plan_study
from fedassay.study.file import StudyFile

Target = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TASK.METRIC=WIDTH",
        help="What is near enough, such as evaluate.roc_auc=0.01 (half an interval); may be repeated. The budget is "
        "split for it, and the smallest epsilon, the fewest rows and the fewest clients are searched that reach it.",
    ),
]


def study(
    file: Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study.")],
    rows: Annotated[float | None, typer.Option(help="How many rows there will be, in all.")] = None,
    clients: Annotated[int | None, typer.Option(help="How many clients, of equal size.")] = None,
    prevalence: Annotated[
        float | None, typer.Option(help="The share of positive rows that you expect.")
    ] = None,
    auc: Annotated[float | None, typer.Option(help="The AUC that you expect.")] = None,
    target: Target = None,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Predict a study before a row is read: every task's errors, shares of the budget, trust models side by side.

    What is expected of the data comes from [expected] in the file, unless it is given here.
    """
    output.check_writable(json)
    read = StudyFile.read(file)
    given = {"rows": rows, "clients": clients, "prevalence": prevalence, "auc": auc}
    try:
        plan = planned(read, {name: value for name, value in given.items() if value is not None}, target)
    except FederationError as error:  # too few clients are no failure while they are only planned
        raise UsageError(str(error)) from error
    document = {**plan.to_dict(), "study": read.name}
    _deliver(document, json=json, quiet=quiet)


def planned(file: StudyFile, expected: Mapping[str, Any], target: list[str] | None = None) -> StudyPlan:
    """The plan of a study file, with these expectations instead of its own."""
    expectation = StudyExpectation.of({**(file.expected or {}), **expected})
    agenda = file.agenda(known=file.expected_parameters(expectation.classes))
    return plan_study(
        agenda,
        PlannedStudy(
            expectation=expectation,
            trust=file.trust,
            budget=file.budget,
            protection=file.protection,
            holdout=file.holdout,
        ),
        shares={item.name: item.share for item in agenda.items} if file.gives_shares else None,
        targets=_targets(target),
    )


def _targets(given: list[str] | None) -> dict[str, float]:
    targets = {}
    for text in given or ():
        name, _, width = text.partition("=")
        try:
            targets[name] = float(width)
        except ValueError:
            raise UsageError(
                f"--target: got {text!r}, expected TASK.METRIC=WIDTH, such as evaluate.roc_auc=0.01."
            ) from None
    return targets


def _deliver(document: dict[str, Any], *, json: str | None, quiet: bool) -> None:
    text = json_module.dumps(document, indent=2, allow_nan=False) + "\n"
    if json == "-":
        sys.stdout.write(text)
    elif json is not None:
        write_atomically(Path(json), text)
    console = Console(stderr=json == "-", quiet=quiet)
    plan_study_words.render(document, console)
    if json not in (None, "-"):
        console.print(f"Written: {json}", highlight=False)
