"""The faithful and the aggregate mode draw from the same distribution.

Without noise the two totals are equal. With noise, released minus true counts of both modes are compared by a
two-sample chi-square test over the values -12..12 (the rest lumped together). One comparison per setting at
level 10^-4; the deliberately broken variant (an aggregate with half the scale) must be rejected.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedassay.data.federation import load
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Budget, Part, Protection, Setting, Sum, TrustModel, Unit
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.server_dp import ServerDP
from simulated_clients import clients_of
from toys import Once

LEVEL = 1e-4
SUMMARY = ScoreHistogram(transform="uniform", height=6, widths=(1, 8))


def data(rows: int = 600, clients: int = 8) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    score = rng.random(rows)
    return {
        "site": rng.integers(0, clients, rows),
        "p": score,
        "y": (rng.random(rows) < score).astype(np.int8),
    }


def released(
    mode: Any,
    seed: int,
    *,
    trust: TrustModel,
    budget: Budget | None,
    part: Part = Part.ALL,
    **protection: Any,
) -> np.ndarray[Any, Any]:
    federation = load(data(), client="site", columns={"score": "p", "label": "y"})
    setting = Setting(
        trust=trust, protection=Protection(**protection), budget=budget, clients=federation.client_count
    )
    answer = run(
        [Job(name="one", task=Once(query=Sum(of=SUMMARY, part=part)), setting=setting)],
        runtime=clients_of(federation, seed=7, mode=mode),  # the same split in every run
        ledger=MemoryLedger(None),
        randomness=SimulatedRandomness(seed, mode),
        study="modes",
    )["one"].value
    return np.concatenate([answer.positives, answer.negatives])


@pytest.mark.parametrize("trust", [Plain(), SecureSum()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("part", list(Part))
def test_without_noise_both_modes_are_equal(trust: TrustModel, part: Part) -> None:
    faithful, aggregate = (
        released(mode, 1, trust=trust, budget=None, part=part) for mode in ("faithful", "aggregate")
    )
    assert (faithful == aggregate).all()
    assert faithful.sum() > 0


def p_value(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    counts = [np.bincount(np.clip(values, -12, 12) + 12, minlength=25) for values in (left, right)]
    table = np.array(counts)
    return float(stats.chi2_contingency(table[:, table.sum(0) > 20]).pvalue)


@dataclass(frozen=True, kw_only=True)
class HalfTheScale(ServerDP):
    """Broken on purpose: its aggregate uses twice the budget."""

    def aggregate(self, plans: Any, totals: Any, clients: int, randomness: Any) -> Any:
        halved = [
            self.plan(
                p.query,
                replace(p.setting, trust=ServerDP(), budget=Budget(epsilon=2 * p.setting.budget.epsilon)),
            )
            for p in plans
        ]
        return super().aggregate(halved, totals, clients, randomness)


@pytest.mark.parametrize(
    "budget", [Budget(epsilon=1.0), Budget(epsilon=1.0, delta=1e-5)], ids=["pure", "approximate"]
)
def test_with_noise_both_modes_have_the_same_law(budget: Budget) -> None:
    truth = released("aggregate", 0, trust=Plain(), budget=None)
    noise = {
        mode: np.concatenate([released(mode, s, trust=ServerDP(), budget=budget) - truth for s in range(40)])
        for mode in ("faithful", "aggregate")
    }
    assert p_value(noise["faithful"], noise["aggregate"]) > LEVEL
    assert not np.array_equal(noise["faithful"], noise["aggregate"])


def test_an_aggregate_with_half_the_scale_is_noticed() -> None:
    truth = released("aggregate", 0, trust=Plain(), budget=None)
    budget = Budget(epsilon=1.0)
    faithful = [released("faithful", s, trust=ServerDP(), budget=budget) - truth for s in range(40)]
    broken = [released("aggregate", s, trust=HalfTheScale(), budget=budget) - truth for s in range(40)]
    assert p_value(np.concatenate(faithful), np.concatenate(broken)) < LEVEL


def test_bounded_rows_have_the_same_expectation() -> None:
    """Each client keeps 20 rows at random: both modes count 8 times 20 rows, and the same bins on average."""
    protection = {"unit": Unit.CLIENT, "rows_per_client": 20}
    sums = []
    for mode in ("faithful", "aggregate"):
        federation = load(data(), client="site", columns={"score": "p", "label": "y"})
        setting = Setting(trust=Plain(), protection=Protection(**protection), budget=None, clients=8)
        totals = []
        for seed in range(60):
            answer = run(
                [Job(name="one", task=Once(query=Sum(of=SUMMARY)), setting=setting)],
                runtime=clients_of(federation, seed=seed, mode=mode),
                ledger=MemoryLedger(None),
                randomness=SimulatedRandomness(seed, mode),
                study="modes",
            )["one"].value
            assert answer.positives[:64].sum() + answer.negatives[:64].sum() == 160
            totals.append(answer.positives[64:])
        sums.append(np.sum(totals, axis=0))
    assert stats.chi2_contingency(np.array(sums)).pvalue > LEVEL
