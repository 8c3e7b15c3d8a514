"""The reference of the command line, made from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from enum import EnumType
from typing import Any, Literal, get_args, get_origin

from fedassay.cli.command import declared, is_word, item_of
from fedassay.cli.commands import functions


def commands_page(commands: Callable[[], Iterator[tuple[str, Callable[..., Any]]]] = functions) -> str:
    """Every command with its arguments and options, as a page of the documentation."""
    lines = [
        "# Commands",
        "",
        "Generated from the code (`make docs`); a test fails when it is out of date. `fedassay COMMAND --help` shows",
        "the same in a terminal.",
        "",
        "Exit codes: 0 success; 2 wrong usage or input, with one sentence that says what to do; 3 refused by a policy",
        "or a budget; 4 the federation failed, too few clients for instance; 5 an audit, or `fedassay verify`, has",
        "found something, or the signer was not checked.",
        "",
    ]
    for name, command in commands():
        lines += _command(name, command)
    return "\n".join(lines).rstrip() + "\n"


def _command(name: str, command: Callable[..., Any]) -> Iterator[str]:
    listed = inspect.signature(command).parameters.values()
    words = [one for one in listed if is_word(one)]
    options = [one for one in listed if not is_word(one) and declared(one).show is not False]
    yield from (f"## {name}", "", "```", " ".join([name, *map(_word, words), "[OPTIONS]"]), "```", "")
    yield from (inspect.cleandoc(command.__doc__ or ""), "")
    for one in words:
        yield f"- `{_word(one).strip('[]')}`: {_said(one)}"
    if words:
        yield ""
    if options:
        yield from ("| option | takes | meaning |", "|---|---|---|")
        yield from (f"| {_names(one)} | {_takes(one)} | {_said(one)} |" for one in options)
        yield ""


def _word(argument: inspect.Parameter) -> str:
    (name,) = names_of(argument)
    return name if argument.default is inspect.Parameter.empty else f"[{name.strip('[]')}]"


def names_of(parameter: inspect.Parameter) -> tuple[str, ...]:
    """What the command line calls it."""
    return tuple(declared(parameter).name or ()) or (f"--{parameter.name.replace('_', '-')}",)  # type: ignore[arg-type]


def _names(option: inspect.Parameter) -> str:
    return ", ".join(f"`{name}`" for name in names_of(option))


def _takes(option: inspect.Parameter) -> str:
    """What follows the option: a word for it, or its choices."""
    kind = item_of(get_args(option.annotation)[0])
    if kind is bool:
        return ""
    if isinstance(kind, EnumType):
        return ", ".join(f"`{one.value}`" for one in kind)  # type: ignore[var-annotated]
    if get_origin(kind) is Literal:
        return ", ".join(f"`{one}`" for one in get_args(kind))
    return str(declared(option).metavar)


def _said(parameter: inspect.Parameter) -> str:
    """Its help, whether it is required, and its default where the help does not say it."""
    text = " ".join(str(declared(parameter).help or "").split()).replace("|", "\\|")
    default = parameter.default
    if default is inspect.Parameter.empty:
        return f"{text} **Required.**".strip()
    if default in (None, False, True, (), "") or "Default" in text:
        return text
    return f"{text} Default: `{getattr(default, 'value', default)}`."
