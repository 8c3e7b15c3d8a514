"""How much of the true class the scores APS and RAPS count, on pooled rows: all of it, nothing, or a random part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from experiments.common import Floats, generator
from experiments.conformal_sets import IID, Outputs, Scope, case_of
from fedassay.coverage.law import split_rank

PARTS: Mapping[str, str] = {
    "all": "with all of itself",
    "none": "without itself",
    "random": "with a random part of itself",
}
PENALTIES: Mapping[str, float] = {"aps": 0.0, "raps": 0.01}
FREE_RANKS = 5


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Over the test rows: coverage, mean size of the sets, and the share of empty ones."""

    coverage: float
    size: float
    empty: float


def conventions(outputs: Outputs, scope: Scope) -> dict[tuple[str, str, str], list[Counted]]:
    """(data, score, part) to the outcomes of all splits."""
    found: dict[tuple[str, str, str], list[Counted]] = {}
    for number in range(scope.splits):
        case = case_of(outputs, IID, number, scope)
        rng = generator(scope.seed, "parts", outputs.name, str(number))
        both = [(part, softmax(part.logits, axis=1)) for part in (case.calibration, case.test)]
        for score, penalty in PENALTIES.items():
            for part in PARTS:
                mine, theirs = (scores(p, part, penalty, rng) for _, p in both)
                (fit, _), (test, _) = both
                true = np.sort(mine[np.arange(len(mine)), fit.labels])
                held = theirs <= true[split_rank(len(true), scope.level) - 1]
                outcome = Counted(
                    coverage=float(held[np.arange(len(held)), test.labels].mean()),
                    size=float(held.sum(axis=1).mean()),
                    empty=float(np.mean(~held.any(axis=1))),
                )
                found.setdefault((outputs.name, score, part), []).append(outcome)
    return found


def scores(probabilities: Floats, part: str, penalty: float, rng: np.random.Generator) -> Floats:
    """Of each class of each row: the probability of more probable classes, and a part of its own."""
    order = np.argsort(-probabilities, axis=1, kind="stable")
    own = np.take_along_axis(probabilities, order, axis=1)
    shape = (len(own), 1)
    left_out = {"all": np.zeros(shape), "none": np.ones(shape), "random": rng.random(shape)}[part]
    ranks = np.arange(1, own.shape[1] + 1)
    ordered = np.cumsum(own, axis=1) - left_out * own + penalty * np.maximum(0, ranks - FREE_RANKS)
    found: Floats = np.empty_like(ordered)
    np.put_along_axis(found, order, ordered, axis=1)
    return found
