"""Before a budget is spent: does the planner expect anything of it?"""

from __future__ import annotations

from rich.console import Console

from fedassay.api.study import shares_of
from fedassay.errors import FedassayError, Refused
from fedassay.planning import Sufficiency, predict_tasks
from fedassay.study.file import StudyFile
from fedassay.study.planned import planned_study


def require_promising(file: StudyFile, console: Console) -> None:
    """Refuse a study under noise of which the planner expects nothing, and say so of single tasks.

    Only where the file says what it expects of the data: nothing is read for it.
    """
    if not file.trust.private or file.expected is None:
        return
    try:
        hopeless = _hopeless(file)
    except FedassayError:
        return  # what is wrong is said when it is run
    if len(hopeless) == len(file.tasks):
        raise Refused(
            f"{file.path}: by what [expected] says, noise would leave nothing of any task ({', '.join(hopeless)}), "
            f"and the budget would be spent for nothing; `fedassay plan study {file.path.name}` says what would be "
            "enough, --anyway runs it."
        )
    for name in hopeless:
        console.print(
            f"[yellow]Warning:[/] the plan expects too little of {name}; see `fedassay plan study {file.path.name}`.",
            highlight=False,
        )


def _hopeless(file: StudyFile) -> list[str]:
    """The tasks that will not reach what most would ask of them."""
    study = planned_study(file)
    agenda = file.agenda(shares=shares_of(file), known=file.expected_parameters(study.expectation.classes))
    plans = predict_tasks(agenda, study, shares={item.name: item.share for item in agenda.items})
    return [name for name, plan in plans.items() if plan.verdict is Sufficiency.NOT_ENOUGH]
