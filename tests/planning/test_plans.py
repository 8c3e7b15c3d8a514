"""Plans: the verdict's rule, the resolution, the inverse question, and that only the noise of a trust model counts."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from fedassay.errors import TooFewClients, UsageError
from fedassay.planning import Expectation, PlannedStudy
from fedassay.planning.other_terms import LARGEST_EPSILON, SMALLEST_EPSILON, fewest_rows, smallest_epsilon
from fedassay.planning.plan import in_words
from fedassay.protocol.metrics import planned as planned_metrics
from fedassay.protocol.vocabulary import (
    NO_NOISE,
    Noise,
    Plan,
    Protection,
    Query,
    Setting,
    Sum,
    TrustModel,
    Unit,
)
from fedassay.tasks.evaluation.evaluate import Evaluate
from fedassay.tasks.evaluation.forecast import model_of
from fedassay.tasks.forecast import Sufficiency, sufficiency
from fedassay.trust import TRUST_MODELS
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.local_dp import LocalDP
from fedassay.trust.server_dp import ServerDP
from single_plans import forecast, metrics_of, plan_alone, planned, rows_of

SHORT = {"height": 6}  # quick to plan


def study(trust: TrustModel | None = None, **others: Any) -> PlannedStudy:
    return planned(trust, **{"prevalence": 0.3, "auc": 0.8, **others})


# --- verdicts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("widths", "verdict"),
    [
        ((0.5, 0.9, 1.0), Sufficiency.ENOUGH),
        ((1.1, 2.0), Sufficiency.NOT_ENOUGH),
        ((0.9, 1.1), Sufficiency.UNDECIDABLE),
        ((1.1, 0.9), Sufficiency.UNDECIDABLE),
        ((0.5, math.inf), Sufficiency.UNDECIDABLE),
        ((math.inf, math.inf), Sufficiency.NOT_ENOUGH),
    ],
)
def test_the_rule_of_the_verdict(widths: tuple[float, ...], verdict: Sufficiency) -> None:
    assert sufficiency(1.0, widths) is verdict


def test_verdicts_change_with_the_rows_as_they_should() -> None:
    """From too few to enough there is a stretch where the assumptions decide, and never a way back."""
    order = [Sufficiency.NOT_ENOUGH, Sufficiency.UNDECIDABLE, Sufficiency.ENOUGH]
    seen = []
    for rows in (300, 2_000, 3_000, 4_000, 40_000):
        plan = plan_alone("evaluate", study(rows=rows, clients=3), {"roc_auc": 0.02}, height=9)
        seen.append(order.index(metrics_of(plan)["roc_auc"].verdict))
    assert seen == sorted(seen)
    assert set(seen) == {0, 1, 2}


def test_variations_are_those_that_are_stated() -> None:
    corners = Expectation(rows=100, clients=2, prevalence=0.5, auc=0.8).varied()
    assert {round(one.prevalence, 3) for one in corners} == {0.4, 0.6}  # odds of 1/1.5 and 1.5
    assert {round(one.auc, 3) for one in corners} == {0.75, 0.85}
    extreme = Expectation(rows=100, clients=2, prevalence=0.001, auc=0.998).varied()
    assert all(0.5 < one.auc < 1 and 0 < one.prevalence < 1 for one in extreme)
    assert all(
        0.5 < one.auc < 1 for one in Expectation(rows=9, clients=2, prevalence=0.5, auc=0.505).varied()
    )


def test_one_line_for_all_verdicts() -> None:
    enough, not_enough, unknown = Sufficiency
    assert in_words({"a": enough, "b": enough, "c": enough}) == "Enough data for everything."
    assert in_words({"a": not_enough}) == "Not enough data for a."
    assert in_words({"a": enough, "b": not_enough, "c": unknown, "d": unknown}) == (
        "Enough data for a; not enough data for b; not decidable for c and d: it depends on the true prevalence "
        "and AUC."
    )


# --- plans ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(TRUST_MODELS))
def test_every_trust_model_can_be_planned(name: str) -> None:
    kind = TRUST_MODELS[name]
    rows_per_client = {"local-dp": 1, "two-server": 125}.get(name)
    terms = study(
        kind(),
        rows=5_000,
        clients=5_000 if name == "local-dp" else 40,
        epsilon=2.0 if kind.private else None,
        protection=Protection(rows_per_client=rows_per_client),
    )
    plan = plan_alone("evaluate", terms, {"accuracy": 0.1}, **SHORT)
    document = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert set(document["metrics"]) == set(planned_metrics())
    assert (document["metrics"]["accuracy"]["error"]["privacy"] > 0) == kind.private
    assert (document["noise"]["standard_deviation"] > 0) == kind.private
    calibration = plan_alone("calibrate", terms, **SHORT)
    json.dumps(calibration.to_dict(), allow_nan=False)
    assert {method.partition(" ")[0] for method in rows_of(calibration, "methods")} == {"platt", "histogram"}


@dataclass(frozen=True)
class Unheard(TrustModel):
    """A trust model that nobody knows: only its noise can be asked for."""

    name: ClassVar[str] = "unheard-of"
    private: ClassVar[bool] = True
    noise: Noise = NO_NOISE

    def plan(self, query: Query[Any], setting: Setting) -> Plan:
        sensitivity = query.of.sensitivity(setting.protection)
        variance = self.noise.variance * sensitivity.l1**2
        return Plan(
            query=query,
            setting=setting,
            sensitivity=sensitivity,
            noise=replace(self.noise, variance=variance),
        )

    def _never(self, *_: object) -> Any:
        raise AssertionError("planning does not release anything")

    exchange = respond = aggregate = statement = _never


def test_only_the_noise_of_a_trust_model_counts() -> None:
    noise = Noise(law="discrete-laplace", scale=1.0, variance=2.0)
    unheard = plan_alone("evaluate", study(Unheard(noise=noise), epsilon=1.0), **SHORT)
    known = metrics_of(plan_alone("evaluate", study(ServerDP(), epsilon=1.0), **SHORT))
    for name, one in metrics_of(unheard).items():
        assert one.width == pytest.approx(known[name].width, rel=0.02)


def test_rows_beyond_the_bound_are_not_counted_on() -> None:
    protection = Protection(unit=Unit.CLIENT, rows_per_client=5)
    bounded = study(ServerDP(), rows=20_000, clients=1_000, epsilon=5.0, protection=protection)
    assert bounded.rows == 5_000
    plan = plan_alone("evaluate", bounded, **SHORT)
    assert plan.warnings[0] == "Only 5,000 of 20,000 rows will be used: at most 5 of each of 1,000 clients."
    fewer = replace(bounded, expectation=replace(bounded.expectation, rows=5_000))
    assert metrics_of(plan_alone("evaluate", fewer, **SHORT))["f1"] == metrics_of(plan)["f1"]


def facts(study: PlannedStudy, **parameters: Any) -> Any:
    return plan_alone("evaluate", study, **parameters).details.facts


def test_a_better_height_is_recommended_if_it_is_clearly_better() -> None:
    many = study(rows=10**7)
    crowded = plan_alone("evaluate", many, **SHORT)
    assert crowded.details.facts["used"]["height"] == 6
    height = crowded.details.facts["recommended"]["height"]
    assert height > 9
    first, second = crowded.details.warnings
    assert "Binning dominates the error of roc_auc" in first
    assert f"--height {height} instead of 6" in second
    assert f"Recommended: height {height} instead of 6" in crowded.details.remarks[0]
    better = metrics_of(plan_alone("evaluate", many, height=height))["roc_auc"]
    gain = metrics_of(crowded)["roc_auc"].width / better.width
    assert second.endswith(f"makes intervals {gain:.2g} times shorter.")
    noisy = facts(study(ServerDP(), rows=1_000, epsilon=0.3), height=12)
    assert noisy["recommended"]["height"] < 12
    fine = plan_alone("evaluate", study()).details
    assert fine.facts["recommended"]["height"] == fine.facts["used"]["height"]
    assert fine.warnings == ()


def test_recommended_buckets_are_the_cube_root_of_the_rows_unless_noise_forbids() -> None:
    def buckets(study: PlannedStudy) -> int:
        return int(facts(study, **SHORT)["recommended"]["buckets"])

    assert buckets(study(rows=8_000)) == 20
    assert 1 < buckets(study(ServerDP(), rows=8_000, epsilon=0.5)) < 20
    assert buckets(study(ServerDP(), rows=200, epsilon=0.1)) == 1


def test_without_evidence_there_is_a_reason_and_no_number() -> None:
    plan = plan_alone("evaluate", study(ServerDP(), rows=200, epsilon=0.1, prevalence=0.02), **SHORT)
    one = metrics_of(plan)["roc_auc"]
    assert one.verdict is Sufficiency.NOT_ENOUGH
    document = one.to_dict()
    assert document["value"] is document["width"] is document["width_range"] is None
    assert "not enough evidence: about 4 positive rows" in document["reason"]


def test_table_1_stands_beside_ours() -> None:
    published = rows_of(plan_alone("evaluate", study(DistributedDP(), epsilon=1.0), **SHORT), "published")
    assert published["roc_auc"]["model"] == "distributed"
    assert published["roc_auc"]["rate"] == pytest.approx((1 + 1 / 64) / 20_000)
    assert published["decision"]["balancing_buckets"] == pytest.approx(20_000 ** (2 / 3))
    assert published["decision"]["predicted"] > 0
    one = Protection(rows_per_client=1)
    local = study(LocalDP(), rows=20_000, clients=20_000, epsilon=1.0, protection=one)
    assert rows_of(plan_alone("evaluate", local, **SHORT), "published")["roc_auc"]["model"] == "local"
    several = study(LocalDP(), epsilon=1.0).setting
    assert model_of(several.noise(Sum(of=Evaluate(height=6).histogram(several))), 20) == "local"
    assert model_of(NO_NOISE, 10) == "federated"


# --- the inverse question -----------------------------------------------------------------------------------------


def width_of(name: str) -> Any:
    return lambda other: forecast("evaluate", **SHORT).at(other, (name,))[name].width


@pytest.mark.parametrize("trust", [ServerDP(), DistributedDP(), LocalDP()], ids=lambda trust: trust.name)
@pytest.mark.parametrize(("name", "target"), [("roc_auc", 0.05), ("accuracy", 0.01)])
def test_what_is_said_to_be_enough_is_enough_and_little_less_is_not(
    trust: TrustModel, name: str, target: float
) -> None:
    here = study(trust, rows=20_000, clients=40, epsilon=1.0)
    (answer,) = plan_alone("evaluate", here, {name: target}, **SHORT).inverse
    width = width_of(name)
    epsilon, rows, clients = answer.epsilon.value, answer.rows.value, answer.clients.value
    assert epsilon is not None
    assert rows is not None
    assert clients is not None
    assert width(here.with_epsilon(epsilon)) <= target < width(here.with_epsilon(0.96 * epsilon))
    assert width(here.with_rows(rows)) <= target < width(here.with_rows(0.9 * rows))
    assert width(here.with_clients(int(clients))) <= target
    if trust.name != "distributed-dp" or clients > 40:  # there is a smallest cohort
        assert width(here.with_clients(math.floor(0.9 * clients))) > target
    assert answer.rows.clients == 40


def test_no_epsilon_makes_up_for_missing_rows() -> None:
    few = study(ServerDP(), rows=500, epsilon=1.0)
    (answer,) = plan_alone("evaluate", few, {"accuracy": 0.005}, **SHORT).inverse
    assert answer.epsilon.value is None
    assert answer.epsilon.reason is not None
    assert answer.epsilon.reason.startswith("no epsilon is enough: with the largest one it is 0.0")
    assert answer.rows.value is not None
    (plain,) = plan_alone("evaluate", study(), **SHORT).inverse
    assert plain.epsilon.reason == "plain adds no noise, so epsilon plays no part"


def test_no_number_of_rows_makes_up_for_missing_bins() -> None:
    (answer,) = plan_alone("evaluate", study(), {"roc_auc": 0.001}, height=4).inverse
    assert answer.rows.value is None
    assert (answer.rows.reason or "").startswith("no number of rows at 20 clients up to 1e+12 is enough")
    assert answer.clients.value is None


def test_ends_of_the_search() -> None:
    here = study(ServerDP(), epsilon=1.0)

    def always(_: PlannedStudy) -> float:
        return 0.0

    def never(_: PlannedStudy) -> float:
        return math.inf

    def refused(_: PlannedStudy) -> float:
        raise TooFewClients("nobody is there.")

    assert smallest_epsilon(here, always, 1.0).value == SMALLEST_EPSILON
    assert smallest_epsilon(here, never, 1.0).reason == ("no epsilon is enough: there is no value even then")
    assert fewest_rows(here, always, 1.0).value == 20
    assert fewest_rows(here, refused, 1.0).value is None

    def jumps(other: PlannedStudy) -> float:
        assert other.budget is not None
        return 0.0 if other.budget.epsilon >= LARGEST_EPSILON else 2.0

    assert smallest_epsilon(here, jumps, 1.0).value == LARGEST_EPSILON

    def rises(other: PlannedStudy) -> float:
        assert other.budget is not None
        return 0.0 if 0.5 <= other.budget.epsilon <= 2.0 else 2.0

    # What is planned is enough, so that it is never said that nothing is.
    found = smallest_epsilon(here, rises, 1.0).value
    assert found is not None
    assert 0.5 <= found <= 0.51


# --- calibration ----------------------------------------------------------------------------------------------------


def test_a_calibration_is_planned_on_the_fit_rows() -> None:
    whole = plan_alone("calibrate", study(rows=10_000, holdout=0.5), **SHORT)
    half = plan_alone("calibrate", study(rows=5_000, clients=10, holdout=1e-9), **SHORT)
    assert rows_of(whole, "methods")["platt"]["brier_excess"] == pytest.approx(
        rows_of(half, "methods")["platt"]["brier_excess"]
    )
    judged = metrics_of(whole)["held_out_brier_score"]
    alone = metrics_of(plan_alone("evaluate", study(rows=5_000, clients=10), **SHORT))["brier_score"]
    assert judged.sampling == pytest.approx(alone.sampling, rel=1e-2)


def test_what_is_enough_for_a_map() -> None:
    here, target = study(ServerDP(), rows=5_000, epsilon=1.0), {"expected_calibration_error": 0.005}
    plan = plan_alone("calibrate", here, target, **SHORT)
    (answer,) = plan.inverse
    assert answer.rows.value is not None
    found = forecast("calibrate", **SHORT).at(here.with_rows(answer.rows.value), tuple(target))
    assert found["expected_calibration_error"].width <= 0.005
    hopeless = plan_alone("calibrate", study(ServerDP(), rows=300, epsilon=0.05), **SHORT)
    assert hopeless.details.facts["recommended"]["buckets"] is None
    for method in rows_of(hopeless, "methods").values():
        assert "not enough evidence" in method["reason"]
    assert metrics_of(hopeless)["brier_excess"].verdict is Sufficiency.NOT_ENOUGH


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rows": 0}, "rows: got 0"),
        ({"rows": math.nan}, "rows: got nan"),
        ({"rows": 1e13}, "rows: got 1e"),
        ({"clients": 0}, "clients: got 0"),
        ({"rows": 10, "clients": 11}, "clients: got 11 for 10 rows"),
        ({"prevalence": 0.0}, "prevalence: got 0"),
        ({"prevalence": 30.0}, "prevalence: got 30"),
        ({"auc": 0.5}, "auc: got 0.5"),
        ({"auc": 80.0}, "auc: got 80"),
    ],
)
def test_impossible_expectations(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        study(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ({"auc": 0.1}, "target: got 'auc'"),
        ({"roc_auc": 0.0}, "target roc_auc"),
        ({"f1": math.nan}, "target f1"),
    ],
)
def test_impossible_targets(targets: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan_alone("evaluate", study(), targets, **SHORT)


def test_impossible_holdout() -> None:
    with pytest.raises(UsageError, match="holdout: got 1"):
        study(holdout=1.0)
