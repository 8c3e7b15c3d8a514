"""Findings as rows of words, by column. Numbers keep three digits, however small they are."""

from __future__ import annotations

from fedassay.audit.coverage import Covered
from fedassay.audit.findings import Finding
from fedassay.audit.secrecy import Secrecy

Row = dict[str, str]


def privacy_row(finding: Finding) -> Row:
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
