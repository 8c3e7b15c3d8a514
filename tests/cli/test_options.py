"""Every command is built with every installed kind of task, and has an option for each of their parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_args

import pytest

from fedassay.cli.command import declared, flag_of, is_word
from fedassay.cli.commands import functions
from fedassay.protocol.parameters import parameters
from fedassay.tasks.card import PARAMETERS

BETWEEN_SITES = ("fedassay aggregate", "fedassay flower submit")
NO_OPTION = {"seed", "target"}
"""A release takes no seed; sites name their own columns."""

COMMANDS = dict(functions())


def flags(command: Callable[..., Any]) -> list[str]:
    found = []
    for one in inspect.signature(command).parameters.values():
        names: Any = declared(one).name
        found += [] if is_word(one) else list(names) or [f"--{one.name.replace('_', '-')}"]
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_each_option_once_with_a_sentence(name: str) -> None:
    command = COMMANDS[name]
    assert len(set(flags(command))) == len(flags(command))
    for one in inspect.signature(command).parameters.values():
        assert declared(one).help or declared(one).show is False, one.name
        assert get_args(one.annotation), one.name


@pytest.mark.parametrize("name", BETWEEN_SITES)
@pytest.mark.parametrize("kind", PARAMETERS)
def test_between_sites_every_parameter_of_every_kind_has_an_option(name: str, kind: str) -> None:
    wanted = {flag_of(one) for one in parameters(PARAMETERS[kind]) if one.name not in NO_OPTION}
    assert wanted <= set(flags(COMMANDS[name]))
