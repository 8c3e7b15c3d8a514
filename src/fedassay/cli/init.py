"""`fedassay init`: a first study from a data file, after a few questions."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.table import Table

from fedassay.cli import options, output
from fedassay.cli.command import Argument, Option, command
from fedassay.cli.init_questions import (
    Asker,
    ask_columns,
    ask_tasks,
    ask_terms,
    check_free,
    roles_given,
    shortened,
)
from fedassay.data.check import CheckReport
from fedassay.data.check import check as check_data
from fedassay.data.federation import load
from fedassay.data.findings import Severity
from fedassay.data.sources import CompleteRows, Folder, Missing, left_out, open_source, source_named
from fedassay.data.sql import Database, is_url
from fedassay.errors import DataError, UnsupportedQuery, UsageError
from fedassay.kernel.run import rehearse
from fedassay.protocol.files import write_atomically
from fedassay.protocol.texts import printable
from fedassay.study.column_roles import Look, look_at
from fedassay.study.file import StudyFile
from fedassay.study.first_study import SIMULATED_CLIENTS, Draft
from fedassay.study.folder import folder_of
from fedassay.study.schema import schema_text
from fedassay.summaries.quantities import QUANTITIES, scores_of
from fedassay.tasks.card import KINDS
from fedassay.trust import TRUST_MODELS

# --- what a first study can ask -----------------------------------------------------------------------------


def tasks_of(columns: Mapping[str, str]) -> tuple[str, ...]:
    """Return the tasks that these columns allow.

    Examples
    --------
    >>> tasks_of({"target": "y", "prediction": "p"})
    ('conformal',)
    """
    fitting = (
        card.asked_as
        for card in KINDS.values()
        if KINDS[card.asked_as].in_first_study
        and any(roles <= columns.keys() for roles in card.study_rules.column_sets())
    )
    possible = tuple(dict.fromkeys(fitting))
    if not possible:
        raise UsageError(
            f"columns: {', '.join(columns)} alone is not enough; also name the rest of score and label, class and "
            "logits, target and prediction, value, or features and target."
        )
    return possible


def parameters_of(
    tasks: tuple[str, ...],
    source: Any,
    columns: Mapping[str, str],
    *,
    level: float | None,
    classes: int | None,
) -> dict[str, dict[str, Any]]:
    """Return necessary entries of tasks: the coverage, and public ranges, for which the first rows are looked at."""
    found = {
        task: KINDS[task].study_rules.first_entries(columns, level, classes, partial(_range, source, columns))
        for task in tasks
    }
    return {task: entries for task, entries in found.items() if entries}


def _range(source: Any, columns: Mapping[str, str], quantity: str) -> list[float]:
    """Return a range with room for twice as much as the first rows have, in round numbers."""
    roles = {role: columns[role] for role in QUANTITIES[quantity].columns}
    batch = next(iter(load(source, columns=roles).pooled().batches()))
    scores = scores_of(batch, quantity, ())
    low, high = float(scores.min()), float(scores.max())
    room = (high - low) / 2 or max(abs(high), 1.0)
    known = QUANTITIES[quantity].lower
    return [_rounded(low - room, math.floor) if known is None else known, _rounded(high + room, math.ceil)]


def _rounded(number: float, how: Any) -> float:
    """Round to two digits, downwards or upwards."""
    if number == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(number))) - 1)
    return float(f"{how(number / step) * step:.6g}")


def affordable(
    draft: Draft, out: Path, profile: Mapping[str, Any], *, insist: bool
) -> tuple[Draft, dict[str, str]]:
    """Return the draft without tasks that its trust model does not answer, and the reasons.

    Raises if the user insists on these tasks.

    A public number of rows per client is added where that is all that is missing.
    """
    kept, refused = draft, _refused(draft, out, profile)
    if refused and "largest_client" in profile:
        bounded = replace(draft, rows_per_client=int(profile["largest_client"]))
        again = _refused(bounded, out, profile)
        if len(again) < len(refused):
            kept, refused = bounded, again
    remaining = tuple(task for task in kept.tasks if task not in refused)
    if refused and (insist or not remaining):
        raise UnsupportedQuery(next(iter(refused.values())))
    return replace(kept, tasks=remaining), refused


def _refused(draft: Draft, out: Path, profile: Mapping[str, Any]) -> dict[str, str]:
    study = StudyFile.parse(draft.text(), out)
    known = {
        task.name: {"classes": profile.get("classes", 2)}
        for task in study.tasks
        if "classes" in task.looked_up
    }
    features = {task.name: {"features": ["x"]} for task in study.tasks if "features" in task.looked_up}
    found = {}
    for job in study.agenda(known={**known, **features}).jobs(study.setting(int(profile.get("clients", 0)))):
        try:
            rehearse(job.task, job.setting)
        except (UnsupportedQuery, UsageError) as error:
            found[job.name] = str(error)
    return found


# --- `fedassay init` ----------------------------------------------------------------------------------------

_DELTA = 1e-6
_MOST_SHOWN = 30
_OPTION = re.compile(r"--transform (\w+)")
"""Pattern of the advice of findings, as an option of the commands for single tasks."""


@command
def init(
    data: Annotated[
        str | None,
        Argument(
            metavar="[DATA]",
            help="A .parquet, .csv or .npz file, a folder with one file per site, or a database URL with --query.",
        ),
    ] = None,
    out: Annotated[Path, Option(metavar="FILE", help="The study file to write.")] = Path("study.toml"),
    query: Annotated[str | None, Option(help="With a database URL: the SELECT whose rows are used.")] = None,
    role: Annotated[
        list[str] | None,
        Option(metavar="ROLE=COLUMN", help="A column in its role, such as score=p; may be repeated."),
    ] = None,
    client: Annotated[
        str | None, Option(metavar="COLUMN", help="Column that names the client; - if there is none.")
    ] = None,
    privacy: Annotated[
        str | None, Option(help="Trust model: " + ", ".join(TRUST_MODELS) + ". Default: secure-sum.")
    ] = None,
    epsilon: Annotated[float | None, Option(help="Budget of all tasks together. Default: 1.")] = None,
    task: Annotated[
        list[str] | None, Option(help="What to ask; may be repeated. Default: what the columns allow.")
    ] = None,
    level: Annotated[float | None, Option(help="Coverage of prediction sets. Default: 0.9.")] = None,
    missing: Annotated[
        Literal["refuse", "report"] | None,
        Option(help="Rows in which a value is missing: an error, or left out and counted. Default: refuse."),
    ] = None,
    name: Annotated[str | None, Option(help="Of the study. Default: that of the data.")] = None,
    yes: Annotated[bool, Option("--yes", "-y", help="Ask nothing: options and defaults.")] = False,
    force: Annotated[bool, Option("--force", help="Overwrite the file if it is there.")] = False,
    schema: Annotated[
        bool, Option("--schema", help="Write study.schema.json next to it, by which editors help.")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a first study: look at a data file, ask a few questions, and say what to do next."""
    if not yes and not sys.stdin.isatty():
        raise UsageError("init: this is not a terminal; use --yes, and options for what is not the default.")
    asker = Asker(console=Console(quiet=quiet), silent=yes)
    given = roles_given(role or [])
    check_free(out, asker, force=force)
    data, source, look = _looked(asker, data, query)
    _show_columns(look, asker.console)
    columns, owner = ask_columns(look, asker, given, client)
    _show_roles(look, columns, owner, asker.console)
    missing = _settled(asker, source, columns, missing)
    rows: Any = CompleteRows(data=source, columns=columns) if missing == "report" else source
    report = check_data(rows, client=owner, columns=columns)
    _complain(report, asker.console)
    dealt = owner is None and look.sites is None
    profile = _profile(report, dealt=dealt)
    trust, budget = ask_terms(asker, privacy, epsilon)
    chosen = ask_tasks(asker, task, tasks_of(columns))
    if level is None and any(KINDS[kind].study_rules.needs_level for kind in chosen):
        level = asker.number("What share of new rows shall prediction sets cover?", 0.9, below=1)
    draft = Draft(
        name=name or _name(data, out),
        path=data if is_url(data) else os.path.relpath(data, out.absolute().parent),
        query=query,
        client=owner,
        dealt=dealt,
        columns=columns,
        trust=trust,
        epsilon=budget,
        delta=_DELTA,
        tasks=chosen,
        missing=missing,
        parameters=parameters_of(chosen, rows, columns, level=level, classes=profile.get("classes")),
        expected=_expected(profile, columns),
        schema="./study.schema.json" if schema else None,
    )
    draft, left_out = affordable(draft, out, profile, insist=bool(task))
    study = StudyFile.parse(draft.text(), out)
    folder_of(study)  # refuses a name that is that of the data
    write_atomically(out, draft.text())
    if schema:
        write_atomically(out.absolute().parent / "study.schema.json", schema_text())
    _say(study, left_out, asker.console)


def _looked(asker: Asker, given: str | None, query: str | None) -> tuple[str, Path | Database, Look]:
    """Return where the rows are and what they look like; ask again for a file that cannot be read."""
    while True:
        data = given if given is not None else asker.one("Which file holds the rows?", None)
        if data is None:
            raise UsageError("DATA: missing; give a file, a folder or a database URL.")
        try:
            source = source_named(data, query)
            return data, source, look_at(source)
        except (DataError, UsageError) as error:
            if given is not None or asker.silent:
                raise
            output.say(asker.console, str(error))


def _settled(
    asker: Asker, source: Path | Database, columns: Mapping[str, str], given: Missing | None
) -> Missing:
    """Return the treatment of rows in which a value is missing; ask where there are some."""
    if given is not None or asker.silent:
        return given or "refuse"
    opened = open_source(CompleteRows(data=source, columns=columns))
    found = left_out(list(opened.sites.values()) if isinstance(opened, Folder) else [opened])
    if found is None or not found.missing:
        return "refuse"
    question = f"{printable(found.words)}. Leave these rows out, and count them in the result?"
    return "report" if asker.one(question, "yes", ["yes", "no"]) == "yes" else "refuse"


def _name(data: str, out: Path) -> str:
    """Return a name for the study, made from that of the data but different from the folder that holds them."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(data.partition("?")[0]).stem).strip("._-")
    name = stem[:40] or "study"
    taken = not is_url(data) and (out.absolute().parent / name).resolve() == Path(data).resolve()
    return f"{name[:34]}-study" if taken else name


def _profile(report: CheckReport, *, dealt: bool) -> dict[str, Any]:
    """Return the profile of the rows once they are at clients."""
    profile: dict[str, Any] = dict(report.profile)
    if dealt:
        rows = profile["rows"]
        clients = min(SIMULATED_CLIENTS, rows)
        profile |= {"clients": clients, "largest_client": math.ceil(rows / clients)}
    return profile


def _expected(profile: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {name: profile[name] for name in ("rows", "clients") if name in profile}
    if "score" in columns and 0 < profile.get("prevalence", 0) < 1:
        found |= {"prevalence": float(f"{profile['prevalence']:.2g}"), "auc": 0.8}
    if "logits" in columns and "classes" in profile:
        found["classes"] = profile["classes"]
    return found


# --- words ------------------------------------------------------------------------------------------------------


def _show_columns(look: Look, console: Console) -> None:
    first = f"its first {look.rows:,} rows" if look.rows > 1 else "its first row"
    output.say(console, f"[bold]{printable(look.label)}[/]: what {first} look like", markup=True)
    table = Table("column", "looks like", "different values in them")
    for column in look.columns[:_MOST_SHOWN]:
        table.add_row(
            printable(column.name), column.words, f"{column.distinct:,}" if column.distinct else "?"
        )
    console.print(table)
    if len(look.columns) > _MOST_SHOWN:
        console.print(f".. and {len(look.columns) - _MOST_SHOWN} more columns.")


def _show_roles(look: Look, columns: Mapping[str, str], owner: str | None, console: Console) -> None:
    """Show the role of each column, and the columns left over: a wrong guess must be seen."""
    roles = [f"{role} = {name}" for role, name in columns.items()]
    nobody = "each file is one" if look.sites is not None else "no column, rows are dealt at random"
    used = look.played(columns) | {owner}
    unused = [name for name in look.names if name not in used]
    output.say(
        console,
        f"Roles: {', '.join(roles)}; client: {owner or nobody}.",
        f"Not used: {shortened(unused)}." if unused else "All columns are used.",
    )


def _complain(report: CheckReport, console: Console) -> None:
    """Report the findings of `fedassay check`: errors stop, warnings are shown."""
    for finding in report.findings:
        if finding.severity is Severity.ERROR:
            raise DataError(finding.sentence())
        if finding.severity is Severity.WARNING:
            text = _OPTION.sub(r'transform = "\1" in the tasks of the study', finding.sentence())
            output.say(console, f"[yellow]warning[/] {printable(text)}", markup=True)


def _say(study: StudyFile, left_out: Mapping[str, str], console: Console) -> None:
    path = shlex.quote(str(study.path))
    output.say(
        console,
        *(f"Left out: {task}. {reason}" for task, reason in left_out.items()),
        f"Written: {study.path} ({', '.join(study.names)} under {study.trust.name}). Its comments say what to change.",
        f"What to expect of it:  fedassay plan study {path}",
        f"Run it:                fedassay run {path}",
    )
