"""The table of trust models: complete, computed, and right about what each needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedassay import Simulation, evaluate
from fedassay.kernel.agenda import Agenda
from fedassay.planning import Expectation, PlannedStudy, predict_tasks
from fedassay.planning.other_terms import TrustRow, trust_table
from fedassay.protocol.vocabulary import Budget, Protection
from fedassay.tasks.card import KINDS
from fedassay.tasks.evaluation.evaluate import Evaluate
from fedassay.trust import TRUST_MODELS, SecureSum, ServerDP
from fedassay.trust.card import TRUST_CARDS

DATA = Expectation(rows=6_000, clients=12, prevalence=0.3, auc=0.8)
MAIN = KINDS["evaluate"].forecast.load()(name="evaluate", task=Evaluate(height=6))


def table(**others: Any) -> dict[str, TrustRow]:
    study = PlannedStudy(
        **{"expectation": DATA, "trust": ServerDP(), "budget": Budget(epsilon=1, delta=1e-6), **others}
    )
    return {row.card.name: row for row in trust_table([(MAIN, study)], "roc_auc", label="evaluate.roc_auc")}


def test_all_trust_models_are_there() -> None:
    rows = table()
    assert list(rows) == list(TRUST_MODELS) == list(TRUST_CARDS)
    assert [name for name, row in rows.items() if row.chosen] == ["server-dp"]
    for name, row in rows.items():
        assert (row.budget is not None) == TRUST_MODELS[name].private


def test_widths_are_those_of_a_plan() -> None:
    rows = table(protection=Protection(rows_per_client=500))
    agenda = Agenda.of("evaluate", {"height": 6})
    for name in ("secure-sum", "server-dp", "distributed-dp", "two-server"):
        kind = TRUST_MODELS[name]
        study = PlannedStudy(
            expectation=DATA,
            trust=kind(),
            budget=Budget(epsilon=1, delta=1e-6) if kind.private else None,
            protection=Protection(rows_per_client=500),
        )
        planned = predict_tasks(agenda, study, shares={"evaluate": 1.0})
        assert rows[name].width == planned["evaluate"].metrics["roc_auc"].width
        assert (rows[name].instead, rows[name].reason) == (None, None)
    assert rows["secure-sum"].width < rows["server-dp"].width < rows["two-server"].width
    assert rows["two-server"].width < rows["local-dp"].width


def test_other_terms_are_said_and_impossible_ones_have_a_reason() -> None:
    rows = table()
    assert rows["two-server"].instead == "rows_per_client = 500"
    assert rows["two-server"].reason is None
    few = table(expectation=Expectation(rows=1_000, clients=2, prevalence=0.3, auc=0.8))
    assert few["secure-sum"].reason is not None
    assert few["secure-sum"].reason.startswith("evaluate: ")
    assert few["secure-sum"].to_dict()["width"] is None
    assert few["server-dp"].reason is None


def test_without_a_budget_the_usual_one_is_shown() -> None:
    rows = table(trust=SecureSum(), budget=None)
    assert rows["secure-sum"].chosen
    assert rows["server-dp"].budget == Budget(epsilon=1, delta=1e-6)


def test_what_is_needed() -> None:
    rows = table()
    assert {name: row.clients for name, row in rows.items() if row.clients > 1} == {
        "secure-sum": 3,
        "distributed-dp": 3,
        "shuffle": 3,
    }
    assert {name for name, row in rows.items() if row.servers > 1} == {"two-server", "shuffle"}


@pytest.mark.parametrize("name", TRUST_MODELS)
def test_how_often_a_client_answers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in a run in which every message is carried."""
    kind, legs = TRUST_MODELS[name], set[tuple[bytes, int]]()
    respond = kind.respond

    def counted(self: Any, request: Any, *others: Any) -> Any:
        legs.add((request.exchange, request.leg))
        return respond(self, request, *others)

    monkeypatch.setattr(kind, "respond", counted)
    rng = np.random.default_rng(1)
    scores = rng.random(60)
    evaluate(
        {"score": scores, "label": (rng.random(60) < scores).astype(int), "client": np.arange(60) % 6},
        score="score",
        label="label",
        client="client",
        privacy=kind(),
        budget=Budget(epsilon=1, delta=1e-6) if kind.private else None,
        protection=Protection(rows_per_client=10),
        height=4,
        simulation=Simulation(seed=1, mode="faithful"),
    )
    assert len(legs) == TRUST_CARDS[name].rounds
