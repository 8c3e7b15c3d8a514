"""Findings of an audit: the part of a claimed epsilon that an attack has found, and the rate of kept promises.

For intervals and prediction sets, each run draws rows from a distribution whose truth is known, gives them to clients,
and lets the shipped task find its interval under the shipped trust model (in aggregate, where the law of the released
totals is that of the messages). Runs are independent, so that the number of those in which the statement was true is
binomial, and Clopper and Pearson (1934) bound how often it is true. Covering more than was promised is no violation:
bins and whole numbers widen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from fedassay.audit.bound import (
    LowerBound,
    Scores,
    clopper_pearson_high,
    clopper_pearson_low,
    lower_bound,
    scores,
)
from fedassay.audit.cases import Case
from fedassay.data.federation import load
from fedassay.errors import UsageError
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.vocabulary import Budget, Protection, Setting, TrustModel
from fedassay.runtimes.in_process.runtime import Aggregate
from fedassay.tasks.card import KINDS, task_of
from fedassay.tasks.promise import Promise
from fedassay.trust import SecureSum, ServerDP

AuditProgress = Callable[[int, int], None]
"""Function that is called with the number of runs that are done and of all runs."""

SAMPLES = 1_000
"""Number of runs of each world by default: enough to find noise that is half of what it should be."""

CONFIDENCE = 0.95
"""Probability that no bound of an audit is wrong, all of them together."""

_ROUNDING = 1e-9
"""Rounding error of norms, which are floats."""


@dataclass(frozen=True, kw_only=True)
class AuditFinding:
    """Finding of an attack.

    Parameters
    ----------
    bound : epsilon is at least this.
    moved : the distance of the two worlds, as a part of the claimed sensitivity.
    """

    case: Case
    bound: LowerBound
    moved: float
    runs: int
    seconds: float

    @property
    def violated(self) -> bool:
        """True if the claim is wrong: more was found than is claimed, or the noise is made for less than moves."""
        return self.bound.epsilon > self.case.budget.epsilon or self.moved > 1 + _ROUNDING

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        case, bound = self.case, self.bound
        return {
            "case": case.name,
            "mechanism": case.mechanism,
            "trust_model": case.trust_model,
            "noise": list(case.laws),
            "neighbours": case.neighbours,
            "claimed": {"epsilon": case.budget.epsilon, "delta": case.budget.delta},
            "audited": {"epsilon": bound.epsilon, "delta": bound.delta, "confidence": bound.confidence},
            "event": str(bound.event),
            "hits": list(bound.hits),
            "samples": list(bound.samples),
            "runs": self.runs,
            "moved": self.moved,
            "violated": self.violated,
            "seconds": round(self.seconds, 1),
        }


def attacked(
    case: Case,
    *,
    samples: int = SAMPLES,
    confidence: float = CONFIDENCE,
    randomness: Any = None,
    progress: AuditProgress | None = None,
) -> AuditFinding:
    """Run the case in both worlds and bound its epsilon from below.

    Guarantee: if the claim holds, a violation is found with a probability of at most 1 - confidence.

    Parameters
    ----------
    samples : runs of each world. Half of them choose the event, the other half count it.
    randomness : of clients and servers; secure unless a seeded one is given, which makes the audit repeatable.
    """
    started = time.perf_counter()
    source = SecureRandomness() if randomness is None else randomness
    found: list[dict[str, Scores]] = []
    done = 0
    for world in (0, 1):
        parts = []
        for views in case.runs(world, samples, source.child(f"world-{world}")):
            parts.append(scores(views, case.known))
            done += len(views)
            if progress is not None:
                progress(done, 2 * samples)
        found.append({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    return AuditFinding(
        case=case,
        bound=lower_bound(*found, delta=case.budget.delta, confidence=confidence),
        moved=case.moved,
        runs=2 * samples,
        seconds=time.perf_counter() - started,
    )


def each_confidence(confidence: float, claims: int) -> float:
    """Return the confidence of single statements, so that all hold together with this one (Bonferroni).

    Examples
    --------
    >>> round(each_confidence(0.95, 10), 4)
    0.995
    """
    if not 0.5 <= confidence < 1:
        raise UsageError(f"confidence: got {confidence:.6g}, expected a number from 0.5 to below 1.")
    return 1 - (1 - confidence) / max(1, claims)


# --- how often promises are kept ----------------------------------------------------------------------------

RUNS = 200
"""Number of runs by default: enough to see that a 95 % interval holds in less than 88 %."""


@dataclass(frozen=True, kw_only=True)
class CoverageCase:
    """A promise of a kind of task, and the terms under which it is counted."""

    name: str
    task: str
    promise: Promise
    trust: TrustModel
    budget: Budget | None

    def result(self, rng: np.random.Generator, randomness: Any) -> Mapping[str, Any]:
        """Return the result of the task in one federation."""
        federation = load(self.promise.draw(rng), client="client", columns=self.promise.columns)
        setting = Setting(
            trust=self.trust, protection=Protection(), budget=self.budget, clients=federation.client_count
        )
        runtime = Aggregate(
            federation, randomness=randomness.child("limit"), split_key=randomness.child("split").bytes(32)
        )
        found: Mapping[str, Any] = run(
            [Job(name=self.name, task=task_of(self.task, self.promise.parameters), setting=setting)],
            runtime=runtime,
            ledger=MemoryLedger(None),
            randomness=randomness.child("server"),
            study="audit",
        )[self.name]
        return found


@dataclass(frozen=True, kw_only=True)
class Covered:
    """Share of runs in which a statement was true, with an interval at the stated confidence."""

    case: CoverageCase
    hits: int
    runs: int
    confidence: float
    low: float
    high: float
    seconds: float

    @property
    def share(self) -> float:
        """Share of these runs."""
        return self.hits / self.runs

    @property
    def violated(self) -> bool:
        """True if the promise is broken: even the upper end is below the level."""
        return self.high < self.case.promise.level

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "case": self.case.name,
            "statement": self.case.promise.statement,
            "trust_model": self.case.trust.name,
            "level": self.case.promise.level,
            "covered": self.share,
            "interval": [self.low, self.high],
            "confidence": self.confidence,
            "runs": self.runs,
            "violated": self.violated,
            "seconds": round(self.seconds, 1),
        }


def covered(
    case: CoverageCase,
    *,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    randomness: Any = None,
    progress: AuditProgress | None = None,
) -> Covered:
    """Count in how many of `runs` federations the statement is true.

    Guarantee: a promise that is kept is called violated with a probability of at most 1 - confidence.
    """
    if runs < 1:
        raise UsageError(f"runs: got {runs}, expected at least 1.")
    started = time.perf_counter()
    source = SecureRandomness() if randomness is None else randomness
    rng = np.random.default_rng(source.child("rows").words(4).tolist())
    hits = 0
    for number in range(runs):
        hits += case.promise.holds(case.result(rng, source.child(f"run-{number}")), rng)
        if progress is not None:
            progress(number + 1, runs)
    error = (1 - confidence) / 2
    return Covered(
        case=case,
        hits=hits,
        runs=runs,
        confidence=confidence,
        low=float(clopper_pearson_low(hits, runs, error)),
        high=float(clopper_pearson_high(hits, runs, error)),
        seconds=time.perf_counter() - started,
    )


@lru_cache(maxsize=1)
def coverage_cases() -> Mapping[str, CoverageCase]:
    """Map names to cases: everything that cards of kinds of tasks promise."""
    found = [
        CoverageCase(
            name=f"coverage/{promise.name}",
            task=card.name,
            promise=promise,
            trust=ServerDP() if promise.noisy else SecureSum(),
            budget=Budget(epsilon=1.0) if promise.noisy else None,
        )
        for card in KINDS.values()
        if card.promises is not None
        for promise in card.promises.load()
    ]
    return MappingProxyType({case.name: case for case in found})
