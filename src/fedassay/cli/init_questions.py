"""The questions of `fedassay init`, each with a default; with --yes the defaults are the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.prompt import Prompt
from rich.table import Table

from fedassay.data.schema import ROLES
from fedassay.errors import UsageError
from fedassay.planning.trust_table import SECRECY
from fedassay.study.guess import MODELS, Look, guess, guess_model
from fedassay.trust import TRUST_MODELS

NOBODY = "-"
"""The answer for no column."""

EPSILON = 1.0


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Asks, or takes the defaults if nobody is to be asked."""

    console: Console
    silent: bool

    def one(self, question: str, default: str | None, choices: Sequence[str] | None = None) -> str | None:
        """An answer; None if there is no default and nobody answers."""
        if self.silent:
            return default
        shown = None if choices is None else list(choices)
        while True:
            try:
                found = Prompt.ask(question, default=default, choices=shown, console=self.console)
            except EOFError:  # nobody is there any more
                raise click.Abort from None
            if found:
                return found.strip()

    def several(self, question: str, default: Iterable[str], choices: Sequence[str]) -> tuple[str, ...]:
        """Some of these, separated by commas."""
        text = ", ".join(default)
        while True:
            found = self.one(f"{question} ({', '.join(choices)})", text) or ""
            chosen = tuple(dict.fromkeys(one.strip() for one in found.split(",") if one.strip()))
            if chosen and set(chosen) <= set(choices):
                return chosen
            self.console.print(f"Please name some of {', '.join(choices)}, separated by commas.")

    def number(self, question: str, default: float) -> float:
        """A number."""
        while True:
            found = self.one(question, f"{default:g}")
            try:
                return float(found or "")
            except ValueError:
                self.console.print("Please give a number.")


def roles_given(texts: Iterable[str]) -> dict[str, str]:
    """Options such as score=p, by role."""
    found = {}
    for text in texts:
        role, _, column = text.partition("=")
        if role not in ROLES or not column:
            raise UsageError(f"--role: got {text!r}, expected ROLE=COLUMN, with one of {', '.join(ROLES)}.")
        found[role] = column
    return found


def check_free(out: Path, asker: Asker, *, force: bool) -> None:
    """Refuse to overwrite a study that nobody has allowed to overwrite."""
    if not out.absolute().parent.is_dir():
        raise UsageError(f"{out}: its folder does not exist; create it, or give another --out.")
    if not out.exists() or force:
        return
    if asker.one(f"{escape(str(out))} exists. Overwrite it?", "no", ["yes", "no"]) != "yes":
        raise UsageError(f"{out}: exists already; give --force to overwrite it, or another --out.")


def ask_columns(
    look: Look, asker: Asker, given: Mapping[str, str], client: str | None
) -> tuple[dict[str, str], str | None]:
    """The columns by role, and the one that names the client."""
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
        found = asker.one(f"Which column is the {role}?", guess(look, role, columns.values()))
        if found is None:
            raise UsageError(
                f"{look.label}: none of its columns looks like the {role}, {ROLES[role].expected}; name it with --role "
                f"{role}=COLUMN."
            )
        columns[role] = found
    owner = client
    if owner is None:
        likely = None if look.sites is not None else guess(look, "client", columns.values())
        owner = asker.one(f"Which column names the client ({NOBODY} for none)?", likely or NOBODY)
    return columns, None if owner == NOBODY else owner


def ask_terms(asker: Asker, privacy: str | None, epsilon: float | None) -> tuple[str, float | None]:
    """The trust model and, if it needs one, the epsilon."""
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
    """What shall be asked, of what the columns allow."""
    if not given:
        return asker.several("What shall be asked?", possible, possible)
    for one in given:
        if one not in possible:
            raise UsageError(f"--task: got {one!r}, expected one of {', '.join(possible)} for these columns.")
    return tuple(dict.fromkeys(given))


def _show_trust_models(console: Console) -> None:
    table = Table(title="Who learns what", title_justify="left", title_style="bold")
    for heading in ("trust model", "the server learns", "readers learn", "rests on"):
        table.add_column(heading)
    for name in TRUST_MODELS:
        table.add_row(name, SECRECY[name].server, SECRECY[name].readers, SECRECY[name].rests_on)
    console.print(table)
