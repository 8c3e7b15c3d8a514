"""The command that runs a kind of task on rows, made from its card: `fedassay evaluate` and so on.

An attribute of this module is the command of that name.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from fedassay.cli import options, output
from fedassay.cli.command import GivenOptions, Option, OptionsOf, keyword, takes, with_default
from fedassay.errors import UsageError
from fedassay.protocol.files import write_atomically
from fedassay.tasks.card import KINDS, KindCard
from fedassay.tasks.command import ARTEFACT_FILE, CommandCard, Input, StateFile
from fedassay.trust.card import DEFAULT_TRUST
from fedassay.version import VERSION

Command = Callable[..., Any]


def __getattr__(name: str) -> Command:
    if name not in KINDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return command_of(name)


@cache
def command_of(name: str) -> Command:
    """Return the command of this name; kinds that are asked for by the same name are its alternatives."""
    card = KINDS[name]
    said = declaration(card)
    alternatives = {one.reads: one for one in KINDS.values() if one.asked_as == name}
    parameters = OptionsOf(
        "parameters",
        {reads: one.declared.load() for reads, one in alternatives.items()},
        panels={reads: f"{one.section} of {reads}" for reads, one in alternatives.items() if one is not card},
        without=(*(one.name for one in said.inputs), *said.without),
    )

    def run_it(*, parameters: GivenOptions, run: options.RunOptions, **inputs: Any) -> None:
        _run(card, said, run, {name: one for name, one in inputs.items() if one is not None}, parameters)

    own = [keyword(one.name, _annotation(one), *(() if one.required else (None,))) for one in said.inputs]
    own += [keyword("parameters", GivenOptions), keyword("run", options.RunOptions)]
    run_it.__doc__ = said.sentence
    run_it.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    run = with_default(options.run, "privacy", card.privacy or DEFAULT_TRUST)
    return takes(run, parameters)(run_it)


def declaration(card: KindCard) -> CommandCard:
    """Return the command that the card declares; by default, the columns are its options."""
    if card.command is not None:
        return card.command
    from fedassay.data.schema import ROLES

    columns = (
        Input(name=role, sentence=f"Column with {ROLES[role].expected}.", required=True)
        for role in card.columns
    )
    return CommandCard(
        sentence=card.sentence, inputs=(*columns, *((ARTEFACT_FILE,) if card.artefact else ()))
    )


def _run(
    card: KindCard, said: CommandCard, run: options.RunOptions, inputs: GivenOptions, parameters: GivenOptions
) -> None:
    output.check_writable(*(inputs.get(one.name) for one in said.inputs if one.file))
    if said.check is not None:
        said.check.load()({**inputs, **parameters}, run.terms)
    out = inputs.pop(ARTEFACT_FILE.name, None)
    states = {
        one: inputs.pop(one.name) for one in said.inputs if isinstance(one, StateFile) and one.name in inputs
    }
    inputs |= {one.name: _state(one, path) for one, path in states.items()}
    if said.entry_point is None:
        from fedassay.api.terms import run_task

        result = run.ask(partial(run_task, card.name), columns=inputs, **parameters)
    else:
        result = run.ask(said.entry_point.load(), in_rounds=said.in_rounds, **inputs, **parameters)
    written = [path for one, path in states.items() if _write_state(one, path, result.results)]
    run.delivery.deliver(result, out=out, also=written)


def _annotation(said: Input) -> Any:
    kind: Any = Path if said.file else str
    return Annotated[kind if said.required else kind | None, Option(metavar=said.metavar, help=said.sentence)]


# --- states -----------------------------------------------------------------------------------------------------


def _state(said: StateFile, path: Path) -> Any:
    """Return the state of an earlier run, None if there is no such file; refuse and keep any other file."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or found.get("kind") != f"fedassay {said.content}":
        raise UsageError(
            f"--{said.name} {path}: got a file that is not a {said.content}, and would be overwritten; expected one "
            "that an earlier run wrote, or a new name."
        )
    return found


def _write_state(said: StateFile, path: Path, results: Mapping[str, Any]) -> bool:
    """Write the state that is needed to go on; without it, leave the file as it was."""
    if said.name not in results:
        return False
    document = {"kind": f"fedassay {said.content}", "fedassay": VERSION, **results[said.name]}
    write_atomically(path, json.dumps(document, allow_nan=False) + "\n")
    return True
