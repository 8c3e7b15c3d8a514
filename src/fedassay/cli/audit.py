"""`fedassay audit`: attack what this library claims, with its own code."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fedassay.audit.bound import FEWEST_SAMPLES
from fedassay.audit.cases import Case
from fedassay.audit.catalogue import cases, matches
from fedassay.audit.coverage import RUNS, CoverageCase, Covered, coverage_cases, covered
from fedassay.audit.findings import CONFIDENCE, SAMPLES, AuditFinding, attacked, each_confidence
from fedassay.audit.findings import AuditProgress as OnProgress
from fedassay.audit.secrecy import Secrecy, SecrecyCase, secrecy_cases, tried
from fedassay.cli import options, output
from fedassay.cli.command import Option, command
from fedassay.errors import UsageError
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.version import VERSION

# --- findings as rows of words ------------------------------------------------------------------------------

Row = dict[str, str]


def privacy_row(finding: AuditFinding) -> Row:
    """One line of the table of claims."""
    case = finding.case
    return {
        "case": case.name,
        "mechanism": case.mechanism,
        "trust model": case.trust_model,
        "claimed": f"{case.budget.epsilon:.3g}",
        "delta": f"{case.budget.delta:.3g}",
        "audited": f"{finding.bound.epsilon:.3g}",
        "moved": f"{finding.moved:.0%}",
        "violated": "YES" if finding.violated else "no",
    }


def coverage_row(found: Covered) -> Row:
    """One line of the table of promises."""
    return {
        "case": found.case.name,
        "statement": found.case.promise.statement,
        "promised": f"{found.case.promise.level:.3g}",
        "covered": f"{found.share:.3f}",
        "between": f"{found.low:.3f} to {found.high:.3f}",
        "violated": "YES" if found.violated else "no",
    }


def secrecy_row(found: Secrecy) -> Row:
    """One line of the table of what a lying coordinator opens."""
    verdict = "as it must be" if found.case.broken else "no"
    return {
        "case": found.case.name,
        "claimed": "nothing: weakened" if found.case.broken else found.case.statement,
        "opened": found.words,
        "refusals": f"{found.refused:,}",
        "violated": "YES" if found.violated else verdict,
    }


# --- `fedassay audit` ---------------------------------------------------------------------------------------

FOUND = 5
"""The exit code if a claim is violated: neither a wrong use (2) nor a federation that failed (4)."""


@command
def audit(
    case: Annotated[
        list[str] | None,
        Option(help="Only this case, or all whose names begin with it, such as local-dp; see --list."),
    ] = None,
    samples: Annotated[
        int, Option(help="Runs of each of two neighbouring worlds, for each claim about privacy.")
    ] = SAMPLES,
    runs: Annotated[int, Option(help="Federations, for each promise about coverage.")] = RUNS,
    confidence: Annotated[
        float, Option(help="That all bounds of this audit hold together, from 0.5 to below 1.")
    ] = CONFIDENCE,
    show: Annotated[bool, Option("--list", help="Show the cases, and do nothing.")] = False,
    seed: Annotated[
        int | None, Option(help="Make the audit repeatable; without one, draws are secure.")
    ] = None,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Audit the privacy claims: bounds of epsilon, what a lying coordinator opens, how often intervals cover.

    Ends with exit code 5 if a claim is violated.
    """
    output.check_writable(json)
    claims, secrets, promises = _chosen(case or [])
    console = Console(quiet=quiet, stderr=json == "-")
    if show:
        _show_cases(claims, secrets, promises, Console(stderr=json == "-"))
        return
    if samples < FEWEST_SAMPLES:
        raise UsageError(f"samples: got {samples}, expected at least {FEWEST_SAMPLES} of each world.")
    if runs < 1:
        raise UsageError(f"runs: got {runs}, expected at least 1.")
    each = each_confidence(confidence, len(claims) + len(promises))
    source = SecureRandomness() if seed is None else SimulatedRandomness(seed)
    findings, opened, found = [], [], []
    with _bar(quiet=quiet) as begin:
        for claim in claims:
            how = {"confidence": each, "randomness": source.child(claim.name), "progress": begin(claim.name)}
            findings.append(attacked(claim, samples=samples, **how))
        for secret in secrets:
            begin(secret.name)
            opened.append(tried(secret, randomness=source.child(secret.name)))
        for promise in promises:
            how = {
                "confidence": each,
                "randomness": source.child(promise.name),
                "progress": begin(promise.name),
            }
            found.append(covered(promise, runs=runs, **how))
    all_found = _Found(claims=findings, secrets=opened, promises=found)
    _deliver(all_found, confidence=confidence, json=json)
    _render(all_found, confidence, console)
    if all_found.violated:
        sys.exit(FOUND)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What an audit has found, by kind of claim."""

    claims: Sequence[AuditFinding]
    secrets: Sequence[Secrecy]
    promises: Sequence[Covered]

    @property
    def all(self) -> list[AuditFinding | Secrecy | Covered]:
        """In the order of the tables."""
        return [*self.claims, *self.secrets, *self.promises]

    @property
    def violated(self) -> list[str]:
        """The names of the claims that are broken."""
        return [one.case.name for one in self.all if one.violated]


def _chosen(names: list[str]) -> tuple[list[Case], list[SecrecyCase], list[CoverageCase]]:
    claims, secrets, promises = cases(), secrecy_cases(), coverage_cases()
    for name in names:
        if not any(matches(one, name) for one in (*claims, *secrets, *promises)):
            raise UsageError(f"case: got {name!r}, expected the name of a case; see fedassay audit --list.")

    def wanted(one: str) -> bool:
        return not names or any(matches(one, name) for name in names)

    return (
        [claims[one] for one in claims if wanted(one)],
        [secrets[one] for one in secrets if wanted(one)],
        [promises[one] for one in promises if wanted(one)],
    )


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


def _deliver(found: _Found, *, confidence: float, json: str | None) -> None:
    if json is None:
        return
    content = {
        "task": "audit",
        "confidence": confidence,
        "privacy": [one.to_dict() for one in found.claims],
        "secrecy": [one.to_dict() for one in found.secrets],
        "coverage": [one.to_dict() for one in found.promises],
        "violated": found.violated,
        "fedassay": VERSION,
    }
    text = json_module.dumps(content, indent=2, allow_nan=False) + "\n"
    output.write(text, json)


def _show_cases(
    claims: list[Case], secrets: list[SecrecyCase], promises: list[CoverageCase], console: Console
) -> None:
    table = Table(title="Cases", title_justify="left", title_style="bold")
    table.add_column("case", no_wrap=True)  # what --case takes
    for name in ("what is asked", "how the worlds differ"):
        table.add_column(name)
    for claim in claims:
        table.add_row(escape(claim.name), escape(claim.mechanism), escape(claim.neighbours))
    for secret in secrets:
        table.add_row(escape(secret.name), escape(secret.attack), "")
    for case in promises:
        table.add_row(escape(case.name), escape(case.promise.statement), "")
    console.print(table)


def _render(found: _Found, confidence: float, console: Console) -> None:
    if found.claims:
        runs, each = found.claims[0].runs // 2, found.claims[0].bound.confidence
        title = f"Privacy, 2 x {runs:,} runs for each claim, each bound at confidence {each:.6g}"
        console.print(_table(title, [privacy_row(one) for one in found.claims]))
    if found.secrets:
        title = "Secrecy of sums, against a coordinator that lies"
        console.print(_table(title, [secrecy_row(one) for one in found.secrets]))
    if found.promises:
        runs, each = found.promises[0].runs, found.promises[0].confidence
        title = f"Coverage, {runs:,} runs for each promise, each bound at confidence {each:.6g}"
        console.print(_table(title, [coverage_row(one) for one in found.promises]))
    if found.violated:
        console.print(f"[bold red]Violated:[/] {escape(', '.join(found.violated))}", soft_wrap=True)
        return
    console.print(
        f"[green]No violation found[/] in {len(found.all)} attacks; all bounds hold together with confidence "
        f"{confidence:.6g}. That nothing was found is no proof.",
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
