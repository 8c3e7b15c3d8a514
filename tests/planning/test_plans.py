"""Plans: the verdict's rule, the resolution, the inverse question, and that only the noise of a trust model counts."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from fedassay.errors import TooFewClients, UsageError
from fedassay.metrics import targets
from fedassay.planning import Expectation, Study, plan_calibration, plan_evaluation
from fedassay.planning.inverse import LARGEST_EPSILON, SMALLEST_EPSILON, fewest_rows, smallest_epsilon
from fedassay.planning.published import model_of
from fedassay.planning.resolution import predictions
from fedassay.planning.verdict import Verdict, half_width, in_words, judged
from fedassay.protocol import NO_NOISE, Budget, Noise, Plan, Protection, Query, Setting, TrustModel, Unit
from fedassay.tasks.calibration.calibrate import Calibrate
from fedassay.tasks.evaluation.evaluate import Evaluate
from fedassay.trust import TRUST_MODELS
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.local_dp import LocalDP
from fedassay.trust.plain import Plain
from fedassay.trust.server_dp import ServerDP

SHORT = Evaluate(height=6)  # quick to plan


def study(
    trust: TrustModel | None = None,
    *,
    rows: float = 20_000,
    clients: int = 20,
    epsilon: float | None = None,
    protection: Protection | None = None,
    prevalence: float = 0.3,
    auc: float = 0.8,
) -> Study:
    return Study(
        expectation=Expectation(rows=rows, clients=clients, prevalence=prevalence, auc=auc),
        trust=trust or Plain(),
        budget=None if epsilon is None else Budget(epsilon=epsilon),
        protection=protection or Protection(),
    )


# --- verdicts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("widths", "verdict"),
    [
        ((0.5, 0.9, 1.0), Verdict.ENOUGH),
        ((1.1, 2.0), Verdict.NOT_ENOUGH),
        ((0.9, 1.1), Verdict.UNDECIDABLE),
        ((1.1, 0.9), Verdict.UNDECIDABLE),
        ((0.5, math.inf), Verdict.UNDECIDABLE),
        ((math.inf, math.inf), Verdict.NOT_ENOUGH),
    ],
)
def test_the_rule_of_the_verdict(widths: tuple[float, ...], verdict: Verdict) -> None:
    assert judged(1.0, widths) is verdict


def test_verdicts_change_with_the_rows_as_they_should() -> None:
    """From too few to enough there is a stretch where the assumptions decide, and never a way back."""
    order = [Verdict.NOT_ENOUGH, Verdict.UNDECIDABLE, Verdict.ENOUGH]
    seen = []
    for rows in (300, 2_000, 3_000, 4_000, 40_000):
        plan = plan_evaluation(
            study(rows=rows, clients=3), task=Evaluate(height=9), targets={"roc_auc": 0.02}
        )
        seen.append(order.index(plan.predicted["roc_auc"].verdict))
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
    enough, not_enough, unknown = Verdict
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
    planned = study(
        kind(),
        rows=5_000,
        clients=5_000 if name == "local-dp" else 40,
        epsilon=2.0 if kind.private else None,
        protection=Protection(rows_per_client=rows_per_client),
    )
    plan = plan_evaluation(planned, task=SHORT, targets={"accuracy": 0.1})
    document = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert set(document["metrics"]) == set(targets())
    assert (document["metrics"]["accuracy"]["error"]["privacy"] > 0) == kind.private
    assert (document["noise"]["standard_deviation"] > 0) == kind.private
    calibration = plan_calibration(planned, task=Calibrate(height=6))
    assert set(json.loads(json.dumps(calibration.to_dict(), allow_nan=False))["methods"]) == {
        "platt",
        "histogram",
    }


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
    unheard = plan_evaluation(study(Unheard(noise=noise), epsilon=1.0), task=SHORT)
    known = plan_evaluation(study(ServerDP(), epsilon=1.0), task=SHORT)
    for name, one in unheard.predicted.items():
        assert one.half_width == pytest.approx(known.predicted[name].half_width, rel=0.02)


def test_rows_beyond_the_bound_are_not_counted_on() -> None:
    protection = Protection(unit=Unit.CLIENT, rows_per_client=5)
    planned = study(ServerDP(), rows=20_000, clients=1_000, epsilon=5.0, protection=protection)
    assert planned.rows == 5_000
    plan = plan_evaluation(planned, task=SHORT)
    assert plan.warnings[0] == "Only 5,000 of 20,000 rows will be used: at most 5 of each of 1,000 clients."
    fewer = replace(planned, expectation=replace(planned.expectation, rows=5_000))
    assert plan_evaluation(fewer, task=SHORT).predicted["f1"] == plan.predicted["f1"]


def test_a_better_height_is_recommended_if_it_is_clearly_better() -> None:
    crowded = plan_evaluation(study(rows=10**7), task=Evaluate(height=6))
    assert crowded.used.histogram.height == 6
    assert crowded.recommended.histogram.height > 9
    assert "Binning dominates the error of roc_auc" in crowded.warnings[0]
    assert f"--height {crowded.recommended.histogram.height} instead of 6" in crowded.warnings[1]
    better = plan_evaluation(
        study(rows=10**7), task=Evaluate(height=crowded.recommended.histogram.height)
    ).predicted["roc_auc"]
    gain = crowded.predicted["roc_auc"].half_width / better.half_width
    assert crowded.warnings[1].endswith(f"makes intervals {gain:.2g} times shorter.")
    noisy = plan_evaluation(study(ServerDP(), rows=1_000, epsilon=0.3), task=Evaluate(height=12))
    assert noisy.recommended.histogram.height < 12
    fine = plan_evaluation(study())
    assert fine.recommended is fine.used
    assert fine.warnings == ()


def test_recommended_buckets_are_the_cube_root_of_the_rows_unless_noise_forbids() -> None:
    assert plan_evaluation(study(rows=8_000), task=SHORT).buckets == 20
    assert 1 < plan_evaluation(study(ServerDP(), rows=8_000, epsilon=0.5), task=SHORT).buckets < 20
    assert plan_evaluation(study(ServerDP(), rows=200, epsilon=0.1), task=SHORT).buckets == 1


def test_without_evidence_there_is_a_reason_and_no_number() -> None:
    plan = plan_evaluation(study(ServerDP(), rows=200, epsilon=0.1, prevalence=0.02), task=SHORT)
    one = plan.predicted["roc_auc"]
    assert one.verdict is Verdict.NOT_ENOUGH
    document = one.to_dict()
    assert document["value"] is document["half_width"] is document["half_width_range"] is None
    assert "not enough evidence: about 4 positive rows" in document["reason"]


def test_table_1_stands_beside_ours() -> None:
    published = plan_evaluation(study(DistributedDP(), epsilon=1.0), task=SHORT).published
    assert published["roc_auc"]["model"] == "distributed"
    assert published["roc_auc"]["rate"] == pytest.approx((1 + 1 / 64) / 20_000)
    assert published["decision"]["balancing_buckets"] == pytest.approx(20_000 ** (2 / 3))
    assert published["decision"]["predicted"] > 0
    one = Protection(rows_per_client=1)
    local = study(LocalDP(), rows=20_000, clients=20_000, epsilon=1.0, protection=one)
    assert plan_evaluation(local, task=SHORT).published["roc_auc"]["model"] == "local"
    several = study(LocalDP(), epsilon=1.0)
    assert model_of(several.noise(SHORT.histogram(several.setting)), 20) == "local"
    assert model_of(NO_NOISE, 10) == "federated"


# --- the inverse question -----------------------------------------------------------------------------------------


def width_of(task: Evaluate, name: str) -> Any:
    def width(other: Study) -> float:
        return half_width(predictions(other, task, task.histogram(other.setting), (name,))[name])

    return width


@pytest.mark.parametrize("trust", [ServerDP(), DistributedDP(), LocalDP()], ids=lambda trust: trust.name)
@pytest.mark.parametrize(("name", "target"), [("roc_auc", 0.05), ("accuracy", 0.01)])
def test_what_is_said_to_be_enough_is_enough_and_little_less_is_not(
    trust: TrustModel, name: str, target: float
) -> None:
    planned = study(trust, rows=20_000, clients=40, epsilon=1.0)
    (answer,) = plan_evaluation(planned, task=SHORT, targets={name: target}).inverse
    width = width_of(SHORT, name)
    epsilon, rows = answer.epsilon.value, answer.rows.value
    assert epsilon is not None
    assert rows is not None
    assert width(planned.with_epsilon(epsilon)) <= target < width(planned.with_epsilon(0.96 * epsilon))
    assert width(planned.with_rows(rows)) <= target
    if trust.name != "distributed-dp" or rows > 20_000:  # clients are whole, and there is a smallest cohort
        assert width(planned.with_rows(0.9 * rows)) > target
    assert answer.rows.clients == planned.with_rows(rows).expectation.clients


def test_no_epsilon_makes_up_for_missing_rows() -> None:
    planned = study(ServerDP(), rows=500, epsilon=1.0)
    (answer,) = plan_evaluation(planned, task=SHORT, targets={"accuracy": 0.005}).inverse
    assert answer.epsilon.value is None
    assert answer.epsilon.reason is not None
    assert answer.epsilon.reason.startswith("no epsilon is enough: sampling error alone gives ±0.0")
    assert answer.rows.value is not None
    (plain,) = plan_evaluation(study(), task=SHORT).inverse
    assert plain.epsilon.reason == "plain adds no noise, so epsilon plays no part"


def test_no_number_of_rows_makes_up_for_missing_bins() -> None:
    coarse = Evaluate(height=4)
    (answer,) = plan_evaluation(study(), task=coarse, targets={"roc_auc": 0.001}).inverse
    assert answer.rows.value is None
    assert "take more bins" in (answer.rows.reason or "")
    noisy = study(ServerDP(), rows=10**6, epsilon=1.0)
    (answer,) = plan_evaluation(noisy, task=coarse, targets={"roc_auc": 0.01}).inverse
    assert "sampling error and 2^4 bins together give" in (answer.epsilon.reason or "")


def test_ends_of_the_search() -> None:
    planned = study(ServerDP(), epsilon=1.0)

    def always(_: Study) -> float:
        return 0.0

    def never(_: Study) -> float:
        return math.inf

    def refused(_: Study) -> float:
        raise TooFewClients("nobody is there.")

    assert smallest_epsilon(planned, always, 1.0, lambda _: "").value == SMALLEST_EPSILON
    assert smallest_epsilon(planned, never, 1.0, lambda _: "it is").reason == "no epsilon is enough: it is"
    assert fewest_rows(planned, always, 1.0).value == 10
    assert fewest_rows(planned, refused, 1.0).value is None

    def jumps(other: Study) -> float:
        assert other.budget is not None
        return 0.0 if other.budget.epsilon >= LARGEST_EPSILON else 2.0

    assert smallest_epsilon(planned, jumps, 1.0, lambda _: "").value == LARGEST_EPSILON

    def rises(other: Study) -> float:
        assert other.budget is not None
        return 0.0 if 0.5 <= other.budget.epsilon <= 2.0 else 2.0

    # What is planned is enough, so that it is never said that nothing is.
    found = smallest_epsilon(planned, rises, 1.0, lambda _: "").value
    assert found is not None
    assert 0.5 <= found <= 0.51


# --- calibration ----------------------------------------------------------------------------------------------------


def test_a_calibration_is_planned_on_the_fit_rows() -> None:
    whole = plan_calibration(study(rows=10_000), task=Calibrate(height=6), holdout=0.5)
    half = plan_calibration(study(rows=5_000, clients=10), task=Calibrate(height=6), holdout=1e-9)
    platt, alone = whole.maps["platt"].error, half.maps["platt"].error
    assert platt is not None
    assert alone is not None
    assert platt.brier_excess == pytest.approx(alone.brier_excess)
    assert whole.held_out["brier_score"].sampling == pytest.approx(
        plan_evaluation(study(rows=5_000, clients=10), task=SHORT).predicted["brier_score"].metric.sampling,
        rel=1e-2,
    )


def test_what_is_enough_for_a_map() -> None:
    planned = study(ServerDP(), rows=5_000, epsilon=1.0)
    targets = {"expected_calibration_error": 0.01, "brier_excess": 1e-3}
    plan = plan_calibration(planned, task=Calibrate(height=6), targets=targets)
    assert [one.metric for one in plan.inverse] == [
        f"{name} of {method}" for method in ("platt", "histogram") for name in targets
    ]
    first = plan.inverse[0]
    assert first.rows.value is not None
    enough = plan_calibration(planned.with_rows(first.rows.value), task=Calibrate(height=6), targets=targets)
    assert enough.maps["platt"].error is not None
    assert enough.maps["platt"].error.calibration_error <= 0.01
    hopeless = plan_calibration(study(ServerDP(), rows=300, epsilon=0.05), task=Calibrate(height=6))
    assert hopeless.buckets is None
    assert hopeless.maps["platt"].to_dict()["brier_excess"] is None
    assert "not enough evidence" in (hopeless.maps["platt"].reason or "")
    assert set(hopeless.maps["histogram"].verdicts.values()) == {Verdict.NOT_ENOUGH}


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
        plan_evaluation(study(), task=SHORT, targets=targets)


def test_impossible_holdout() -> None:
    with pytest.raises(UsageError, match="holdout: got 1"):
        plan_calibration(study(), holdout=1.0)
