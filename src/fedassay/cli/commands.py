"""All commands, in the order of the help. The module of a command is imported when it is run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App, Group

from fedassay.version import VERSION

if TYPE_CHECKING:
    from fedassay.tasks.card import KindCard

MOST_KINDS = 100
"""Their plans come before the other commands of `plan`."""

COMMANDS: dict[str, str | dict[str, str]] = {
    "init": "init:init",
    "run": "run:run",
    "evaluate": "evaluate:evaluate",
    "calibrate": "calibrate:calibrate",
    "conformal": "conformal:conformal",
    "apply": "apply:apply",
    "ecdf": "ecdf:ecdf",
    "quantiles": "ecdf:quantiles",
    "hosmer-lemeshow": "hosmer_lemeshow:hosmer_lemeshow",
    "infer": "infer:infer",
    "check": "check:check",
    "audit": "audit:audit",
    "verify": "verify:verify",
    "demo": "demo:demo",
    "keys": "keys:keys",
    "words": "words:words",
    "contribute": "file_drop:contribute",
    "aggregate": "file_drop:aggregate",
    "plan": {
        "": "Predict errors before there are data, and say whether there is enough.",
        "study": "plan:study",
    },
    "flower": {
        "": "Run between machines on Flower: app, submit, site.",
        "site": "flower_site:site",
        "app": "flower:app_command",
        "submit": "flower:submit_command",
    },
    "ledger": {
        "": "What was released and what it cost: show, budget, export.",
        "show": "ledger:show",
        "budget": "ledger:budget",
        "export": "ledger:export",
        "anchor": "ledger:anchor_command",
    },
}
"""By name, the module and function of a command, or the commands below it."""


def _app(commands: dict[str, str], **how: object) -> App:
    app = App(
        help_format="plaintext",
        help_flags=["--help"],
        version=f"fedassay {VERSION}",
        version_flags=how.pop("version_flags", ()),  # type: ignore[arg-type]
        group_parameters=Group("Options"),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        exit_on_error=False,
        print_error=False,
        **how,  # type: ignore[arg-type]
    )
    for place, (name, where) in enumerate(commands.items()):
        if name and isinstance(where, str):
            app.command(f"fedassay.cli.{where}", name=name, help=_help(where), sort_key=place)
    return app


def _help(where: str) -> str:
    """The docstring of a command, read without importing its module."""
    module, _, name = where.partition(":")
    for one in ast.parse((Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8")).body:
        if isinstance(one, ast.FunctionDef) and one.name == name:
            return ast.get_docstring(one) or ""
    raise LookupError(where)


def _whole() -> App:
    found = _app(
        {name: where for name, where in COMMANDS.items() if isinstance(where, str)},
        name="fedassay",
        help="Trust a model on data you cannot see.",
        version_flags=["--version"],
    )
    for place, (name, below) in enumerate(COMMANDS.items()):
        if isinstance(below, dict):
            found.command(_app(below, name=name, help=below[""], sort_key=place))
    return found


app = _whole()


def load(words: Sequence[str]) -> None:
    """Import the module of the command that these words begin with; for others, look for kinds of other packages."""
    first = next(iter(words), "")
    found: str | dict[str, str] | None = COMMANDS.get(first)
    if (found is None and first != "--version") or first == "plan":
        add_kinds()
    if isinstance(found, dict):
        found = found.get(next(iter(words[1:]), ""))
    if found is not None and ":" in found:
        import_module(f"fedassay.cli.{found.partition(':')[0]}")


@cache
def add_kinds() -> None:
    """Add the plan of each kind of task, and the commands of kinds that other packages offer, once."""
    for place, (name, kind) in enumerate(_added()):
        app.command(kind, name=name, sort_key=len(COMMANDS) + place)
    for place, (name, card) in enumerate(_planned().items()):
        where = f"fedassay.cli.plan:{name}"
        app["plan"].command(where, name=name, help=card.forecast_help, sort_key=place - MOST_KINDS)


def _planned() -> dict[str, KindCard]:
    """The first card of each name that users ask for."""
    from fedassay.tasks.card import KINDS

    found: dict[str, KindCard] = {}
    for card in KINDS.values():
        found.setdefault(card.asked_as, card)
    return found


def _added() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, card in _planned().items():
        if name not in COMMANDS:
            from fedassay.cli.kinds import running  # heavy, and mostly there is no such kind

            yield name, running(card)


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every command by its whole name, imported, in the order of the help."""
    for name, where in COMMANDS.items():
        below = (
            {name: where}
            if isinstance(where, str)
            else {f"{name} {one}": at for one, at in where.items() if one}
        )
        for whole, at in below.items():
            module, _, function = at.partition(":")
            yield f"fedassay {whole}", getattr(import_module(f"fedassay.cli.{module}"), function)
    yield from ((f"fedassay {name}", kind) for name, kind in _added())
    plans = import_module("fedassay.cli.plan")
    yield from ((f"fedassay plan {name}", getattr(plans, name)) for name in _planned())
