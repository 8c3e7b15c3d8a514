"""Plans of studies: shares reach the noise, parts reach the rows, targets the split, and refusals are said."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.kernel.agenda import Agenda, Item
from fedassay.planning import (
    Expectation,
    PlannedStudy,
    Sufficiency,
    plan_study,
    predict_tasks,
    recommended_shares,
)
from fedassay.planning import (
    plan as plans,
)
from fedassay.protocol.vocabulary import Budget, Part, Protection, Unit
from fedassay.tasks.card import KINDS, TASKS
from fedassay.trust import LocalDP, SecureSum, ServerDP, TwoServer
from single_plans import forecast, plan_alone, planned

DATA = Expectation(rows=8_000, clients=10, prevalence=0.3, auc=0.8, classes=4)
QUICK: Mapping[str, Mapping[str, Any]] = {
    "evaluate": {"height": 6},
    "calibrate": {"height": 6, "method": "platt"},
    "conformal": {"sets": "binary", "holdout": 0.3, "bins": 64},
    "ecdf": {"points": 64},
    "quantiles": {"points": 64},
    "hosmer-lemeshow": {"height": 6},
    "infer": {"features": ["x", "z"], "method": "newton"},
    "evaluate-classes": {"classes": 4, "height": 4},
    "calibrate-classes": {"classes": 4, "method": "temperature"},
}


def agenda_of(*names: str, **others: Mapping[str, Any]) -> Agenda:
    after = {"conformal": "calibrate"} if {"calibrate", "conformal"} <= set(names) else {}
    return Agenda(
        items=tuple(
            Item(
                name=name,
                task=name,
                parameters={**QUICK[name], **others.get(name, {})},
                share=1 / len(names),
                after=after.get(name),
            )
            for name in names
        )
    )


def under(epsilon: float | None = 1.0, **others: Any) -> PlannedStudy:
    trust = SecureSum() if epsilon is None else ServerDP()
    budget = None if epsilon is None else Budget(epsilon=epsilon)
    return PlannedStudy(**{"expectation": DATA, "trust": trust, "budget": budget, **others})


def test_every_task_of_the_catalogue_is_predicted() -> None:
    assert set(KINDS) == set(TASKS)
    for kind, of in ((name, card.forecast.load()) for name, card in KINDS.items()):
        assert set(of.main) <= set(of.targets), kind


@pytest.mark.parametrize("kind", TASKS)
def test_a_share_is_a_smaller_budget(kind: str) -> None:
    """Of a pure epsilon, half is as good as half of it: exactly, and so for every number of every task."""
    agenda = agenda_of(kind, infer={"method": "round-plug-in"})
    study = under(
        32.0 if kind == "infer" else 4.0,
        trust=TwoServer() if kind == "quantiles" else ServerDP(),
        protection=Protection(rows_per_client=800),
        expectation=DATA.with_clients(500) if kind == "infer" else DATA,
    )
    assert study.budget is not None
    half = predict_tasks(agenda, study, shares={kind: 0.5})[kind].metrics
    less = study.with_epsilon(study.budget.epsilon / 2)
    whole = predict_tasks(agenda, less, shares={kind: 1.0})[kind].metrics
    assert half.keys() == whole.keys() >= set(KINDS[kind].forecast.load().main)
    for name, metric in half.items():
        assert metric.width == pytest.approx(whole[name].width, rel=1e-9), name
    larger = predict_tasks(agenda, study, shares={kind: 1.0})[kind].metrics
    assert (
        larger[KINDS[kind].forecast.load().main[0]].width
        < half[KINDS[kind].forecast.load().main[0]].width
        < math.inf
    )


def test_a_study_of_one_task_is_its_own_plan() -> None:
    """The same numbers as `fedassay plan evaluate` has."""
    study = plan_study(agenda_of("evaluate"), under())
    alone = plan_alone("evaluate", under(), height=6)
    assert alone.single == study.tasks["evaluate"]
    assert alone.single.share == alone.single.recommended == 1
    assert "recall" in alone.verdict  # which is about all that has a target
    assert "recall" not in study.verdict
    assert study.inverse[0].metric == f"evaluate.{alone.inverse[0].metric}"
    assert replace(study.inverse[0], metric="roc_auc") == alone.inverse[0]


def test_what_is_not_asked_for_is_not_searched_and_nothing_is_searched_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    for name in ("inverse_of", "trust_table"):
        search = getattr(plans, name)

        def counted(*given: Any, name: str = name, search: Any = search, **named: Any) -> Any:
            asked.append(name)
            return search(*given, **named)

        monkeypatch.setattr(plans, name, counted)
    alone, study = plan_alone("ecdf", under(), points=64), plan_study(agenda_of("ecdf"), under())
    assert alone.verdict
    assert asked == []
    assert alone.to_dict() == alone.to_dict()
    assert asked == ["inverse_of"]
    assert study.to_dict() == study.to_dict()
    assert sorted(asked) == ["inverse_of", "inverse_of", "trust_table"]


def test_each_task_fits_on_the_rows_that_it_will_have() -> None:
    study = under()
    tasks = predict_tasks(
        agenda_of("evaluate", "calibrate", "conformal"),
        study,
        shares={"evaluate": 0.4, "calibrate": 0.3, "conformal": 0.3},
    )
    assert {name: task.rows for name, task in tasks.items()} == {
        "evaluate": 8_000,
        "calibrate": pytest.approx(2_800),
        "conformal": pytest.approx(2_800),
    }
    apart = predict_tasks(
        agenda_of("evaluate", "conformal"), study, shares={"evaluate": 0.7, "conformal": 0.3}
    )
    assert apart["conformal"].rows == pytest.approx(5_600)
    assert apart["conformal"].metrics["spread"].width < tasks["conformal"].metrics["spread"].width
    # As many rows of the rarer outcome in one place: the same threshold.
    rarer = planned(ServerDP(), rows=0.3 * 2_800, clients=10, epsilon=0.3)
    alone = forecast("conformal", bins=64).at(rarer, ("excess",))["excess"]
    assert tasks["conformal"].metrics["excess"].width == pytest.approx(alone.width)


def test_whole_clients_are_in_one_part() -> None:
    study = under(protection=Protection(unit=Unit.CLIENT, rows_per_client=800))
    seen = study.seeing(study.part_of(Part.SECOND_FIT))
    assert seen.holders == 4
    assert seen.rows / seen.holders == pytest.approx(700)
    assert under().seeing(0.35).holders == 10


def test_given_targets_move_the_split() -> None:
    agenda = agenda_of("evaluate", "calibrate")
    loose = plan_study(agenda, under(), targets={"evaluate.roc_auc": 0.5}).shares
    tight = plan_study(agenda, under(), targets={"evaluate.roc_auc": 0.01}).shares
    assert tight["evaluate"] > 2 * loose["evaluate"]


def test_recommended_shares_are_better_than_equal_ones() -> None:
    agenda, study = agenda_of("evaluate", "ecdf"), under(0.5)
    shares = recommended_shares(agenda, study)
    best, equal = (
        max(one.ratio for one in predict_tasks(agenda, study, shares=given).values())
        for given in (shares, {"evaluate": 0.5, "ecdf": 0.5})
    )
    assert sum(shares.values()) == pytest.approx(1)
    assert best < 0.95 * equal


def test_without_noise_shares_are_equal_and_do_not_matter() -> None:
    plan = plan_study(agenda_of("evaluate", "calibrate"), under(None))
    assert set(plan.shares.values()) == {0.5}
    assert any("do not matter" in warning for warning in plan.warnings)
    assert plan.inverse[0].epsilon.reason == "secure-sum adds no noise, so epsilon plays no part"


def test_what_is_enough_has_been_predicted() -> None:
    agenda, study = agenda_of("evaluate", "ecdf", evaluate={"height": 9}), under()
    shares, target = {"evaluate": 0.6, "ecdf": 0.4}, {"evaluate.roc_auc": 0.0125}
    plan = plan_study(agenda, study, shares=shares, targets=target)
    (answer,) = plan.inverse

    def width(other: PlannedStudy) -> float:
        return predict_tasks(agenda, other, shares=shares)["evaluate"].metrics["roc_auc"].width

    assert width(study) > 0.0125
    assert answer.epsilon.value is not None
    assert (
        width(study.with_epsilon(answer.epsilon.value))
        <= 0.0125
        < width(study.with_epsilon(answer.epsilon.value / 1.05))
    )
    assert answer.rows.value is not None
    assert answer.rows.clients == 10
    more = replace(study, expectation=replace(DATA, rows=answer.rows.value))
    assert width(more) <= 0.0125
    clients = answer.clients.value
    assert clients is not None
    assert width(study.with_clients(int(clients))) <= 0.0125 < width(study.with_clients(int(clients) - 1))


def test_the_verdict_is_that_of_the_worst_task() -> None:
    plan = plan_study(
        agenda_of("evaluate", "ecdf"),
        under(),
        shares={"evaluate": 0.5, "ecdf": 0.5},
        targets={"evaluate.roc_auc": 0.5, "ecdf.band": 1e-6},
    )
    assert [task.verdict for task in plan.tasks.values()] == [Sufficiency.ENOUGH, Sufficiency.NOT_ENOUGH]
    assert plan.outcome is Sufficiency.NOT_ENOUGH
    assert plan.verdict == "Enough data for evaluate.roc_auc; not enough data for ecdf.band."


def test_all_of_it_as_json() -> None:
    plan = plan_study(agenda_of("evaluate", "calibrate"), under()).to_dict()
    assert json.loads(json.dumps(plan, allow_nan=False)) == plan
    assert set(plan) == {
        *("plan", "assumptions", "outcome", "verdict", "shares_given", "tasks", "inverse", "trust_models"),
        "warnings",
    }
    assert math.isclose(sum(task["share"] for task in plan["tasks"].values()), 1)
    assert plan["tasks"]["calibrate"]["decisive"] == ["expected_calibration_error", "held_out_brier_score"]


def test_groups_have_the_noise_of_all_of_them() -> None:
    one, many = (
        predict_tasks(agenda_of("evaluate", evaluate=given), under(), shares={"evaluate": 1.0})["evaluate"]
        for given in ({}, {"groups": ["a", "b", "c"]})
    )
    first, second = (plan.metrics["accuracy"].privacy for plan in (one, many))
    assert first is not None
    assert second == pytest.approx(2 * first, rel=0.05)


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ({"roc_auc": 0.01}, "expected TASK.METRIC, such as evaluate.roc_auc"),
        ({"calibrate.roc_auc": 0.01}, "got 'calibrate.roc_auc', expected TASK.METRIC"),
        ({"evaluate.auc": 0.01}, "got 'evaluate.auc', expected one of evaluate.roc_auc, "),
        ({"evaluate.roc_auc": 0.0}, "target evaluate.roc_auc: got 0, expected a number above 0"),
    ],
)
def test_targets_that_do_not_exist(targets: Mapping[str, float], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace(".", r"\.")):
        plan_study(agenda_of("evaluate"), under(), targets=targets)


def test_shares_that_do_not_fit_are_refused_with_a_change() -> None:
    with pytest.raises(
        UsageError, match=r"more than the budget; lower the share of evaluate from 0\.8 to 0\.6"
    ):
        plan_study(agenda_of("evaluate", "ecdf"), under(), shares={"evaluate": 0.8, "ecdf": 0.4})
    with pytest.raises(UsageError, match="expected one of each task: evaluate, ecdf"):
        plan_study(agenda_of("evaluate", "ecdf"), under(), shares={"evaluate": 0.8})


def test_what_is_not_expected_is_asked_for() -> None:
    study = under(expectation=Expectation(rows=8_000, clients=10))
    with pytest.raises(
        UsageError, match=r"evaluate: prevalence is missing: .* Give --prevalence, or put it into"
    ):
        plan_study(agenda_of("evaluate"), study)
    assert predict_tasks(agenda_of("ecdf"), study, shares={"ecdf": 1.0})["ecdf"].metrics["band"].width > 0
    with pytest.raises(UsageError, match="study: clients is missing"):
        Expectation.of({"rows": 100})
    with pytest.raises(UsageError, match="holdout"):
        under(holdout=1.0)


def test_what_a_run_would_refuse() -> None:
    """A task that no share makes possible ends the plan; one that a run would not begin makes it not enough."""
    with pytest.raises(UnsupportedQuery, match="unit='client'"):
        plan_study(
            agenda_of("evaluate", "calibrate"),
            under(trust=LocalDP(), protection=Protection(rows_per_client=1)),
        )
    precise = agenda_of("ecdf", ecdf={"points": 64, "precision": 1e-4, "expected_rows": 8_000})
    plan = predict_tasks(precise, under(), shares={"ecdf": 1.0})["ecdf"]
    assert plan.verdict is Sufficiency.NOT_ENOUGH
    assert plan.refused is not None
    assert "precision" in plan.refused
