"""`fedassay audit`: attack what this library claims, with its own code."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fedassay.audit.bound import FEWEST_SAMPLES
from fedassay.audit.cases import Case
from fedassay.audit.catalogue import cases, matches
from fedassay.audit.coverage import RUNS, CoverageCase, Covered, coverage_cases, covered
from fedassay.audit.findings import CONFIDENCE, SAMPLES, Finding, attacked, each_confidence
from fedassay.audit.findings import Progress as OnProgress
from fedassay.audit.table import Row, coverage_row, privacy_row
from fedassay.cli import options
from fedassay.cli.output import check_writable
from fedassay.errors import UsageError
from fedassay.files import write_atomically
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.version import VERSION

FOUND = 5
"""The exit code if a claim is violated: neither a wrong use (2) nor a federation that failed (4)."""


def audit(
    case: Annotated[
        list[str] | None,
        typer.Option(help="Only this case, or all whose names begin with it, such as local-dp; see --list."),
    ] = None,
    samples: Annotated[
        int, typer.Option(help="Runs of each of two neighbouring worlds, for each claim about privacy.")
    ] = SAMPLES,
    runs: Annotated[int, typer.Option(help="Federations, for each promise about coverage.")] = RUNS,
    confidence: Annotated[
        float, typer.Option(help="That all bounds of this audit hold together, from 0.5 to below 1.")
    ] = CONFIDENCE,
    show: Annotated[bool, typer.Option("--list", help="Show the cases, and do nothing.")] = False,
    seed: Annotated[
        int | None, typer.Option(help="Make the audit repeatable; without one, draws are secure.")
    ] = None,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Attack the claims of this library: lower bounds of epsilon, and how often intervals cover.

    Ends with exit code 5 if a claim is violated.
    """
    check_writable(json, None)
    claims, promises = _chosen(case or [])
    console = Console(quiet=quiet, stderr=json == "-")
    if show:
        _show_cases(claims, promises, Console(stderr=json == "-"))
        return
    if samples < FEWEST_SAMPLES:
        raise UsageError(f"samples: got {samples}, expected at least {FEWEST_SAMPLES} of each world.")
    if runs < 1:
        raise UsageError(f"runs: got {runs}, expected at least 1.")
    each = each_confidence(confidence, len(claims) + len(promises))
    source = SecureRandomness() if seed is None else SimulatedRandomness(seed)
    findings, found = [], []
    with _bar(quiet=quiet) as begin:
        for claim in claims:
            how = {"confidence": each, "randomness": source.child(claim.name), "progress": begin(claim.name)}
            findings.append(attacked(claim, samples=samples, **how))
        for promise in promises:
            how = {
                "confidence": each,
                "randomness": source.child(promise.name),
                "progress": begin(promise.name),
            }
            found.append(covered(promise, runs=runs, **how))
    _deliver(findings, found, confidence=confidence, json=json)
    _render(findings, found, confidence, console)
    if _violated(findings, found):
        raise typer.Exit(FOUND)


def _chosen(names: list[str]) -> tuple[list[Case], list[CoverageCase]]:
    claims, promises = cases(), coverage_cases()
    for name in names:
        if not any(matches(one, name) for one in (*claims, *promises)):
            raise UsageError(f"case: got {name!r}, expected the name of a case; see fedassay audit --list.")

    def wanted(one: str) -> bool:
        return not names or any(matches(one, name) for name in names)

    return [claims[one] for one in claims if wanted(one)], [promises[one] for one in promises if wanted(one)]


def _violated(findings: list[Finding], found: list[Covered]) -> list[str]:
    """The names of the claims and promises that are broken."""
    return [one.case.name for one in findings if one.violated] + [
        one.case.name for one in found if one.violated
    ]


@contextmanager
def _bar(*, quiet: bool) -> Iterator[Any]:
    """One bar, for the case that is being run."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=Console(stderr=True, quiet=quiet), transient=True, disable=quiet
    ) as progress:
        bar = progress.add_task("", total=None)

        def begin(name: str) -> OnProgress:
            progress.reset(bar, description=name)

            def advance(done: int, total: int) -> None:
                progress.update(bar, completed=done, total=total)

            return advance

        yield begin


def _deliver(findings: list[Finding], found: list[Covered], *, confidence: float, json: str | None) -> None:
    if json is None:
        return
    content = {
        "task": "audit",
        "confidence": confidence,
        "privacy": [one.to_dict() for one in findings],
        "coverage": [one.to_dict() for one in found],
        "violated": _violated(findings, found),
        "fedassay": VERSION,
    }
    text = json_module.dumps(content, indent=2, allow_nan=False) + "\n"
    if json == "-":
        sys.stdout.write(text)
    else:
        write_atomically(Path(json), text)


def _show_cases(claims: list[Case], promises: list[CoverageCase], console: Console) -> None:
    table = Table(title="Cases", title_justify="left", title_style="bold")
    table.add_column("case", no_wrap=True)  # what --case takes
    for name in ("what is asked", "how the worlds differ"):
        table.add_column(name)
    for claim in claims:
        table.add_row(escape(claim.name), escape(claim.mechanism), escape(claim.neighbours))
    for promise in promises:
        table.add_row(escape(promise.name), escape(promise.statement), "")
    console.print(table)


def _render(findings: list[Finding], found: list[Covered], confidence: float, console: Console) -> None:
    if findings:
        runs, each = findings[0].runs // 2, findings[0].bound.confidence
        title = f"Privacy, 2 x {runs:,} runs for each claim, each bound at confidence {each:.6g}"
        console.print(_table(title, [privacy_row(one) for one in findings]))
    if found:
        title = f"Coverage, {found[0].runs:,} runs for each promise, each bound at confidence {found[0].confidence:.6g}"
        console.print(_table(title, [coverage_row(one) for one in found]))
    violated = _violated(findings, found)
    if violated:
        console.print(f"[bold red]Violated:[/] {escape(', '.join(violated))}", soft_wrap=True)
        return
    console.print(
        f"[green]No violation found[/] in {len(findings) + len(found)} attacks; all bounds hold together with "
        f"confidence {confidence:.6g}. That nothing was found is no proof.",
        highlight=False,
        soft_wrap=True,
    )


def _table(title: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in rows[0]:
        table.add_column(name, overflow="fold", no_wrap=name == "case")
    for row in rows:
        table.add_row(*map(escape, row.values()))
    return table
