"""`fedassay plan`: is there enough data? Errors to expect, parameters to use, what would be enough. No data.

The command of a kind of task is made from its card and its forecast, when it is first looked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from fedassay.cli import options, output
from fedassay.cli.command import (
    Argument,
    GivenOptions,
    Option,
    OptionsOf,
    command,
    keyword,
    takes,
    with_default,
)
from fedassay.cli.plan_terminal import render
from fedassay.errors import ParameterError, UsageError
from fedassay.kernel.agenda import Agenda
from fedassay.planning import Expectation, Forecast, PlannedStudy, StudyPlan, plan_study
from fedassay.protocol.parameters import parameters as parameters_of
from fedassay.protocol.vocabulary import Setting
from fedassay.study.file import StudyFile
from fedassay.tasks.card import KINDS, KindCard
from fedassay.trust.card import DEFAULT_TRUST

StudyTarget = Annotated[
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
    target: StudyTarget = None,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Predict a study before a row is read: every task's errors, shares of the budget, trust models side by side.

    What is expected of the data comes from [expected] in the file, unless it is given here.
    """
    output.check_writable(json)
    read = StudyFile.read(file)
    given = {"rows": rows, "clients": clients, "prevalence": prevalence, "auc": auc}
    expected = read.planned({name: value for name, value in given.items() if value is not None})
    agenda = read.agenda(known=read.expected_parameters(expected.expectation.classes))
    plan = plan_study(
        agenda,
        expected,
        shares={item.name: item.share for item in agenda.items} if read.gives_shares else None,
        targets=targets(target, "TASK.METRIC=WIDTH, such as evaluate.roc_auc=0.01"),
    )
    deliver({**plan.to_dict(), "study": read.name}, json=json, quiet=quiet)


# --- single tasks ---------------------------------------------------------------------------------------------


@cache
def planning(name: str) -> Callable[..., None]:
    """Return the command that plans the task of this name as a study of one; expectations decide between its kinds."""
    cards = [card for card in KINDS.values() if card.asked_as == name]
    forecasts: list[type[Forecast[Any]]] = [card.forecast.load() for card in cards]
    expects = {"rows", "clients", *(field for forecast in forecasts for field in forecast.expects)}
    columns = {role for card in cards for role in card.columns}
    own = {target: text for forecast in forecasts for target, text in forecast.options.items()}

    def plan(
        *,
        expected: GivenOptions,
        parameters: GivenOptions,
        terms: Setting,
        target: list[str] | None = None,
        json: str | None = None,
        quiet: bool = False,
        **given: float | None,
    ) -> None:
        output.check_writable(json)
        wanted = targets(target, f"NAME=WIDTH, such as {_example(forecasts[0])}")
        wanted |= {name: width for name, width in given.items() if width is not None}
        made = _plan_one(cards, expected, parameters, terms, wanted)
        deliver(made.to_dict(), json=json, quiet=quiet)

    plan.__doc__ = cards[0].forecast_help
    widths = {target: Annotated[float | None, Option(help=text)] for target, text in own.items()}
    options_of_plan = [
        *(keyword(group, Any) for group in ("expected", "parameters", "terms")),
        *(keyword(target, width, None) for target, width in widths.items()),
        keyword("target", Annotated[list[str] | None, _target_option(forecasts)], None),
        keyword("json", options.JsonFile, None),
        keyword("quiet", options.Quiet, False),
    ]
    plan.__signature__ = inspect.Signature(options_of_plan)  # type: ignore[attr-defined]
    declared = {card.name: card.declared.load() for card in cards}
    return takes(
        OptionsOf("expected", Expectation, only=expects),
        OptionsOf("parameters", declared, without=expects | columns, needed=False),
        with_default(options.terms, "privacy", cards[0].privacy or DEFAULT_TRUST),
    )(plan)


def __getattr__(name: str) -> Callable[..., None]:
    """Return commands of kinds of tasks, by the name that users ask for."""
    if name not in {card.asked_as for card in KINDS.values()}:
        raise AttributeError(name)
    return planning(name)


def _plan_one(
    cards: Sequence[KindCard],
    expected: GivenOptions,
    parameters: GivenOptions,
    terms: Setting,
    wanted: Mapping[str, float],
) -> StudyPlan:
    # The kind that is meant is the one of which more is expected than of the others.
    card = next((one for one in cards if one.example and set(one.example) <= set(expected)), cards[0])
    reads = ("rows", "clients", *card.forecast.load().expects)
    for name in expected:
        if name not in reads:
            raise ParameterError(name, f"the plan of {card.name} has no use for it; leave it out.")
    declared = {one.name for one in parameters_of(card.declared.load())}
    held_out = parameters.get("holdout") if "holdout" in declared else parameters.pop("holdout", None)
    expected_of = {name: expected[name] for name in card.example if name in expected}
    parameters = {**card.example, **parameters, **expected_of}
    return plan_study(
        Agenda.of(card.name, parameters),
        PlannedStudy(
            expectation=Expectation(**expected),
            trust=terms.trust,
            budget=terms.budget,
            protection=terms.protection,
            **({"holdout": held_out} if held_out else {}),
        ),
        targets=wanted,
    )


def _target_option(forecasts: Sequence[type[Forecast[Any]]]) -> Any:
    names = dict.fromkeys(name for forecast in forecasts for name in forecast.targets)
    return Option(
        metavar="NAME=WIDTH",
        help=f"What is near enough, such as {_example(forecasts[0])}; may be repeated. One of {', '.join(names)}. Also "
        "asks for the smallest epsilon, the fewest rows and the fewest clients that reach it.",
    )


def _example(forecast: type[Forecast[Any]]) -> str:
    name = forecast.main[0]
    return f"{name}={forecast.targets[name]:g}"


# --- shared ---------------------------------------------------------------------------------------------------


def targets(given: Sequence[str] | None, such_as: str) -> dict[str, float]:
    """Read options of the form NAME=WIDTH, by name.

    Examples
    --------
    >>> targets(["roc_auc=0.01"], "NAME=WIDTH")
    {'roc_auc': 0.01}
    """
    found = {}
    for text in given or ():
        name, _, width = text.partition("=")
        try:
            found[name] = float(width)
        except ValueError:
            raise UsageError(f"--target: got {text!r}, expected {such_as}.") from None
    return found


def deliver(document: dict[str, Any], *, json: str | None, quiet: bool) -> None:
    """Print a plan, and write it as JSON if that was asked for; ``-`` is standard output."""
    output.write_json(document, json)
    console = output.console_beside(json, quiet=quiet)
    render(document, console)
    if json not in (None, "-"):
        output.say(console, f"Written: {json}")
