"""Plans of a calibration of logits: the noise is that of a run, and so are refusals and costs; what is enough is."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import fedassay
from conformal_drive import answer
from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.planning import Expectation, PlannedStudy, StudyPlan, Sufficiency
from fedassay.planning.planner import bytes_of
from fedassay.protocol.vocabulary import Noise, Protection, Query, Released, TrustModel, Unit
from fedassay.study.simulation import Simulation
from fedassay.summaries.multiclass.loss_curves import ClientProfiles
from fedassay.summaries.multiclass.map_changes import MapChanges
from fedassay.summaries.multiclass.maps import logit_map_from_json
from fedassay.tasks.calibration.multiclass.calibrate import ONE_SHOT, CalibrateMulticlass
from fedassay.tasks.calibration.multiclass.forecast import CLASS_TARGETS, loose_bound, reason_of_auto
from fedassay.tasks.calibration.multiclass.forecast_methods import (
    PlannedMethod,
    Usefulness,
    choices,
    planned_method,
    sampled_rounds,
)
from fedassay.tasks.calibration.multiclass.held_out_judge import Judging
from fedassay.tasks.calibration.multiclass.rehearsal import LogitsStudy, judgement, temperature_error
from fedassay.tasks.evaluation.typical_model import TypicalClients, TypicalModel
from fedassay.trust import DistributedDP, LocalDP, SecureSum, ServerDP, TwoServer
from flows import finished
from single_plans import forecast, metrics_of, plan_alone
from single_plans import planned as planned_study
from softmax_rows import SoftmaxPopulation

Columns = dict[str, np.ndarray]


def study(
    trust: TrustModel | None = None,
    *,
    clients: int = 40,
    each: int = 6,
    classes: int = 3,
    epsilon: float | None = None,
    delta: float = 0.0,
    unit: str = "client",
    **expected: float,
) -> LogitsStudy:
    terms = planned_study(
        trust,
        rows=clients * each,
        clients=clients,
        epsilon=epsilon,
        delta=delta,
        protection=Protection(unit=Unit(unit), rows_per_client=each if unit == "client" else None),
        classes=classes,
        **expected,
    )
    return LogitsStudy.of(replace(terms, traffic=bytes_of), "calibrate")


def rows_of(study: LogitsStudy, seed: int = 0) -> list[Columns]:
    """Clients as the study expects them to be, in number and size."""
    rng, each = np.random.default_rng(seed), round(study.study.rows / study.study.expectation.clients)
    population = SoftmaxPopulation(classes=study.model.classes, spread=3.0, stretch=1.5)
    made = (population.sample(each, rng) for _ in range(study.study.expectation.clients))
    return [{"logits": z, "class": y.astype(np.int64)} for z, y in made]


def ran(
    task: CalibrateMulticlass, study: LogitsStudy
) -> tuple[dict[str, Any], list[tuple[Query[Any], Noise]]]:
    """The results of a run, and the noise that every query got. All clients are in both parts."""
    setting, clients = study.setting, rows_of(study)
    got: list[tuple[Query[Any], Noise]] = []

    def answered(query: Query[Any], step: int) -> Released[Any]:
        released = answer(query, setting, clients, step)
        got.append((query, released.noise))
        return released

    return finished(task.steps(setting), answered)[0], got


def planned(study: LogitsStudy, **options: Any) -> dict[tuple[str, str], PlannedMethod]:
    """All but those of one release, whose error takes a simulation."""
    asked = [one for one in choices(study, **options) if one.solver != ONE_SHOT]
    found = [planned_method(one, study, target=0.1) for one in asked]
    return {(one.method, one.solver): one for one in found}


# --- the noise is that of a run -------------------------------------------------------------------------


@pytest.mark.parametrize("trust", [ServerDP(), DistributedDP(), LocalDP()], ids=lambda trust: trust.name)
def test_every_method_gets_the_noise_that_was_planned(trust: TrustModel) -> None:
    here = study(trust, epsilon=30.0, delta=1e-5)
    methods = planned(here, rounds=2)
    assert len(methods) == 6
    for (method, solver), one in methods.items():
        if one.usable is Usefulness.REFUSED:
            continue
        asked = {} if solver == "counts" else {"solver": solver}
        results, got = ran(CalibrateMulticlass(classes=3, method=method, rounds=2, **asked), here)
        fits = [noise for query, noise in got if query.part == "fit"]
        assert [(noise.law, noise.scale) for noise in fits] == [(one.noise.law, one.noise.scale)] * 2
        assert [noise.variance for noise in fits] == pytest.approx([one.noise.variance] * 2)
        said = results["fit"]["noise"]
        entering = said["positives"] if solver == "counts" else said["standard_deviation"] / said["clip"]
        assert one.deviation == pytest.approx(entering)
        assert one.rounds == 2


@pytest.mark.parametrize("method", ["auto", "temperature"])
@pytest.mark.parametrize(
    ("trust", "unit", "epsilon", "releases"),
    [(ServerDP(), "client", 1.0, 1), (ServerDP(), "client", 30.0, 1), (DistributedDP(), "example", 1.0, 1)],
)
def test_one_release_gets_the_noise_that_was_planned(
    trust: TrustModel, unit: str, epsilon: float, releases: int, method: str
) -> None:
    here = study(trust, epsilon=epsilon, delta=1e-5, unit=unit)
    error = temperature_error(here, draws=5, method=method)
    results, got = ran(CalibrateMulticlass(classes=3, method=method), here)
    fits = [(query, noise) for query, noise in got if query.part == "fit"]
    assert results["solver"] == "one-shot"
    assert len(fits) == len(error.noises) == releases
    assert [type(query.of) for query, _ in fits] == [type(query.of) for query in error.queries]
    for (_, noise), expected in zip(fits, error.noises, strict=True):
        assert (noise.law, noise.scale) == (expected.law, expected.scale)
        assert noise.variance == pytest.approx(expected.variance)


@pytest.mark.parametrize(("unit", "releases"), [("client", 1), ("example", 3)])
def test_the_judgement_gets_the_noise_that_was_planned(unit: str, releases: int) -> None:
    here = study(ServerDP(), epsilon=1.0, delta=1e-5, unit=unit, clients=100)
    expected = judgement(here, level=0.95)
    _, got = ran(CalibrateMulticlass(classes=3, method="temperature"), here)
    judged = [(query, noise) for query, noise in got if query.part == "held-out"]
    assert len(judged) == len(expected.queries) == releases
    assert isinstance(judged[0][0].of, MapChanges)
    planned_noise = here.setting.noise(expected.queries[0])
    assert (judged[0][1].law, judged[0][1].scale) == (planned_noise.law, planned_noise.scale)


def test_sampling_is_planned_as_it_is_run() -> None:
    here = study(ServerDP(), epsilon=2.0, delta=1e-5, clients=60)
    everybody, some = sampled_rounds(here, rounds=2, participation=0.5)
    for one in (everybody, some):
        task = CalibrateMulticlass(
            classes=3, method="temperature", solver="fedavg", rounds=2, participation=one["participation"]
        )
        results, got = ran(task, here)
        query, noise = got[0]
        assert one["noise_multiplier"] == noise.scale / math.ceil(
            query.of.sensitivity(here.study.protection).l2
        )
        said = results["fit"]["noise"]
        assert one["standard_deviation"] == pytest.approx(said["standard_deviation"] / said["clip"])
    assert some["noise_multiplier"] < everybody["noise_multiplier"]
    assert some["standard_deviation"] > everybody["standard_deviation"]  # half as many clients in the mean


def test_sampling_is_left_out_where_it_does_not_count() -> None:
    for here in (
        study(DistributedDP(), epsilon=2.0, delta=1e-5),
        study(ServerDP(), epsilon=2.0),
        study(ServerDP(), epsilon=2.0, delta=1e-5, unit="example"),
    ):
        assert sampled_rounds(here, rounds=2, participation=0.5) == ()


# --- words ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.3, 4.0])
def test_refused_is_what_a_run_refuses(epsilon: float) -> None:
    here = study(ServerDP(), epsilon=epsilon, delta=1e-5, clients=60, each=12)
    seen = set()
    for (method, solver), one in planned(here).items():
        if solver != "fedavg":
            continue
        flow = CalibrateMulticlass(classes=3, method=method, solver=solver).steps(here.setting)
        if one.usable is Usefulness.REFUSED:
            with pytest.raises(UsageError, match="times as long as the longest update"):
                next(flow)
        else:
            next(flow)
        seen.add(one.usable)
        assert (one.usable is Usefulness.USABLE) == (one.relative <= 0.5)
    assert seen == (
        {Usefulness.REFUSED, Usefulness.NOISY, Usefulness.USABLE}
        if epsilon < 1
        else {Usefulness.NOISY, Usefulness.USABLE}
    )


def test_counts_are_usable_once_noise_is_small_against_the_rows_of_a_bin() -> None:
    words = [
        planned(study(ServerDP(), epsilon=epsilon, unit="example", clients=clients))["bbq", "counts"].usable
        for epsilon, clients in ((1.0, 40), (1.0, 1_000), (1.0, 3_000))
    ]
    assert words == [Usefulness.DROWNED, Usefulness.NOISY, Usefulness.USABLE]


def test_a_temperature_that_noise_hides_is_not_called_usable() -> None:
    some = {"delta": 1e-5, "each": 30}
    hidden, disturbed = (study(ServerDP(), epsilon=epsilon, **some) for epsilon in (0.01, 0.8))
    clear = study(ServerDP(), epsilon=1.0, clients=300, **some)
    found = []
    for here in (hidden, disturbed, clear):
        found.append(planned_method(choices(here)[0], here, target=0.1))
    assert [one.usable for one in found] == [Usefulness.DROWNED, Usefulness.DROWNED, Usefulness.USABLE]
    assert (
        found[0].deviation < 0.1
    )  # noise alone would not show it: nothing is learnt, so that nothing varies


def test_without_noise_only_rows_count() -> None:
    words = {key: one.usable for key, one in planned(study(clients=40, each=20)).items()}
    assert words == {
        ("isotonic", "counts"): Usefulness.FEW_ROWS,
        ("temperature", "exact"): Usefulness.USABLE,
        ("vector", "exact"): Usefulness.USABLE,
        ("matrix", "exact"): Usefulness.USABLE,
        ("order-preserving", "exact"): Usefulness.USABLE,
        ("fedcal", "fedavg"): Usefulness.USABLE,
        ("bbq", "counts"): Usefulness.USABLE,
    }
    assert (
        planned(study(clients=80, each=9))["fedcal", "fedavg"].usable is Usefulness.FEW_ROWS
    )  # clients fit alone
    many = planned(study(clients=40, each=100, classes=30))
    assert {key for key, one in many.items() if one.usable is Usefulness.FEW_ROWS} == {("matrix", "exact")}
    matrix = many["matrix", "exact"]
    assert matrix.parameters == 930
    assert (matrix.answers, matrix.at_most) == (400, True)


# --- costs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "solver"), [("temperature", "one-shot"), ("vector", "fedavg"), ("bbq", "auto")]
)
def test_bytes_are_those_of_a_run(method: str, solver: str) -> None:
    here = study(ServerDP(), epsilon=20.0, delta=1e-5)
    rounds = {"rounds": 2} if solver == "fedavg" else {}
    asked = choices(here, **rounds)
    choice = next(one for one in asked if (one.method, one.solver) == (method, solver))
    one = planned_method(choice, here, target=0.1)
    clients = rows_of(here)
    data = {
        "z": np.concatenate([rows["logits"] for rows in clients]),
        "y": np.concatenate([rows["class"] for rows in clients]),
        "site": np.repeat([f"site{place:02}" for place in range(len(clients))], 6),
    }
    result = fedassay.calibrate(
        data,
        logits="z",
        label="y",
        client="site",
        method=method,
        solver=solver,
        privacy=here.study.trust,
        budget=here.study.budget,
        protection=here.study.protection,
        simulation=Simulation(seed=1, mode="faithful"),
        **rounds,
    )
    judging = Judging(map=logit_map_from_json(result.results["calibrator"]))
    judged = here.study.bytes_of(*judging.queries(here.setting))
    assert one.bytes is not None
    assert one.bytes + judged == pytest.approx(result.runtime["bytes_per_client"], rel=0.05)
    assert one.answers is not None
    assert one.answers + 1 == result.runtime["rounds"]


def test_a_server_that_draws_the_cohort_asks_fewer() -> None:
    found = {}
    for trust in (ServerDP(), LocalDP()):
        methods = planned(study(trust, epsilon=9.0), rounds=4, participation=0.5)
        found[trust.name] = methods["bbq", "counts"].answers
    assert found == {"server-dp": 4, "local-dp": 2}


# --- the whole plan -------------------------------------------------------------------------------------


def alone(case: LogitsStudy, targets: Any = None, **parameters: Any) -> StudyPlan:
    return plan_alone("calibrate-classes", case.study, targets, **parameters)


@cache
def private() -> StudyPlan:
    case = study(ServerDP(), epsilon=1.0, unit="example", clients=60, each=10)
    return alone(case, CLASS_TARGETS)


def test_a_plan_is_json_and_says_what_auto_does() -> None:
    plan = private()
    document = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert document["plan"] == "calibrate-classes"
    assert document["auto"]["method"] == "temperature"
    assert document["auto"]["solver"] == "one-shot"
    error, methods = document["temperature_error"], document["tables"]["methods"]["rows"]
    assert methods[0]["noise"] == error["privacy"] > 0
    parts = [error[name] for name in ("sampling", "privacy", "bias")]
    assert error["total"] == pytest.approx(math.hypot(*parts))
    assert [one["metric"] for one in document["inverse"]] == list(CLASS_TARGETS)
    shown = document["tables"]["held_out"]["rows"][0]
    assert shown["width"] == metrics_of(plan)["improvement"].width
    assert set(document["metrics"]) == set(CLASS_TARGETS)


@pytest.mark.parametrize(("place", "name"), list(enumerate(CLASS_TARGETS)))
def test_what_is_said_to_be_enough_is_predicted_to_be_enough(place: int, name: str) -> None:
    plan, one = private(), private().inverse[place]

    def width(other: PlannedStudy) -> float:
        return forecast("calibrate-classes").at(other, (name,))[name].width

    epsilon, rows, clients = one.epsilon.value, one.rows.value, one.clients.value
    assert epsilon is not None
    assert rows is not None
    assert clients is not None
    assert width(plan.study.with_epsilon(epsilon)) <= one.target
    assert width(plan.study.with_epsilon(epsilon / 1.05)) > one.target
    assert width(plan.study.with_rows(rows)) <= one.target
    assert width(plan.study.with_clients(int(clients))) <= one.target
    assert width(plan.study.with_clients(int(clients / 1.2))) > one.target


def test_what_is_too_far_away_has_a_reason() -> None:
    plan = plan_alone("calibrate-classes", private().study, {"improvement": 1e-4})
    (too_far,) = plan.inverse
    assert (too_far.epsilon.reason or "").startswith("no epsilon is enough: with the largest one it is 0.0")
    assert metrics_of(plan)["improvement"].verdict is Sufficiency.NOT_ENOUGH


def test_a_judgement_that_noise_hides_shows_nothing() -> None:
    here = study(ServerDP(), epsilon=1.0, clients=30, each=4)
    assert math.isinf(judgement(here, level=0.95).visible)
    plan = alone(here)
    assert any("not be able to show anything" in remark for remark in plan.details.remarks)
    improvement = metrics_of(plan)["improvement"]
    assert improvement.verdict is Sufficiency.NOT_ENOUGH
    assert improvement.to_dict()["width"] is None


def test_without_noise_auto_is_isotonic_and_epsilon_plays_no_part() -> None:
    here = study(SecureSum(), clients=40, each=100, unit="example")
    plan = alone(here, CLASS_TARGETS)
    facts = plan.details.facts
    assert (facts["auto"]["method"], metrics_of(plan)["temperature"].privacy) == ("isotonic", 0.0)
    assert all("plays no part" in (one.epsilon.reason or "") for one in plan.inverse)
    assert facts["recommended"]
    assert {one.verdict for one in metrics_of(plan).values()} == {Sufficiency.ENOUGH}
    few = alone(study(SecureSum(), unit="example"))
    assert "the temperature alone" in few.details.facts["auto"]["reason"]


@pytest.mark.parametrize(("clients", "asked"), [(110, False), (120, True)])
def test_shifts_are_planned_where_noise_does_not_drown_them(clients: int, asked: bool) -> None:
    """At ε = 1 that takes 81 clients in the fit part, 116 in all."""
    here = study(ServerDP(), clients=clients, each=20, epsilon=1.0, delta=1e-5)
    error = temperature_error(here, draws=2)
    reason = reason_of_auto(choices(here)[0], here, error)
    assert isinstance(error.queries[-1].of, ClientProfiles) is asked
    assert ("shifts of the classes as far as they exceed the noise" in reason) is asked
    assert ("noise would drown shifts" in reason) is not asked


def test_a_loose_bound_on_the_rows_of_a_client_is_noticed() -> None:
    here = study(ServerDP(), epsilon=10.0, clients=300, each=10)
    bound = replace(here.study.protection, rows_per_client=40)
    loose = replace(here, study=replace(here.study, protection=bound))
    (note,) = loose_bound(loose, level=0.95)
    assert "with --rows-per-client 10 it would be 4 times smaller" in note
    assert f"seen from {judgement(here, level=0.95).visible:.2g} on" in note
    assert judgement(loose, level=0.95).visible > 3 * judgement(here, level=0.95).visible
    assert loose_bound(here, level=0.95) == ()


def test_what_cannot_be_answered_is_refused_as_a_whole() -> None:
    with pytest.raises(UnsupportedQuery, match="two-server"):
        alone(study(TwoServer(), epsilon=1.0))


# --- what is assumed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 10, 300])
def test_typical_models_are_as_accurate_and_as_sure_as_they_should_be(classes: int) -> None:
    model = TypicalModel(classes=classes, accuracy=0.85, temperature=2.0)
    rows = model.drawn(8_000, seed=3)
    right = rows["logits"].argmax(axis=1) == rows["class"]
    assert right.mean() == pytest.approx(0.85, abs=4 * math.sqrt(0.85 * 0.15 / 8_000))
    assert (
        temperature_error(study(classes=classes, accuracy=0.51, temperature=0.1)).total > 0
    )  # whatever they are
    clients = TypicalClients(model=model, each=50)
    assert len(clients.rows) >= 8
    assert all(len(one.columns["class"]) == 50 for one in clients.rows)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"classes": 1}, "classes: got 1"),
        ({"accuracy": 0.2}, "accuracy: got 0.2, expected a number above 0.333"),
        ({"accuracy": 1.0}, "accuracy: got 1"),
        ({"temperature": 0.0}, "temperature: got 0"),
        ({"clients": 500}, "clients: got 500 for 100 rows"),
    ],
)
def test_impossible_assumptions_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Expectation(**{"rows": 100, "clients": 10, "classes": 3, **wrong})
