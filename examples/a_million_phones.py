"""An on-device team evaluates a model on a million phones, each of which holds one labelled example.

    python examples/a_million_phones.py [PHONES]

Nobody is trusted with a row: each phone sends one message that is differentially private by itself. The planner says
beforehand what can be known in this way, for local messages and for messages that lose their sender in a shuffler; the
simulation then shows that it is so. With so many phones it draws totals from the law that the messages would give them
(mode aggregate) instead of making every message.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from scipy.special import expit

import fedassay
from fedassay.planning import Expectation, Study, plan_evaluation
from fedassay.protocol import TrustModel

BUDGET = fedassay.Budget(epsilon=1.0, delta=1e-8)
ONE_ROW_EACH = fedassay.Protection(unit=fedassay.Unit.CLIENT, rows_per_client=1)
TRUST_MODELS = (fedassay.LocalDP(), fedassay.Shuffle())


def phones(count: int) -> dict[str, np.ndarray]:
    """One row per phone: how sure the model was that its suggestion is taken, and whether it was."""
    rng = np.random.default_rng(7)
    wish = rng.normal(-1.0, 1.3, count)
    return {"score": expit(wish + rng.normal(0.0, 0.6, count)), "taken": rng.random(count) < expit(wish)}


def plan(count: int, trust: TrustModel) -> int:
    """Say what an AUC would be worth, without data; the height of the histogram (2^height bins) to ask for."""
    expected = Expectation(rows=count, clients=count, prevalence=0.3, auc=0.8)
    study = Study(expectation=expected, trust=trust, budget=BUDGET, protection=ONE_ROW_EACH)
    planned = plan_evaluation(study, targets={"roc_auc": 0.02})
    width = planned.predicted["roc_auc"].half_width
    epsilon = planned.inverse[0].epsilon
    enough = "no epsilon is enough" if epsilon.value is None else f"epsilon {epsilon.value:.2g} would be enough"
    height = planned.recommended.histogram.height
    print(f"  {trust.name:10} AUC within {width:.4f} (for 0.02, {enough}); best with 2^{height} score bins")
    return height


def evaluate(data: dict[str, np.ndarray], trust: TrustModel, height: int | None = None) -> None:
    """One simulated release; without a column that names the client, every row is a client."""
    started = time.perf_counter()
    result = fedassay.evaluate(
        data,
        score="score",
        label="taken",
        trust=trust,
        budget=BUDGET if trust.private else None,
        protection=ONE_ROW_EACH,
        height=height,
        simulation=fedassay.Simulation(seed=1, mode="aggregate"),
    )
    auc, slope = result["roc_auc"], result["calibration_slope"]
    print(
        f"  {trust.name:10} AUC {auc['value']:.4f} ({auc['interval'][0]:.4f} to {auc['interval'][1]:.4f}), "
        f"calibration slope {slope['value']:.3f} ({slope['interval'][0]:.3f} to {slope['interval'][1]:.3f}), "
        f"{time.perf_counter() - started:.1f} s"
    )


def main(count: int) -> None:
    """Plan, then simulate; the exact answer comes last, for comparison only."""
    print(f"{count:,} phones with one row each, epsilon {BUDGET.epsilon:g}. Before anybody is asked:")
    heights = [plan(count, trust) for trust in TRUST_MODELS]
    data = phones(count)
    print("Simulated:")
    for trust, height in zip(TRUST_MODELS, heights, strict=True):
        evaluate(data, trust, height)
    evaluate(data, fedassay.SecureSum())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
