"""Every mechanism under every trust model that sums, client by client; and a million points once."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from drawn_values import setting_of
from fedassay.data.federation import load
from fedassay.kernel.agenda import Alone
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Budget, Protection, TrustModel, Unit
from fedassay.study.simulation import Simulation, simulate
from fedassay.tasks.distribution import Ecdf, SearchQuantiles, quantile_at
from fedassay.trust import DistributedDP, LocalDP, Plain, SecureSum, ServerDP, TwoServer
from simulated_clients import clients_of

ROWS, CLIENTS = 6_000, 8


def data(rows: int = ROWS, clients: int = CLIENTS) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    label = (rng.random(rows) < 0.5).astype(np.int8)
    return {"site": rng.integers(0, clients, rows), "x": rng.normal(50 + 8 * label, 12), "y": label}


def simulated(
    task: Any,
    trust: TrustModel,
    budget: Budget | None,
    rows: dict[str, Any],
    *,
    protection: Protection | None = None,
    **simulation: Any,
) -> dict[str, Any]:
    columns = {"value": "x", "label": "y"} if getattr(task, "labelled", False) else {"value": "x"}
    return simulate(
        Alone(name="ecdf", task=task),
        rows,
        columns=columns,
        client="site",
        trust=trust,
        budget=budget,
        protection=protection or Protection(),
        parameters={},
        simulation=Simulation(seed=5, **simulation),
    ).results


TRUSTS: dict[str, tuple[TrustModel, Budget | None]] = {
    "plain": (Plain(), None),
    "secure-sum": (SecureSum(), None),
    "server-dp": (ServerDP(), Budget(epsilon=4.0)),
    "server-dp, delta": (ServerDP(), Budget(epsilon=4.0, delta=1e-6)),
    "distributed-dp": (DistributedDP(), Budget(epsilon=4.0)),
    "distributed-dp, delta": (DistributedDP(), Budget(epsilon=4.0, delta=1e-6)),
    "local-dp": (LocalDP(), Budget(epsilon=4.0)),
    "local-dp, delta": (LocalDP(), Budget(epsilon=4.0, delta=1e-6)),
}


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("mechanism", ["tree", "path", "factorised"])
@pytest.mark.parametrize("name", TRUSTS)
def test_every_mechanism_under_every_trust_model(name: str, mechanism: str, labelled: bool) -> None:
    trust, budget = TRUSTS[name]
    rows = data()
    task = Ecdf(lower=0, upper=100, points=64, mechanism=mechanism, quantiles=(0.5,), labelled=labelled)
    results = simulated(task, trust, budget, rows, mode="faithful")
    assert results["mechanism"] == (mechanism if budget else "none")
    reason = results.get("reason", "")
    if not reason:  # eight clients, each with a square root's noise for a pure epsilon, drown these rows
        low, high = results["quantiles"][0]["interval"]
        assert low <= np.median(rows["x"]) <= high
        truth = np.mean(rows["x"][:, None] <= np.array(results["points"]), axis=0)
        assert (np.array(results["lower"]) <= truth + 1e-12)[:-1].all()
        assert (truth <= np.array(results["upper"]) + 1e-12).all()
    else:
        assert "not enough evidence" in reason
        assert (mechanism, trust.name) == ("factorised", "local-dp")
    if labelled and not reason:
        low, high = results["roc_auc"]["interval"]
        assert low < 0.68 < high


def test_one_row_per_client_reports_on_one_level() -> None:
    """Under local-dp such clients randomise bits, and the overall curve takes both classes' bits in."""
    rows = {name: column for name, column in data(20_000).items() if name != "site"}
    federation = load(rows, client=None, columns={"value": "x", "label": "y"})
    task = Ecdf(lower=0, upper=100, points=64, quantiles=(0.5,), labelled=True)
    setting = setting_of(LocalDP(), 4.0, clients=federation.client_count, unit=Unit.CLIENT, rows_per_client=1)
    results = run(
        [Job(name="ecdf", task=task, setting=setting)],
        runtime=clients_of(federation, seed=5),
        ledger=MemoryLedger(None),
        randomness=SimulatedRandomness(5),
        study="reports",
    )["ecdf"]
    assert results["noise"]["law"] == "unary"
    assert results["mechanism"] == "tree"
    truth = np.mean(rows["x"][:, None] <= np.array(results["points"]), axis=0)
    assert (np.abs(np.array(results["values"]) - truth)[:-1] < 0.05).all()
    assert (np.array(results["lower"]) <= truth + 1e-12)[:-1].all()
    assert (truth <= np.array(results["upper"]) + 1e-12).all()
    low, high = results["quantiles"][0]["interval"]
    assert low < np.median(rows["x"]) < high
    assert results["roc_auc"]["interval"][0] < 0.68 < results["roc_auc"]["interval"][1]
    assert quantile_at(json.loads(json.dumps(results)), 0.5) == results["quantiles"][0]


@pytest.mark.parametrize("mechanism", ["tree", "path", "factorised"])
def test_two_servers_answer_every_mechanism(mechanism: str) -> None:
    rows = data(60, 6)
    task = Ecdf(lower=0, upper=100, points=32, mechanism=mechanism, quantiles=(0.5,))
    bound = Protection(rows_per_client=20)
    results = simulated(task, TwoServer(), Budget(epsilon=30.0, delta=1e-6), rows, protection=bound)
    assert results["mechanism"] == mechanism
    assert results["noise"]["copies"] == 2
    low, high = results["quantiles"][0]["interval"]
    assert low < np.median(rows["x"]) < high


def test_two_servers_answer_a_search() -> None:
    rows = data(60, 6)
    task = SearchQuantiles(lower=0, upper=100, points=256, quantiles=(0.5, 0.8))
    bound = Protection(rows_per_client=20)
    results = simulated(task, TwoServer(), Budget(epsilon=30.0), rows, protection=bound)
    assert results["evaluations"] <= 1 + 6 * 8
    for entry in results["quantiles"]:
        low, high = entry["interval"]
        assert low < np.quantile(rows["x"], entry["quantile"]) < high


def test_a_million_points() -> None:
    rows = data(100_000)
    task = Ecdf(lower=0, upper=100, points=1 << 20, quantiles=(0.25,))
    results = simulated(task, ServerDP(), Budget(epsilon=1.0), rows, mode="aggregate")
    document = json.dumps(results)
    entry = quantile_at(json.loads(document), 0.5)
    assert len(document) < 10_000_000
    assert entry["interval"][0] < np.median(rows["x"]) < entry["interval"][1]
    assert entry["interval"][1] - entry["interval"][0] < 0.5
