"""`fedassay audit`: attack the claims of this library with its own code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

from rich.console import Console
from rich.progress import Progress, TaskID, TimeElapsedColumn

from fedassay.audit.bound import FEWEST_SAMPLES
from fedassay.audit.catalogue import cases, matches
from fedassay.audit.findings import (
    CONFIDENCE,
    RUNS,
    SAMPLES,
    AuditFinding,
    Covered,
    attacked,
    coverage_cases,
    covered,
    each_confidence,
)
from fedassay.audit.secrecy import Secrecy, SecrecyCase, secrecy_cases, tried
from fedassay.cli import options, output
from fedassay.cli.command import Option, command
from fedassay.errors import UsageError
from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.protocol.texts import printable
from fedassay.protocol.vocabulary import Randomness
from fedassay.version import VERSION

# --- findings as rows of words ------------------------------------------------------------------------------

Row = dict[str, str]


def privacy_row(finding: AuditFinding) -> Row:
    """Return one line of the table of claims."""
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
    """Return one line of the table of promises."""
    return {
        "case": found.case.name,
        "statement": found.case.promise.statement,
        "promised": f"{found.case.promise.level:.3g}",
        "covered": f"{found.share:.3f}",
        "between": f"{found.low:.3f} to {found.high:.3f}",
        "violated": "YES" if found.violated else "no",
    }


def secrecy_row(found: Secrecy) -> Row:
    """Return one line of the table of what a lying coordinator opens."""
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
"""Exit code if a claim is violated: neither a wrong use (2) nor a federation that failed (4)."""


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
    chosen = _chosen(case or [])
    console = output.console_beside(json, quiet=quiet)
    if show:
        _show_cases(chosen, output.console_beside(json))
        return
    if samples < FEWEST_SAMPLES:
        raise UsageError(f"samples: got {samples}, expected at least {FEWEST_SAMPLES} of each world.")
    if runs < 1:
        raise UsageError(f"runs: got {runs}, expected at least 1.")
    each = each_confidence(confidence, len(chosen["privacy"]) + len(chosen["coverage"]))
    source = SecureRandomness() if seed is None else SimulatedRandomness(seed)
    attacks: Mapping[str, Callable[..., Any]] = {
        "privacy": partial(attacked, samples=samples, confidence=each),
        "secrecy": _tried,
        "coverage": partial(covered, runs=runs, confidence=each),
    }
    found: _Findings = {kind: [] for kind in attacks}
    with output.bar(TimeElapsedColumn(), quiet=quiet) as (bar, work):
        for kind, attack in attacks.items():
            for claim in chosen[kind]:
                bar.reset(work, description=claim.name)
                told = partial(_advance, bar, work)
                found[kind].append(attack(claim, randomness=source.child(claim.name), progress=told))
    violated = [one.case.name for findings in found.values() for one in findings if one.violated]
    content = {kind: [one.to_dict() for one in findings] for kind, findings in found.items()}
    about = {"violated": violated, "fedassay": VERSION}
    output.write_json({"task": "audit", "confidence": confidence, **content, **about}, json)
    _render(found, violated, confidence, console)
    if violated:
        sys.exit(FOUND)


_Findings = dict[str, list[Any]]
"""Findings, or the cases that are to be tried, by kind of claim."""


def _chosen(names: list[str]) -> _Findings:
    every = {"privacy": cases(), "secrecy": secrecy_cases(), "coverage": coverage_cases()}
    for name in names:
        if not any(matches(one, name) for kind in every.values() for one in kind):
            raise UsageError(f"case: got {name!r}, expected the name of a case; see fedassay audit --list.")
    return {
        kind: [
            case for one, case in catalogue.items() if not names or any(matches(one, name) for name in names)
        ]
        for kind, catalogue in every.items()
    }


def _tried(case: SecrecyCase, *, randomness: Randomness, progress: object) -> Secrecy:
    return tried(case, randomness=randomness)


def _advance(bar: Progress, work: TaskID, done: int, total: int) -> None:
    bar.update(work, completed=done, total=total)


def _show_cases(chosen: _Findings, console: Console) -> None:
    table = output.titled("Cases", "case", "what is asked", "how the worlds differ")
    table.columns[0].no_wrap = True  # what --case takes
    for claim in chosen["privacy"]:
        table.add_row(printable(claim.name), printable(claim.mechanism), printable(claim.neighbours))
    for secret in chosen["secrecy"]:
        table.add_row(printable(secret.name), printable(secret.attack), "")
    for case in chosen["coverage"]:
        table.add_row(printable(case.name), printable(case.promise.statement), "")
    console.print(table)


def _render(found: _Findings, violated: list[str], confidence: float, console: Console) -> None:
    each = "each bound at confidence"
    if claims := found["privacy"]:
        runs, bound = claims[0].runs // 2, claims[0].bound
        title = f"Privacy, 2 x {runs:,} runs for each claim, {each} {bound.confidence:.6g}"
        _print_table(title, [privacy_row(one) for one in claims], console)
    if secrets := found["secrecy"]:
        title = "Secrecy of sums, against a coordinator that lies"
        _print_table(title, [secrecy_row(one) for one in secrets], console)
    if promises := found["coverage"]:
        title = f"Coverage, {promises[0].runs:,} runs for each promise, {each} {promises[0].confidence:.6g}"
        _print_table(title, [coverage_row(one) for one in promises], console)
    if violated:
        console.print(f"[bold red]Violated:[/] {printable(', '.join(violated))}", soft_wrap=True)
        return
    text = (
        f"[green]No violation found[/] in {sum(map(len, found.values()))} attacks; all bounds hold together with "
        f"confidence {confidence:.6g}. That nothing was found is no proof."
    )
    output.say(console, text, markup=True)


def _print_table(title: str, rows: list[Row], console: Console) -> None:
    table = output.titled(title, *rows[0])
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(*map(printable, row.values()))
    console.print(table)
