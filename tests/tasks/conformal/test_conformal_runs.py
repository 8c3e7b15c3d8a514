"""Conformal tasks over simulated clients: who is lost, who is counted, what is spent, which mode runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fedassay
from conformal_drive import setting_of
from fedassay.data.tables import ArrayRows
from fedassay.errors import TooFewClients
from fedassay.estimation.coverage import best_server_rank
from fedassay.kernel.client import Client
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Setting
from fedassay.runtimes.in_process.runtime import Faithful
from fedassay.study.simulation import LARGEST_FAITHFUL
from fedassay.summaries.local_quantiles import local_rank
from fedassay.tasks.conformal import Conformal
from fedassay.tasks.conformal.held_out import MOST_SITES
from fedassay.trust import LocalDP, SecureSum
from simulated_clients import open_site

ROWS = (120, 100, 80, 80, 60, 60, 40, 30, 20, 10)
NAMES = tuple(f"client {number}" for number in range(len(ROWS)))


def scores() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.abs(rng.normal(size=n)) for n in ROWS]


def carried(
    task: Conformal, setting: Setting, drops: Callable[[str, int], bool] = lambda name, leg: False
) -> tuple[dict[str, Any], MemoryLedger]:
    """The results of a task over these clients, and what it has cost."""
    randomness = SimulatedRandomness(1)

    def client(name: str, values: np.ndarray) -> Client:
        return Client(
            open_site(name, lambda: ArrayRows(columns={"conformity": values}), randomness.child(name))
        )

    runtime = Faithful([client(*one) for one in zip(NAMES, scores(), strict=True)], drops=drops)
    ledger = MemoryLedger(None)
    job = Job(name="sets", task=task, setting=setting)
    results = run([job], runtime=runtime, ledger=ledger, randomness=randomness.child("server"), study="s")
    return results["sets"], ledger


def by_hand(survivors: list[int], clients: int) -> tuple[float, Any]:
    """The threshold of those who stayed, with local ranks for all and the server's for them."""
    rows = [ROWS[place] for place in survivors]
    ranks = [local_rank("spread", clients, n, 0.9) for n in rows]
    law = best_server_rank(rows, ranks, 0.9)
    own = [np.sort(scores()[place])[rank - 1] for place, rank in zip(survivors, ranks, strict=True)]
    return float(np.sort(own)[law.server_rank - 1]), law


@pytest.mark.parametrize("lost", [(), (3,), (0, 9), (1, 4, 7)])
def test_the_servers_rank_is_for_those_who_stayed(lost: tuple[int, ...]) -> None:
    gone = {NAMES[place] for place in lost}
    results, _ = carried(Conformal(method="qq"), setting_of(clients=10), lambda name, leg: name in gone)
    wanted, law = by_hand([place for place in range(10) if place not in lost], 10)
    assert results["threshold"] == wanted
    assert results["server_rank"] == law.server_rank
    assert results["clients"] == 10 - len(lost)
    assert results["guarantee"]["coverage"] == pytest.approx(law.mean)
    assert law.mean >= 0.9


@pytest.mark.parametrize("leg", [0, 1])
def test_votes_are_counted_of_those_who_stayed(leg: int) -> None:
    """The votes of a client that does not speak are not counted; those of a member that does not answer are."""
    gone = {NAMES[2], NAMES[5]}
    task, setting = Conformal(method="qq", score_range=(0.0, 4.0)), setting_of(SecureSum(), clients=10)
    results, _ = carried(task, setting, lambda name, at: name in gone and at >= leg)
    survivors = [place for place in range(10) if NAMES[place] not in gone or leg == 1]
    wanted, law = by_hand(survivors, 10)
    assert results["clients"] == len(survivors) == (10 if leg == 1 else 8)
    assert results["server_rank"] == law.server_rank
    assert wanted <= results["threshold"] <= wanted + results["step"]
    assert results["rows"] == sum(ROWS[place] for place in survivors)  # all are rungs of the ladder


def test_more_losses_than_a_secure_sum_bears_end_it() -> None:
    task = Conformal(method="qq", score_range=(0.0, 4.0))
    with pytest.raises(TooFewClients):
        carried(task, setting_of(SecureSum(), clients=10), lambda name, leg: name in NAMES[:4])


def private(epsilon: float, rows: int = 30) -> Setting:
    return setting_of(LocalDP(), clients=10, epsilon=epsilon, rows_per_client=rows)


@pytest.mark.parametrize("method", ["qq", "qq-paper"])
def test_private_choices_of_those_who_stayed(method: str) -> None:
    task = Conformal(method=method, score_range=(0.0, 4.0), bins=20, level=0.8)
    all_of_them, ledger = carried(task, private(20.0))
    assert (all_of_them["clients"], all_of_them["rows"]) == (10, None)  # how many rows they have is a secret
    assert len(ledger.charges) == 1
    fewer, _ = carried(task, private(20.0), lambda name, leg: name == NAMES[0])
    assert fewer["clients"] == 9
    for results in (all_of_them, fewer):
        assert results["guarantee"]["coverage"] >= 0.8
        assert results["infinite"] or 0.8 < results["threshold"] < 3.5
    assert method == "qq-paper" or not (all_of_them["infinite"] or fewer["infinite"])


def test_too_few_who_stay_give_everything_and_not_an_error() -> None:
    """It has been paid for: the answer says what is missing."""
    task = Conformal(method="qq", score_range=(0.0, 4.0), bins=20, level=0.9)
    results, ledger = carried(task, private(5.0), lambda name, leg: name not in NAMES[:2])
    assert len(ledger.charges) == 1
    assert results["infinite"]
    assert "got answers of 2 of 10 clients" in results["reason"]
    assert results["guarantee"]["coverage"] == 1.0


@pytest.mark.parametrize("guarantee", ["marginal", "training-conditional"])
def test_what_cannot_be_had_costs_nothing(guarantee: str) -> None:
    task = Conformal(method="qq", score_range=(0.0, 4.0), guarantee=guarantee)
    results, ledger = carried(task, private(0.1))
    assert ledger.charges == ()
    assert results["infinite"]
    assert "10 clients with 30 rows each" in results["reason"]
    assert "at ε = 0.1" in results["reason"]
    assert any("nothing was spent" in note for note in results["notes"])


def test_a_whole_client_costs_as_much_as_all_its_rows() -> None:
    """The epsilon of a choice is divided among the rows of a unit, and the reason says so."""
    task = Conformal(method="qq", score_range=(0.0, 4.0), level=0.8)
    setting = setting_of(LocalDP(), clients=10, epsilon=3.0, rows_per_client=30, unit="client")
    results, ledger = carried(task, setting)
    assert ledger.charges == ()
    assert "at ε = 0.1" in results["reason"]
    assert "left for each of 30 rows" in results["reason"]
    enough = setting_of(LocalDP(), clients=10, epsilon=600.0, rows_per_client=30, unit="client")
    results, ledger = carried(task, enough)
    assert not results["infinite"]
    assert results["guarantee"]["coverage"] >= 0.8


# --- modes ----------------------------------------------------------------------------------------------


def many(clients: int = 300, rows: int = 4) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {"site": np.repeat(np.arange(clients), rows), "s": rng.exponential(size=clients * rows)}


def simulated(mode: str = "auto", **terms: Any) -> fedassay.Result:
    options = {"client": "site", "conformity": "s", "score_range": (0, 9), **terms}
    return fedassay.conformal(many(), simulation=fedassay.Simulation(seed=1, mode=mode), **options)


def test_single_clients_are_always_simulated_faithfully() -> None:
    result = simulated(privacy=fedassay.Plain())
    assert (result.runtime["mode"], result["method"], result["clients"]) == ("faithful", "qq", 300)


@pytest.mark.parametrize("method", ["qq", "pooled"])
def test_sums_over_many_clients_are_drawn_in_aggregate_and_are_the_same(method: str) -> None:
    trust = fedassay.SecureSum()
    many_at_once = simulated(method=method, privacy=trust, holdout=0.3)
    assert many_at_once.runtime["mode"] == "aggregate"
    assert many_at_once["held_out"]["coverage"]["value"] == pytest.approx(0.9, abs=0.05)
    assert many_at_once["heterogeneity"] is not None
    plain = simulated(method=method, privacy=fedassay.Plain(), holdout=0.3)
    if method == "pooled":
        assert plain["threshold"] == many_at_once["threshold"]
    else:
        assert 0 <= many_at_once["threshold"] - plain["threshold"] <= many_at_once["step"]
    assert MOST_SITES <= LARGEST_FAITHFUL  # else a simulation could not answer
    assert plain["held_out"]["sites"] is None
    assert plain["heterogeneity"] == many_at_once["heterogeneity"] or method == "qq"
    assert plain["held_out"]["coverage"]["value"] == pytest.approx(
        many_at_once["held_out"]["coverage"]["value"], abs=0.01
    )


@pytest.mark.parametrize(
    ("trust", "more"),
    [
        (fedassay.ServerDP(), {}),
        (fedassay.DistributedDP(), {}),
        (fedassay.TwoServer(), {"protection": fedassay.Protection(rows_per_client=4)}),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_noisy_sums_over_many_clients_with_held_out_rows(trust: Any, more: dict[str, Any]) -> None:
    result = simulated(privacy=trust, budget=fedassay.Budget(epsilon=2.0), holdout=0.3, **more)
    assert (result.runtime["mode"], result["method"]) == ("aggregate", "pooled")
    assert 2.0 < result["threshold"] < 9.0
    low, high = result["held_out"]["coverage"]["interval"]
    assert low < 1 - np.exp(-result["threshold"]) < high


def test_one_row_each_reports_on_it() -> None:
    rng = np.random.default_rng(4)
    result = fedassay.conformal(
        {"s": rng.exponential(size=4000)},
        conformity="s",
        score_range=(0, 9),
        privacy=fedassay.LocalDP(),
        budget=fedassay.Budget(epsilon=4.0),
        simulation=fedassay.Simulation(seed=1),
    )
    assert (result["method"], result.runtime["mode"]) == ("pooled", "aggregate")
    assert 2.3 < result["threshold"] < 9.0
    assert result["step"] == pytest.approx(9 / 127)


def test_choices_are_made_one_by_one_also_among_many() -> None:
    result = simulated(
        privacy=fedassay.LocalDP(),
        budget=fedassay.Budget(epsilon=10.0),
        protection=fedassay.Protection(rows_per_client=4),
        bins=16,
    )
    assert (result.runtime["mode"], result["method"]) == ("faithful", "qq")
    assert result["rows"] is None
