"""`fedassay plan study`: what a study file would find out, how to split its budget, and what would be enough."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fedassay.cli import options, output, plan_study_words
from fedassay.cli.command import Argument, Option, command
from fedassay.cli.plan_delivery import deliver
from fedassay.cli.plan_delivery import targets as targets_of
from fedassay.errors import FederationError, UsageError
from fedassay.planning import StudyPlan, plan_study
from fedassay.study.file import StudyFile
from fedassay.study.planned import planned_study

Target = Annotated[
    list[str] | None,
    Option(
        metavar="TASK.METRIC=WIDTH",
        help="What is near enough, such as evaluate.roc_auc=0.01 (half an interval); may be repeated. The budget is "
        "split for it, and the smallest epsilon, the fewest rows and the fewest clients are searched that reach it.",
    ),
]


@command
def study(
    file: Annotated[Path, Argument(metavar="STUDY.toml", help="The study.")],
    rows: Annotated[float | None, Option(help="How many rows there will be, in all.")] = None,
    clients: Annotated[int | None, Option(help="How many clients, of equal size.")] = None,
    prevalence: Annotated[float | None, Option(help="The share of positive rows that you expect.")] = None,
    auc: Annotated[float | None, Option(help="The AUC that you expect.")] = None,
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
    deliver(document, plan_study_words.render, json=json, quiet=quiet)


def planned(file: StudyFile, expected: Mapping[str, Any], target: list[str] | None = None) -> StudyPlan:
    """The plan of a study file, with these expectations instead of its own."""
    study = planned_study(file, expected)
    agenda = file.agenda(known=file.expected_parameters(study.expectation.classes))
    return plan_study(
        agenda,
        study,
        shares={item.name: item.share for item in agenda.items} if file.gives_shares else None,
        targets=targets_of(target, such_as="TASK.METRIC=WIDTH, such as evaluate.roc_auc=0.01"),
    )
