"""The stated audit: every case with secure randomness and enough runs; the table of docs/verification.md.

All bounds hold together with a confidence of 99 %: with that probability, none of these tests fails although all claims
hold.
"""

from __future__ import annotations

import pytest

from fedassay.audit.catalogue import cases
from fedassay.audit.findings import attacked, coverage_cases, covered, each_confidence
from stated import Verify

SAMPLES, SLOW_SAMPLES, RUNS = 3_000, 1_500, 400
SLOW = ("distributed-dp", "shuffle", "two-server")
"""Some messages for each run, where the others have one."""

EACH = each_confidence(0.99, len(cases()) + len(coverage_cases()))


@pytest.mark.full
@pytest.mark.parametrize("name", list(cases()))
def test_no_claim_is_violated(name: str, verify: Verify) -> None:
    case = cases()[name]
    samples = SLOW_SAMPLES if case.trust_model in SLOW else SAMPLES
    found = attacked(case, samples=samples, confidence=EACH)
    verify(
        f"audit, {name}: {case.mechanism}; {case.trust_model}, {'/'.join(case.laws)}; {case.neighbours}: epsilon at "
        f"most {case.budget.epsilon:.3g} at delta {case.budget.delta:.3g}",
        f"at least {found.bound.epsilon:.3g} ({found.tightness:.0%}), worlds {found.moved:.0%} of the sensitivity "
        f"apart; 2 x {samples:,} runs, confidence {EACH:.5f}",
    )
    assert not found.violated


@pytest.mark.full
@pytest.mark.parametrize("name", list(coverage_cases()))
def test_no_promise_is_broken(name: str, verify: Verify) -> None:
    case = coverage_cases()[name]
    found = covered(case, runs=RUNS, confidence=EACH)
    verify(
        f"audit, {name}: {case.promise.statement}; {case.trust.name}: covers in at least {case.promise.level:.0%}",
        f"{found.share:.1%} of {RUNS} runs, {found.low:.3f} to {found.high:.3f} at confidence {EACH:.5f}",
    )
    assert not found.violated
