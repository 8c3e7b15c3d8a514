"""One attack carried out: how much of the claimed epsilon it has found."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedassay.audit.bound import LowerBound, Scores, lower_bound, scores
from fedassay.audit.cases import Case
from fedassay.errors import UsageError
from fedassay.privacy.randomness import SecureRandomness

AuditProgress = Callable[[int, int], None]
"""Called with the runs that are done and the runs in all."""

SAMPLES = 1_000
"""Runs of each world, unless more are asked for: enough to find noise that is half of what it should be."""

CONFIDENCE = 0.95
"""That no bound of an audit is wrong, all of them together."""

_ROUNDING = 1e-9
"""Of norms, which are floats."""


@dataclass(frozen=True, kw_only=True)
class AuditFinding:
    """What an attack has found.

    Parameters
    ----------
    bound : epsilon is at least this.
    moved : how far the two worlds are apart, as a part of the claimed sensitivity.
    """

    case: Case
    bound: LowerBound
    moved: float
    runs: int
    seconds: float

    @property
    def violated(self) -> bool:
        """Whether the claim is wrong: more was found than is claimed, or the noise is made for less than moves."""
        return self.bound.epsilon > self.case.budget.epsilon or self.moved > 1 + _ROUNDING

    @property
    def tightness(self) -> float:
        """The audited epsilon as a part of the claimed one."""
        return self.bound.epsilon / self.case.budget.epsilon

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
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
    tell = progress or _silent
    found: list[dict[str, Scores]] = []
    done = 0
    for world in (0, 1):
        parts = []
        for views in case.runs(world, samples, source.child(f"world-{world}")):
            parts.append(scores(views, case.known))
            done += len(views)
            tell(done, 2 * samples)
        found.append({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    return AuditFinding(
        case=case,
        bound=lower_bound(*found, delta=case.budget.delta, confidence=confidence),
        moved=case.moved,
        runs=2 * samples,
        seconds=time.perf_counter() - started,
    )


def each_confidence(confidence: float, claims: int) -> float:
    """The confidence of single statements, so that all of them hold together with this one (Bonferroni).

    Examples
    --------
    >>> round(each_confidence(0.95, 10), 4)
    0.995
    """
    if not 0.5 <= confidence < 1:
        raise UsageError(f"confidence: got {confidence:.6g}, expected a number from 0.5 to below 1.")
    return 1 - (1 - confidence) / max(1, claims)


def _silent(done: int, total: int) -> None:
    """No progress."""
