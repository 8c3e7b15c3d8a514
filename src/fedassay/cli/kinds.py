"""Commands that run kinds of tasks from other packages, made from their cards."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from fedassay.cli import options
from fedassay.cli.artefact import deliver as deliver_artefact
from fedassay.cli.columns import ArtefactFile
from fedassay.cli.command import Given, Option, OptionsOf, takes
from fedassay.data.schema import ROLES
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
