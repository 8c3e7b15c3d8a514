"""All commands, in the order of the help. The module of a command is imported when it is run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from cyclopts import App, Group

from fedassay.tasks.card import KINDS, KindCard
from fedassay.tasks.command import LAST
from fedassay.version import VERSION

COMMANDS: dict[str, str | dict[str, str]] = {
    "init": "init:init",
    "run": "run:run",
    "apply": "apply:apply",
    "check": "check:check",
    "audit": "audit:audit",
    "verify": "verify:verify",
    "demo": "demo:demo",
    "keys": "keys:keys",
    "words": "words:words",
    "contribute": "contribute:contribute",
    "aggregate": "aggregate:aggregate",
    "plan": {
        "": "Predict errors before there are data, and say whether there is enough.",
        "study": "plan:study",
    },
    "flower": {
        "": "Run between machines on Flower: app, submit, site.",
        "site": "flower:site",
        "app": "flower:app_command",
        "submit": "flower:submit_command",
    },
    "ledger": {
        "": "Show the privacy ledger: what was released, and what it cost.",
        "show": "ledger:show",
        "budget": "ledger:budget",
        "export": "ledger:export",
        "anchor": "ledger:anchor_command",
    },
}
"""Module and function of each command by name, or the commands below it; cards of kinds of tasks add theirs."""

_Listed = Mapping[str, str | KindCard | dict[str, str | KindCard]]


def listed() -> _Listed:
    """Return all commands in the order of the help: those of the library, and of kinds of tasks, by their cards."""
    kinds = {name: card for name, card in KINDS.items() if name == card.asked_as}
    places = {name: 10 * place for place, name in enumerate(COMMANDS)}
    places |= {name: card.command.order if card.command else LAST for name, card in kinds.items()}
    every: dict[str, Any] = {**COMMANDS, **kinds, "plan": {**kinds, **COMMANDS["plan"]}}  # type: ignore[dict-item]
    return {name: every[name] for name in sorted(every, key=places.__getitem__)}


def _app(**how: object) -> App:
    return App(
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


def _add(app: App, commands: _Listed, *, group: str = "") -> App:
    """Add commands that are imported when one is run."""
    for place, (name, where) in enumerate(commands.items()):
        if isinstance(where, dict):
            below = {one: at for one, at in where.items() if one}
            app.command(_add(_app(name=name, help=where[""], sort_key=place), below, group=name))
        elif isinstance(where, KindCard):
            sentence = where.forecast_help if group else where.sentence
            app.command(":".join(_place(group, name, where)), name=name, help=sentence, sort_key=place)
        else:
            app.command(":".join(_place(group, name, where)), name=name, help=_help(where), sort_key=place)
    return app


def _place(group: str, name: str, where: str | KindCard) -> tuple[str, str]:
    """Return module and attribute of a command; kinds of tasks have one that runs them, and one that plans them."""
    if isinstance(where, KindCard):
        return f"fedassay.cli.{'plan' if group else 'kind_command'}", name
    module, _, function = where.partition(":")
    return f"fedassay.cli.{module}", function


def _help(where: str) -> str:
    """Return the docstring of a command, read without importing its module."""
    module, _, name = where.partition(":")
    for one in ast.parse((Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8")).body:
        if isinstance(one, ast.FunctionDef) and one.name == name:
            return ast.get_docstring(one) or ""
    raise LookupError(where)


app = _add(
    _app(name="fedassay", help="Trust a model on data you cannot see.", version_flags=["--version"]), listed()
)


def load(words: Sequence[str]) -> None:
    """Import what the command that these words begin with needs."""
    group, found = "", listed().get(name := next(iter(words), ""))
    if isinstance(found, dict):
        group, found = name, found.get(name := next(iter(words[1:]), ""))
    if found and name:
        _command(group, name, found)


def _command(group: str, name: str, where: str | KindCard) -> Callable[..., Any]:
    module, function = _place(group, name, where)
    command: Callable[..., Any] = getattr(import_module(module), function)
    return command


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield every command by its whole name, imported, in the order of the help."""
    for name, where in listed().items():
        if isinstance(where, dict):
            yield from (
                (f"fedassay {name} {one}", _command(name, one, at)) for one, at in where.items() if one
            )
        else:
            yield f"fedassay {name}", _command("", name, where)
