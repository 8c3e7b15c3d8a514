"""Command of a kind of task: its options besides the parameters of the task and those of every command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedassay.protocol.cards import Named

LAST = 1_000
"""Place in the list of commands after all others."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """An option that is no parameter of the task: a column, or a file.

    Parameters
    ----------
    name : name of the option, and of the argument of the entry point.
    sentence : its sentence in the help.
    required : True if it has to be given.
    metavar : name of its value in the help.
    file : True if it names a file to be written.
    """

    name: str
    sentence: str
    required: bool = False
    metavar: str | None = None
    file: bool = False


@dataclass(frozen=True, kw_only=True)
class StateFile(Input):
    """A file that keeps a state: a run goes on from it where it exists, and writes the new one afterwards.

    The entry point takes the state, and its results have it, under the name of the option.

    Parameters
    ----------
    content : noun for its content, in the file and in errors.
    """

    content: str
    file: bool = True


@dataclass(frozen=True, kw_only=True)
class CommandCard:
    """Facts about a kind that the command line needs besides its parameters.

    Parameters
    ----------
    sentence : sentence in the help.
    inputs : options that are no parameters, in the order of the help; they stand before the parameters.
    entry_point : the typed function that it calls; None for the function that runs any kind.
    order : place in the list of commands, where those of the library itself are 0, 10, 20 and so on.
    without : parameters that have no option, because the columns or the data decide them.
    check : function that refuses options that contradict each other, or the setting, before anything is opened.
    in_rounds : True if the task reports its rounds, for the progress bar.
    """

    sentence: str
    inputs: tuple[Input, ...]
    entry_point: Named[Callable[..., Any]] | None = None
    order: int = LAST
    without: tuple[str, ...] = ()
    check: Named[Callable[..., None]] | None = None
    in_rounds: bool = False


ARTEFACT_FILE = Input(
    name="out", metavar="FILE.json", sentence="Write the artefact, for `fedassay apply`.", file=True
)
"""The option of kinds that have an artefact."""

CLASSIFIER_COLUMNS = (
    Input(
        name="label",
        sentence="Column with the true labels: 0 or 1, or with --logits 0, 1, 2, ..",
        required=True,
    ),
    Input(name="score", sentence="Column with a binary model's probabilities, in [0, 1]."),
    Input(
        name="logits",
        metavar="COLUMN",
        sentence="In the place of --score, for several classes: a column of lists, or how numbered columns begin.",
    ),
)
"""Columns of a classifier of two or several classes."""
