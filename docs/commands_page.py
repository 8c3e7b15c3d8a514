"""The reference of the command line, made from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator

import click
import typer

from fedassay.cli.commands import app


def commands_page(program: typer.Typer = app) -> str:
    """Every command with its arguments and options, as a page of the documentation."""
    whole = typer.main.get_command(program)
    lines = [
        "# Commands",
        "",
        "Generated from the code (`make docs`); a test fails when it is out of date. `fedassay COMMAND --help` shows",
        "the same in a terminal.",
        "",
        "Exit codes: 0 success; 2 wrong usage or input, with one sentence that says what to do; 3 refused by a policy",
        "or a budget; 4 the federation failed, too few clients for instance; 5 an audit, or `fedassay verify`, has",
        "found something.",
        "",
    ]
    for name, command in _all(whole, "fedassay"):
        lines += _command(name, command)
    return "\n".join(lines).rstrip() + "\n"


def _all(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """The commands below this one that do something, in the order in which help lists them."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    for child, below in command.commands.items():
        yield from _all(below, f"{name} {child}")


def _command(name: str, command: click.Command) -> Iterator[str]:
    words = [one.make_metavar(click.Context(command)) for one in _arguments(command)]
    yield from (f"## {name}", "", "```", " ".join([name, *words, "[OPTIONS]"]), "```", "")
    yield from ((command.help or "").strip(), "")
    for one in _arguments(command):
        yield f"- `{one.make_metavar(click.Context(command)).strip('[]')}`: {_said(one)}"
    if _arguments(command):
        yield ""
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    if options:
        yield from ("| option | takes | meaning |", "|---|---|---|")
        yield from (f"| {_names(one)} | {_takes(one)} | {_said(one)} |" for one in options)
        yield ""


def _arguments(command: click.Command) -> list[click.Argument]:
    return [one for one in command.params if isinstance(one, click.Argument)]


def _names(option: click.Option) -> str:
    names = [*option.opts, *option.secondary_opts]
    return ", ".join(f"`{name}`" for name in names)


def _takes(option: click.Option) -> str:
    """What follows the option: a word for it, or its choices."""
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return ", ".join(f"`{choice}`" for choice in option.type.choices)
    return option.metavar or option.type.name.upper()


def _said(parameter: click.Parameter) -> str:
    """Its help, whether it is required, and its default where the help does not say it."""
    text = " ".join(str(getattr(parameter, "help", None) or "").split()).replace("|", "\\|")
    if parameter.required:
        return f"{text} **Required.**".strip()
    default = parameter.default
    if default in (None, False, True, (), "") or callable(default) or "Default" in text:
        return text
    return f"{text} Default: `{getattr(default, 'value', default)}`."
