"""The plan of a distribution function: predictions against releases, and the inverse question."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedassay
from fedassay.cli import run_command
from fedassay.errors import UsageError
from fedassay.planning import PlannedRelease, Shape, Size, plan_distribution
from fedassay.protocol import Budget, Protection, TrustModel
from fedassay.trust import TRUST_MODELS, Plain, SecureSum, ServerDP

ROWS, CLIENTS = 5000.0, 20


def planned(
    trust: TrustModel | None = None, *, epsilon: float | None = 1.0, delta: float = 0.0, **more: Any
) -> PlannedRelease:
    return PlannedRelease(
        expectation=Size(rows=more.pop("rows", ROWS), clients=more.pop("clients", CLIENTS)),
        trust=ServerDP() if trust is None else trust,
        budget=None if epsilon is None else Budget(epsilon=epsilon, delta=delta),
        **more,
    )


def released(seed: int, *, points: int, mechanism: str, budget: Budget, labelled: bool = False) -> Any:
    rng = np.random.default_rng(3)
    data = {
        "v": rng.random(int(ROWS)),
        "y": rng.integers(0, 2, int(ROWS)),
        "c": np.arange(int(ROWS)) % CLIENTS,
    }
    return fedassay.ecdf(
        data,
        client="c",
        value="v",
        label="y" if labelled else None,
        lower=0,
        upper=1,
        points=points,
        mechanism=mechanism,
        smoothing="none",
        privacy=ServerDP(),
        budget=budget,
        simulation=fedassay.Simulation(seed=seed, mode="aggregate"),
    )


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("mechanism", ["tree", "path", "factorised"])
def test_predicted_noise_is_that_of_releases(mechanism: str, delta: float) -> None:
    """The root mean squared error of 30 releases at the middle points, where no share is cut off at 0 or 1.

    Its relative standard error is below 0.06 (measured over the releases), so that a factor of 1.25 is four of them:
    less than 1 in 10,000 for six comparisons, with fixed seeds. Half or twice the noise is far outside.
    """
    epsilon, points = 0.3, 256
    plan = plan_distribution(
        planned(epsilon=epsilon, delta=delta), shape=Shape(points=points, mechanism=mechanism)
    )
    values = np.random.default_rng(3).random(int(ROWS))
    squared = []
    for seed in range(30):
        budget = Budget(epsilon=epsilon, delta=delta)
        result = released(seed, points=points, mechanism=mechanism, budget=budget)
        counts = np.searchsorted(np.sort(values), result["points"], side="right")
        # Shares are of the noisy number of rows; in counts the noise is that of the sums alone.
        errors = np.array(result["values"]) * result["rows"]["value"] - counts
        squared.append(float(np.mean(errors[points // 4 : -points // 4] ** 2)))
        assert (np.array(result["upper"]) - np.array(result["lower"])).max() / 2 < 1.1 * plan.predicted[
            mechanism
        ].band
    measured = math.sqrt(np.mean(squared)) / ROWS
    predicted = plan.predicted[mechanism].deviation
    assert _agree(measured, predicted)
    assert not _agree(measured, 2 * predicted)
    assert not _agree(measured, predicted / 2)


def _agree(measured: float, predicted: float) -> bool:
    return predicted / 1.25 < measured < predicted * 1.25


def test_labels_double_the_noise_of_the_whole() -> None:
    one = plan_distribution(planned(), shape=Shape(points=256, mechanism="path")).predicted["path"]
    two = plan_distribution(planned(), shape=Shape(points=256, mechanism="path", labelled=True)).predicted[
        "path"
    ]
    assert two.deviation == pytest.approx(one.deviation * math.sqrt(2))
    assert two.noise > one.noise


def test_the_recommended_mechanism_has_the_least_noise() -> None:
    pure = plan_distribution(planned(), shape=Shape(points=1024))
    assert (pure.used, pure.recommended) == ("tree", "tree")
    assert pure.predicted["tree"].deviation ** 2 <= 0.17 * pure.predicted["path"].deviation ** 2
    many = plan_distribution(planned(epsilon=0.1, delta=1e-5), shape=Shape(points=1 << 14))
    assert (many.used, many.recommended) == ("factorised", "factorised")
    forced = plan_distribution(planned(), shape=Shape(points=1024, mechanism="path"))
    assert (forced.used, forced.recommended) == ("path", "tree")


def test_without_noise_there_is_one_mechanism_and_only_sampling() -> None:
    for trust in (Plain(), SecureSum()):
        plan = plan_distribution(planned(trust, epsilon=None))
        assert list(plan.predicted) == ["none"]
        curve = plan.predicted["none"]
        assert (curve.noise, curve.deviation) == (0.0, 0.0)
        assert curve.band == pytest.approx(math.sqrt(math.log(2 / 0.05) / (2 * ROWS)))
        assert curve.quantiles[0.5] == (pytest.approx(0.5 / math.sqrt(ROWS)), 0.0)


@pytest.mark.parametrize("trust", sorted(name for name, kind in TRUST_MODELS.items() if kind.private))
def test_what_is_enough_is_enough_and_a_little_less_is_not(trust: str) -> None:
    protection = Protection(rows_per_client=250)
    study = planned(TRUST_MODELS[trust](), protection=protection)
    shape = Shape(points=64)
    target = 0.7 * plan_distribution(study, shape=shape).predicted["tree"].noise
    (inverse,) = plan_distribution(study, shape=shape, targets={"noise": target}).inverse
    assert inverse.epsilon.value is not None

    def noise(other: PlannedRelease) -> float:
        plan = plan_distribution(other, shape=shape)
        return plan.predicted[plan.used].noise

    assert noise(study.with_epsilon(inverse.epsilon.value)) <= target
    assert noise(study.with_epsilon(inverse.epsilon.value / 1.04)) > target
    if inverse.rows.value is not None:
        assert noise(study.with_rows(inverse.rows.value)) <= target


def test_a_band_that_sampling_alone_makes_too_wide() -> None:
    (inverse,) = plan_distribution(planned(), targets={"band": 0.005}).inverse
    assert inverse.epsilon.value is None
    assert "sampling error alone" in (inverse.epsilon.reason or "")
    assert inverse.rows.value is not None


def test_a_precision_that_is_planned_is_accepted_by_the_task() -> None:
    """Planner and task speak of the same number."""
    plan = plan_distribution(planned(), shape=Shape(points=256))
    noise = plan.predicted["tree"].noise
    common = {"lower": 0.0, "upper": 1.0, "points": 256, "expected_rows": ROWS}
    data = {"v": np.linspace(0, 1, 50), "c": np.arange(50) % 5}
    terms: dict[str, Any] = {
        "privacy": ServerDP(),
        "budget": Budget(epsilon=1.0),
        "client": "c",
        "value": "v",
    }
    fedassay.ecdf(data, **common, **terms, precision=noise * 1.001)
    with pytest.raises(UsageError, match="noise alone makes the band"):
        fedassay.ecdf(data, **common, **terms, precision=noise * 0.999)


def test_a_mechanism_that_cannot_be_used_has_its_reason() -> None:
    study = planned(epsilon=1e-3, rows=100.0)
    plan = plan_distribution(study)
    assert plan.predicted["factorised"].reason is not None
    assert plan.to_dict()["mechanisms"]["factorised"]["noise"] is None


def test_rows_that_are_left_out_and_points_that_are_rounded_up_are_said() -> None:
    study = replace(planned(), protection=Protection(rows_per_client=10))
    plan = plan_distribution(study, shape=Shape(points=1000))
    assert any("Only 200 of 5,000 rows" in warning for warning in plan.warnings)
    assert any("1,000 points are rounded up to 1,024" in warning for warning in plan.warnings)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"points": 1}, "points: got 1"),
        ({"points": 1 << 21}, "points: got 2,097,152"),
        ({"mechanism": "magic"}, "mechanism: got 'magic'"),
        ({"quantiles": (1.0,)}, "quantile: got 1"),
        ({"level": 0.0}, "level: got 0"),
    ],
)
def test_bad_shapes_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Shape(**given)


# --- the command ----------------------------------------------------------------------------------------


def call(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    code = run_command(["plan", "ecdf", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


DATA = ["--rows", 5000, "--clients", 20, "--points", 64]
NOISE = ["--privacy", "server-dp", "--epsilon", 1]


def test_the_command_in_words(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = call(capsys, *DATA, *NOISE, "--quantile", 0.9, "--precision", 0.001)
    assert (code, err) == (0, "")
    for words in ("tree (used)", "path", "factorised", "noise in band", "Recommended: tree", "0.9"):
        assert words in out
    assert "5,000 rows at 20 clients, 64 points; server-dp, ε = 1, δ = 0." in out
    assert "For noise within 0.001: ε ≥ " in out
    assert "…" not in out
    assert out.strip().splitlines()[-1] == "Enough data for band; not enough data for noise."


def test_the_command_as_json(capsys: Any) -> None:
    code, out, _ = call(capsys, *DATA, *NOISE, "--json", "-", "--quiet", "--target", "band=0.1")
    assert code == 0
    plan = json.loads(out)
    assert set(plan) == {
        *("plan", "assumptions", "parameters", "verdict", "verdicts", "targets", "mechanisms", "used"),
        *("recommended", "inverse", "warnings"),
    }
    assert set(plan["mechanisms"]) == {"tree", "path", "factorised"}
    assert plan["verdicts"]["band"] == "enough data"
    assert [one["metric"] for one in plan["inverse"]] == ["band"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rows", 0], "rows: got 0"),
        (["--clients", 9999], "clients: got 9,999"),
        (["--points", 1], "points: got 1"),
        (["--quantile", 2], "quantile: got 2"),
        (["--target", "noise"], "--target: got 'noise'"),
        (["--target", "roc_auc=0.1"], "target: got 'roc_auc', expected one of noise, band"),
        (["--precision", -1], "--precision: got -1"),
        (["--privacy", "server-dp"], "needs a budget"),
        (["--privacy", "two-server", "--epsilon", 1], "--rows-per-client"),
        (["--privacy", "distributed-dp", "--epsilon", 1, "--clients", 2], "got 2 clients"),
    ],
)
def test_bad_input_has_one_sentence(capsys: Any, arguments: list[object], words: str) -> None:
    code, out, err = call(capsys, *DATA, *arguments)
    assert (code, out) == (2, "")
    assert words in err.replace("\n", " ")
    assert err.count("Error") == 1
