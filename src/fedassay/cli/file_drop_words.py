"""What `contribute` says, and what it says to do next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedassay.crypto.identity import fingerprint
from fedassay.errors import PolicyRefusal
from fedassay.kernel.sites import SiteFile
from fedassay.privacy.policy.disclosure import Disclosure
from fedassay.protocol.texts import visible
from fedassay.protocol.vocabulary import COORDINATOR
from fedassay.runtimes.file_drop import Announcement, CheckedRequest, Over
from fedassay.runtimes.file_drop.participant import announcement_fingerprint

_SHOWN = 12
"""Values of an array that are printed; --json writes all of them."""

_LONGEST = 60
"""Characters of a parameter."""


def say(console: Console, text: str) -> None:
    """A sentence of ours around names of theirs: nothing in it is markup."""
    console.print(escape("\n".join(map(visible, text.split("\n")))), soft_wrap=True, highlight=False)


def nothing_asked(drop: Path, name: str, console: Console) -> None:
    """When the drop holds nothing for this site."""
    say(
        console,
        f"{drop}: holds nothing for {name} yet. Next: wait until the coordinator has run `fedassay aggregate`, "
        "fetch the folder, and run this again.",
    )


def over(state: Over, console: Console) -> None:
    """When the coordinator has said its last word."""
    if state.reason == "finished":
        say(console, f"The study {state.announcement.study} is finished; there is nothing left to do.")
    else:
        say(
            console,
            f"The coordinator has gone on without this site's last reply in {state.announcement.study}; there "
            "is nothing to do now.",
        )


def sent(path: Path, asked: CheckedRequest, console: Console) -> None:
    """After a reply."""
    say(console, f"The reply to request {asked.number} is in {path}.")
    say(
        console,
        "Next: bring the folder back to the coordinator. When `fedassay aggregate` has run there, fetch it and "
        "run this again, until it says that the study is finished.",
    )


def request(asked: CheckedRequest, file: SiteFile, console: Console) -> None:
    """What is asked, before anybody agrees to it."""
    announcement, opened = asked.announcement, asked.opened
    table = Table(title=f"Request {asked.number} to {file.name}", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for title, value in _facts(announcement, asked, file):
        table.add_row(title, escape(visible(value)))
    console.print(table)
    say(console, opened.trust.statement(announcement.setting))


def _facts(announcement: Announcement, asked: CheckedRequest, file: SiteFile) -> Iterator[tuple[str, str]]:
    opened = asked.opened
    budget, protection = announcement.budget, announcement.protection
    yield "study", announcement.study
    yield "announcement", announcement_fingerprint(announcement)
    yield "coordinator", f"key {fingerprint(file.credentials.roster[COORDINATOR])}"
    for item in announcement.agenda.items:
        share = "" if item.share == 1 else f", {item.share:.3g} of the budget"
        yield "task", f"{item.label}{share}"
        yield "parameters", ", ".join(f"{key} {value}" for key, value in item.parameters.items())
    for plan in opened.request.plans:
        summary = plan.query.of
        columns = ", ".join(f"{role} ({file.columns.get(role, 'missing')})" for role in summary.columns)
        yield (
            "measured",
            f"{summary.name}: {summary.length:,} whole numbers from {columns}; {plan.query.part} rows",
        )
        yield "its parameters", ", ".join(_parameters(summary)) or "none"
    yield "trust model", f"{opened.trust.name}, leg {opened.request.leg + 1} of this question"
    yield "protected unit", f"{protection.unit}, {protection.neighbours}"
    if protection.rows_per_client is not None:
        yield "rows used", f"at most {protection.rows_per_client:,}"
    profile = _profile(file)
    if profile is not None and opened.trust.shows_measurements:
        yield "small counts", f"{profile.words} before they leave ({profile.name})"
    price = "no noise" if budget is None else f"epsilon {budget.epsilon:.3g}, delta {budget.delta:.3g}"
    yield "budget", f"{price}; recorded in the ledger of {file.dataset}"
    yield "cohort", f"{len(announcement.roster)} sites: {', '.join(announcement.roster)}"
    attendance = opened.trust.attendance(len(announcement.roster))
    if attendance:
        yield "attendance", attendance


def _parameters(summary: Any) -> Iterator[str]:
    """The public fields of a summary, which a policy judges; long ones shortened."""
    for entry in fields(summary):
        text = repr(getattr(summary, entry.name))
        yield f"{entry.name} {text if len(text) <= _LONGEST else text[:_LONGEST] + '…'}"


def _profile(file: SiteFile) -> Disclosure | None:
    try:
        return file.policy.now().disclosure
    except PolicyRefusal:  # then nothing leaves at all
        return None


def reply(content: dict[str, Any], asked: CheckedRequest, console: Console) -> None:
    """A decoded reply: all that would leave."""
    table = Table(title="What would leave this site", title_justify="left", title_style="bold")
    for title in ("field", "what", "bytes", "content"):
        table.add_column(title, overflow="fold")
    for path, value in _leaves(content):
        table.add_row(*map(escape, (path, *_described(value))))
    console.print(table)
    say(
        console,
        "Beside this, the file holds the study, the names of sender and recipient, the number of the request and "
        "a signature; the reply is sealed so that only the coordinator can read it.",
    )
    say(
        console,
        "This was a dry run on copies: nothing was sent, charged or kept. Keys and noise will be drawn anew. Next: "
        "the same command without --dry-run.",
    )


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _described(value: Any) -> tuple[str, str, str]:
    if isinstance(value, np.ndarray):
        shape = " × ".join(f"{length:,}" for length in value.shape)
        return f"{shape} numbers ({value.dtype})", f"{value.nbytes:,}", _numbers(value)
    if isinstance(value, bytes):
        return "bytes", f"{len(value):,}", value[:16].hex() + ("…" if len(value) > 16 else "")
    return type(value).__name__, f"{len(str(value).encode()):,}", str(value)


def _numbers(value: np.ndarray[Any, Any]) -> str:
    places = np.flatnonzero(value)
    shown = ", ".join(f"{place}: {value.flat[place]}" for place in places[:_SHOWN])
    more = f", … ({len(places):,} are not zero)" if len(places) > _SHOWN else ""
    return f"{shown}{more}; all others are 0" if len(places) < value.size else f"{shown}{more}"
