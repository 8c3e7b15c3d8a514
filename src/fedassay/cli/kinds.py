"""Commands of kinds of tasks from other packages, made from their cards: one that runs it, and one that plans it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from fedassay.cli import options, output, plan_study_words
from fedassay.cli.artefact import deliver as deliver_artefact
from fedassay.cli.columns import ArtefactFile
from fedassay.cli.command import Given, Option, OptionsOf, takes
from fedassay.cli.plan_delivery import deliver, targets
from fedassay.cli.plan_options import Target, scores, size
from fedassay.data.schema import ROLES
from fedassay.errors import FederationError, UsageError
from fedassay.tasks.card import KindCard

Command = Callable[..., Any]


def running(card: KindCard) -> Command:
    """The command that runs a kind on rows."""

    def run_it(*, parameters: Given, run: options.Run, out: Any, **columns: str) -> None:
        from fedassay.api.kinds import run_task

        with run.delivery.progress() as advance:
            result = run_task(
                card.name,
                run.data,
                columns={role: column for role, column in columns.items() if column is not None},
                client=run.client,
                privacy=run.terms.trust,
                budget=run.terms.budget,
                protection=run.terms.protection,
                simulation=replace(run.simulation, progress=advance),
                **parameters,
            )
        deliver_artefact(result, run.delivery, out=out)

    own = [_option(role, Annotated[str, Option(help=_column(role))]) for role in card.columns]
    more = [_option("out", ArtefactFile, None)] if card.artefact else []
    own += [*more, _option("parameters", Given), _option("run", options.Run)]
    given = [] if card.artefact else ["out"]
    return _made(
        run_it,
        card.title,
        own,
        options.run,
        OptionsOf("parameters", card.declared.load()),
        without=given,
    )


def planning(card: KindCard) -> Command:
    """The command that plans a kind, as a study of one task."""

    def plan_it(
        *,
        size: Any,
        scores: Given,
        parameters: Given,
        terms: options.Terms,
        target: Any,
        json: Any,
        quiet: bool,
    ) -> None:
        from fedassay.agenda import Agenda, Item
        from fedassay.planning import PlannedStudy, StudyExpectation, plan_study

        output.check_writable(json)
        study = PlannedStudy(
            expectation=StudyExpectation(rows=size.rows, clients=size.clients, **scores),
            trust=terms.trust,
            budget=terms.budget,
            protection=terms.protection,
        )
        item = Item(name=card.name, task=card.name, parameters=parameters)
        wanted = {f"{card.name}.{name}": width for name, width in targets(target).items()}
        try:
            plan = plan_study(Agenda(items=(item,)), study, targets=wanted)
        except FederationError as error:  # too few clients are no failure while they are only planned
            raise UsageError(str(error)) from error
        document = {**plan.to_dict(), "study": card.name}
        deliver(document, plan_study_words.render, json=json, quiet=quiet)

    own = [
        *(_option(name, Any) for name in ("size", "scores", "parameters", "terms")),
        _option("target", Target, None),
        _option("json", options.JsonFile, None),
        _option("quiet", options.Quiet, False),
    ]
    return _made(
        plan_it,
        f"Predict {card.section.lower()} before there are data.",
        own,
        size,
        scores,
        OptionsOf("parameters", card.declared.load()),
        options.terms,
    )


def _made(
    function: Command, text: str, own: list[inspect.Parameter], *groups: Any, without: list[str] | None = None
) -> Command:
    absent = dict.fromkeys(without or ())

    def called(**given: Any) -> None:
        function(**given, **absent)

    called.__doc__ = text if text.endswith(".") else f"{text}."
    called.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return takes(*groups)(called)


def _option(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _column(role: str) -> str:
    return f"Column with {ROLES[role].expected}."
