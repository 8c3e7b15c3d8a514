"""The questions of `fedassay init`, each with a default; with --yes the defaults are the answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from rich.console import Console
from rich.prompt import Prompt

from fedassay.cli import output
from fedassay.data.schema import ROLES
from fedassay.errors import UsageError
from fedassay.protocol.texts import printable
from fedassay.study.column_roles import MODELS, Look, candidates, guess_clients, guess_model
from fedassay.trust import TRUST_MODELS
from fedassay.trust.card import TRUST_CARDS

NOBODY = "-"
"""Answer for no column."""

EPSILON = 1.0
_MOST_NAMED = 8


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Questions to the user; if `silent`, the defaults are the answers."""

    console: Console
    silent: bool

    def one(self, question: str, default: str | None, choices: Sequence[str] | None = None) -> str | None:
        """Ask for an answer; return None if there is no default and no answer."""
        if self.silent:
            return default
        shown = None if choices is None else list(choices)
        while True:
            found = Prompt.ask(question, default=default, choices=shown, console=self.console)
            if found:
                return found.strip()

    def several(self, question: str, default: Iterable[str], choices: Sequence[str]) -> tuple[str, ...]:
        """Ask for some of these, separated by commas."""
        text = ", ".join(default)
        while True:
            found = self.one(f"{question} ({', '.join(choices)})", text) or ""
            chosen = tuple(dict.fromkeys(one.strip() for one in found.split(",") if one.strip()))
            if chosen and set(chosen) <= set(choices):
                return chosen
            self.console.print(f"Please name some of {', '.join(choices)}, separated by commas.")

    def number(self, question: str, default: float, *, below: float | None = None) -> float:
        """Ask for a number above 0, and below another one if that is given."""
        expected = "above 0" if below is None else f"between 0 and {below:g}"
        while True:
            found = self.one(question, f"{default:g}")
            try:
                number = float(found or "")
            except ValueError:
                number = -1.0
            if 0 < number < (float("inf") if below is None else below):
                return number
            self.console.print(f"Please give a number {expected}, such as {default:g}.", highlight=False)

    def column(self, question: str, default: str | None, wrong: Callable[[str], str | None]) -> str | None:
        """Ask for the name of a column, and again while something is `wrong` with it.

        The same answer twice is taken: the check of the rows then says where they are wrong, and ends the questions.
        """
        refused = None
        while True:
            found = self.one(question, default)
            problem = None if found is None or found == refused or self.silent else wrong(found)
            if problem is None:
                return found
            self.console.print(printable(problem), highlight=False, soft_wrap=True)
            refused = found


def roles_given(texts: Iterable[str]) -> dict[str, str]:
    """Return options such as score=p, by role."""
    found = {}
    for text in texts:
        role, _, column = text.partition("=")
        if role not in ROLES or not column:
            raise UsageError(f"--role: got {text!r}, expected ROLE=COLUMN, with one of {', '.join(ROLES)}.")
        found[role] = column
    return found


def check_free(out: Path, asker: Asker, *, force: bool) -> None:
    """Refuse to overwrite a study without permission, and to begin what could not be written at the end."""
    folder = out.absolute().parent
    if not folder.is_dir():
        raise UsageError(f"{out}: its folder does not exist; create it, or give another --out.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"{out}: you may not write to the folder {folder}; give another file with --out, such as one in your home."
        )
    if not out.exists() or force:
        return
    if asker.one(f"{printable(str(out))} exists. Overwrite it?", "no", ["yes", "no"]) != "yes":
        raise UsageError(f"{out}: exists already; give --force to overwrite it, or another --out.")


# --- columns ----------------------------------------------------------------------------------------------------


def ask_columns(
    look: Look, asker: Asker, given: Mapping[str, str], client: str | None
) -> tuple[dict[str, str], str | None]:
    """Ask for the columns by role, and the one that names the client.

    Where several columns could play a role equally well, the user has to choose: silently none is taken.
    """
    wanted: tuple[str, ...] = ()
    if not given or set(given) & {role for roles in MODELS.values() for role in roles}:
        model = guess_model(look, given)
        if not given:
            model = asker.one("What does the model give for a row?", model, list(MODELS)) or model
        wanted = MODELS[model]
    columns = dict(given)
    for role in wanted:
        if role in given or (role == "prediction" and {"lower", "upper"} & given.keys()):
            continue
        columns[role] = _ask_role(look, asker, role, columns, client)
    owner = _ask_client(look, asker, columns) if client is None else client
    return columns, None if owner == NOBODY else owner


def _ask_role(look: Look, asker: Asker, role: str, columns: Mapping[str, str], client: str | None) -> str:
    likely = candidates(look, role, columns, client=client)
    if asker.silent and len(likely) > 1:
        raise UsageError(
            f"{look.label}: {_either(likely)} be the {role}; say --role {role}={likely[-1]}, if that is the one."
        )
    question = f"Which column is the {role}?"
    if len(likely) > 1:
        question = f"{question} ({printable(_either(likely))} be it)"
    found = asker.column(
        question, likely[0] if len(likely) == 1 else None, lambda name: _wrong(look, role, name, columns)
    )
    if found is None:
        raise UsageError(
            f"{look.label}: none of its columns looks like the {role}, {ROLES[role].expected}; name it with --role "
            f"{role}=COLUMN."
        )
    return found


def _ask_client(look: Look, asker: Asker, columns: Mapping[str, str]) -> str | None:
    likely = guess_clients(look, columns)
    if asker.silent and len(likely) > 1:
        raise UsageError(
            f"{look.label}: {_either(likely)} name the client; say --client {likely[0]}, if that is the one, or "
            f"--client {NOBODY} if none is."
        )

    def wrong(name: str) -> str | None:
        return None if name == NOBODY else _unknown(name, look.names)

    default = likely[0] if len(likely) == 1 else NOBODY
    return asker.column(f"Which column names the client ({NOBODY} for none)?", default, wrong)


def _wrong(look: Look, role: str, name: str, columns: Mapping[str, str]) -> str | None:
    """Return the objection to a column in a role, None if there is none."""
    if name not in look.known(role):
        return _unknown(name, look.known(role))
    other = next((other for other, column in columns.items() if column == name), None)
    if other is not None:
        return f"{name} is the {other} already; please name another column."
    column = next((column for column in look.columns if column.name == name), None)
    if column is not None and not column.could_be(role):
        return (
            f"{name} does not look like the {role}, {ROLES[role].expected}; name another column, or the same again to "
            "see which rows do not fit."
        )
    return None


def _unknown(name: str, known: Sequence[str]) -> str | None:
    if name in known:
        return None
    close = get_close_matches(name, known, n=1)
    meant = f" Did you mean {close[0]}?" if close else ""
    return f"There is no column {name!r}.{meant} The columns are {shortened(known)}."


def _either(names: Sequence[str]) -> str:
    """Name several columns as those that could be meant."""
    if len(names) == 2:
        return f"{names[0]} and {names[1]} could both"
    if len(names) > _MOST_NAMED:
        return f"{shortened(names)} could all"
    return f"{', '.join(names[:-1])} and {names[-1]} could all"


def shortened(names: Sequence[str]) -> str:
    """Return the first of the names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


# --- terms and tasks --------------------------------------------------------------------------------------------


def ask_terms(asker: Asker, privacy: str | None, epsilon: float | None) -> tuple[str, float | None]:
    """Ask for the trust model and, if it needs one, the epsilon."""
    if privacy is None and not asker.silent:
        _show_trust_models(asker.console)
    default = "secure-sum" if epsilon is None else "distributed-dp"
    trust = privacy or asker.one("Which trust model?", default, list(TRUST_MODELS)) or default
    if trust not in TRUST_MODELS:
        raise UsageError(
            f"--privacy: {trust!r} is not a trust model; expected one of {', '.join(TRUST_MODELS)}."
        )
    if not TRUST_MODELS[trust].private:
        if epsilon is not None:
            raise UsageError(
                f"--epsilon: {trust} adds no noise, so that a budget would promise nothing; leave it out."
            )
        return trust, None
    return trust, epsilon if epsilon is not None else asker.number(
        "Which epsilon, for all tasks together?", EPSILON
    )


def ask_tasks(asker: Asker, given: Sequence[str] | None, possible: Sequence[str]) -> tuple[str, ...]:
    """Ask for the tasks of the study, among those that the columns allow."""
    if not given:
        return asker.several("What shall be asked?", possible, possible)
    for one in given:
        if one not in possible:
            raise UsageError(f"--task: got {one!r}, expected one of {', '.join(possible)} for these columns.")
    return tuple(dict.fromkeys(given))


def _show_trust_models(console: Console) -> None:
    headings = ("trust model", "the server learns", "readers learn", "rests on")
    table = output.titled("Who learns what", *headings)
    for name, card in TRUST_CARDS.items():
        table.add_row(name, card.server_learns, card.readers_learn, card.rests_on)
    console.print(table)
