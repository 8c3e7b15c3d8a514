"""The help of every command, and its arguments and options as a table.

The layout of the help belongs to a library and may change with it; names, types and defaults of options may not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from fedassay.cli.command import declared, is_word, item_of
from fedassay.cli.commands import COMMANDS, functions
from golden.runner import call

NAMES = {str: "text", int: "integer", float: "float"}


def commands() -> tuple[str, ...]:
    """Every command and group of commands, as it is typed after `fedassay`; the program itself is the empty one."""
    groups = [name for name, below in COMMANDS.items() if isinstance(below, dict)]
    return ("", *groups, *(name.removeprefix("fedassay ") for name, _ in functions()))


def help_of(command: str) -> str:
    """The help at the width of the runner, without frames."""
    code, out, err = call(*command.split(), "--help")
    assert (code, err) == (0, ""), err
    return "\n".join(_unframed(line) for line in out.strip("\n").split("\n")) + "\n"


def _unframed(line: str) -> str:
    """A line of the help without the frame that is drawn around it."""
    return line.strip("╭╮╰╯─ ") if line[:1] in {"╭", "╰"} else line.strip("│").rstrip()


def file_name(command: str) -> str:
    return f"{command.replace(' ', '-') or 'fedassay'}.txt"


def options() -> dict[str, Any]:
    """For each command its arguments in their order, and its options by their first name."""
    return {name: _described(command) for name, command in functions()}


def _described(command: Callable[..., Any]) -> dict[str, Any]:
    listed = list(inspect.signature(command).parameters.values())
    named = {_names(one)[0]: one for one in listed if not is_word(one)}
    return {
        "arguments": [{"name": _names(one)[0], **_taken(one)} for one in listed if is_word(one)],
        "options": {
            name: {**_said(also=list(_names(one)[1:])), **_taken(one)} for name, one in sorted(named.items())
        },
    }


def _names(parameter: inspect.Parameter) -> tuple[str, ...]:
    names: Any = declared(parameter).name
    return tuple(names) or (f"--{parameter.name.replace('_', '-')}",)


def _taken(parameter: inspect.Parameter) -> dict[str, Any]:
    """What follows the name, whether it must be given, and what holds if it is not."""
    kind = get_args(parameter.annotation)[0]
    required = parameter.default is inspect.Parameter.empty
    default = None if required else parameter.default
    return {
        "takes": _type(kind, declared(parameter).metavar),
        "default": _plain(default),
        **_said(required=required, several=_is_list(kind)),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


def _said(**facts: Any) -> dict[str, Any]:
    """Those that are not false or empty."""
    return {name: fact for name, fact in facts.items() if fact}


def _type(kind: Any, metavar: str | None) -> Any:
    item = item_of(kind)
    if item is bool:
        return "flag"
    if get_origin(item) is Literal:
        return list(get_args(item))
    word = NAMES.get(item, "path")
    return word if metavar in (None, "TEXT", "INTEGER", "NUMBER") else f"{word} {metavar}"


def _is_list(kind: Any) -> bool:
    kinds = get_args(kind) if get_origin(kind) is Union or not isinstance(kind, type) else (kind,)
    return any(get_origin(one) is list for one in (kind, *kinds))
