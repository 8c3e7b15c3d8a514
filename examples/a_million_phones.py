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
from typing import Any

import numpy as np
from scipy.special import expit

import fedassay
from fedassay.kernel.agenda import Agenda
from fedassay.planning import Expectation, PlannedStudy, plan_study
from fedassay.protocol.vocabulary import TrustModel

BUDGET = fedassay.Budget(epsilon=1.0, delta=1e-8)
ONE_ROW_EACH = fedassay.Protection(unit=fedassay.Unit.CLIENT, rows_per_client=1)
TRUST_MODELS: tuple[TrustModel, ...] = (fedassay.LocalDP(), fedassay.Shuffle())
HEIGHT = 8
"""2^8 score bins."""


def phones(count: int) -> dict[str, np.ndarray]:
    """One row per phone: how sure the model was that its suggestion is taken, and whether it was."""
    rng = np.random.default_rng(7)
    wish = rng.normal(-1.0, 1.3, count)
    return {"score": expit(wish + rng.normal(0.0, 0.6, count)), "taken": rng.random(count) < expit(wish)}


def plan(count: int, trust: TrustModel) -> None:
    """What would an AUC be worth? No data are needed for that, only what one expects of them."""
    expected = Expectation(rows=count, clients=count, prevalence=0.3, auc=0.8)
    study = PlannedStudy(expectation=expected, trust=trust, budget=BUDGET, protection=ONE_ROW_EACH)
    planned = plan_study(Agenda.of("evaluate", {"height": HEIGHT}), study, targets={"roc_auc": 0.02})
    width = planned.tasks["evaluate"].metrics["roc_auc"].width
    epsilon = planned.inverse[0].epsilon.value
    enough = "no epsilon is enough" if epsilon is None else f"epsilon {epsilon:.2g} is enough"
    print(f"  {trust.name:10} AUC within {width:.4f}; for 0.02, {enough}")


def evaluate(data: dict[str, np.ndarray], trust: TrustModel) -> None:
    """One simulated release; without a column that names the client, every row is a client."""
    started = time.perf_counter()
    result = fedassay.evaluate(
        data,
        score="score",
        label="taken",
        privacy=trust,
        budget=BUDGET if trust.private else None,
        protection=ONE_ROW_EACH,
        height=HEIGHT,
        simulation=fedassay.Simulation(seed=1, mode="aggregate"),
    )
    seconds = time.perf_counter() - started
    print(
        f"  {trust.name:10} AUC {shown(result['roc_auc'])}, calibration slope {shown(result['calibration_slope'])}, "
        f"{seconds:.1f} s"
    )


def shown(metric: dict[str, Any]) -> str:
    """A number with its interval; under much noise there may be none, with a reason."""
    if metric["value"] is None:
        return f"unknown ({metric['reason']})"
    lower, upper = metric["interval"]
    return f"{metric['value']:.4f} ({lower:.4f} to {upper:.4f})"


def main(count: int) -> None:
    """Plan, then simulate; the exact answer comes last, for comparison only."""
    print(f"{count:,} phones with one row each, epsilon {BUDGET.epsilon:g}. Before anybody is asked:")
    for trust in TRUST_MODELS:
        plan(count, trust)
    data = phones(count)
    print("Simulated:")
    for trust in (*TRUST_MODELS, fedassay.SecureSum()):
        evaluate(data, trust)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
