"""The plan of a distribution function: predictions against releases, and the inverse question."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedassay
import single_plans as single
from fedassay.cli import run_command
from fedassay.errors import UsageError
from fedassay.planning import PlannedStudy, StudyPlan
from fedassay.protocol.vocabulary import Budget, Protection, TrustModel
from fedassay.trust import TRUST_MODELS, Plain, SecureSum, ServerDP
from single_plans import KEYS, forecast, metrics_of, rows_of

ROWS, CLIENTS = 5000.0, 20


def planned(trust: TrustModel | None = None, *, epsilon: float | None = 1.0, **others: Any) -> PlannedStudy:
    terms = {"rows": ROWS, "clients": CLIENTS, **others}
    return single.planned(ServerDP() if trust is None else trust, epsilon=epsilon, **terms)


def plan_alone(study: PlannedStudy, targets: Any = None, **parameters: Any) -> StudyPlan:
    return single.plan_alone("ecdf", study, targets, **parameters)


def mechanisms(study: PlannedStudy, **parameters: Any) -> dict[str, dict[str, Any]]:
    return rows_of(plan_alone(study, **parameters), "mechanisms")


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
    curve = mechanisms(planned(epsilon=epsilon, delta=delta), points=points, mechanism=mechanism)[mechanism]
    values = np.random.default_rng(3).random(int(ROWS))
    squared = []
    for seed in range(30):
        budget = Budget(epsilon=epsilon, delta=delta)
        result = released(seed, points=points, mechanism=mechanism, budget=budget)
        counts = np.searchsorted(np.sort(values), result["points"], side="right")
        # Shares are of the noisy number of rows; in counts the noise is that of the sums alone.
        errors = np.array(result["values"]) * result["rows"]["value"] - counts
        squared.append(float(np.mean(errors[points // 4 : -points // 4] ** 2)))
        assert (np.array(result["upper"]) - np.array(result["lower"])).max() / 2 < 1.1 * curve["band"]
    measured = math.sqrt(np.mean(squared)) / ROWS
    predicted = curve["standard_deviation"]
    assert _agree(measured, predicted)
    assert not _agree(measured, 2 * predicted)
    assert not _agree(measured, predicted / 2)


def _agree(measured: float, predicted: float) -> bool:
    return predicted / 1.25 < measured < predicted * 1.25


def test_labels_double_the_noise_of_the_whole() -> None:
    one = mechanisms(planned(), points=256, mechanism="path")["path"]
    two = mechanisms(planned(), points=256, mechanism="path", labelled=True)["path"]
    assert two["standard_deviation"] == pytest.approx(one["standard_deviation"] * math.sqrt(2))
    assert two["noise"] > one["noise"]


def test_the_recommended_mechanism_has_the_least_noise() -> None:
    def chosen(study: PlannedStudy, **parameters: Any) -> tuple[str, str]:
        facts = plan_alone(study, **parameters).details.facts
        return facts["used"], facts["recommended"]

    pure = mechanisms(planned(), points=1024)
    assert pure["tree"]["standard_deviation"] ** 2 <= 0.17 * pure["path"]["standard_deviation"] ** 2
    assert chosen(planned(), points=1024) == ("tree", "tree")
    many = planned(epsilon=0.1, delta=1e-5)
    assert chosen(many, points=1 << 14) == ("factorised", "factorised")
    assert chosen(planned(), points=1024, mechanism="path") == ("path", "tree")


def test_without_noise_there_is_one_mechanism_and_only_sampling() -> None:
    for trust in (Plain(), SecureSum()):
        plan = plan_alone(planned(trust, epsilon=None))
        ((name, curve),) = rows_of(plan, "mechanisms").items()
        assert name == "none"
        assert (curve["noise"], curve["standard_deviation"]) == (0.0, 0.0)
        assert curve["band"] == pytest.approx(math.sqrt(math.log(2 / 0.05) / (2 * ROWS)))
        assert metrics_of(plan)["band"].width == curve["band"]
        (quantile,) = rows_of(plan, "quantiles").values()
        errors = {"sampling": pytest.approx(0.5 / math.sqrt(ROWS)), "privacy": 0.0}
        assert quantile == {"quantile": 0.5, **errors}


@pytest.mark.parametrize("trust", sorted(name for name, kind in TRUST_MODELS.items() if kind.private))
def test_what_is_enough_is_enough_and_a_little_less_is_not(trust: str) -> None:
    study = planned(TRUST_MODELS[trust](), protection=Protection(rows_per_client=250))
    target = 0.7 * mechanisms(study, points=64)["tree"]["noise"]
    (inverse,) = plan_alone(study, {"noise": target}, points=64).inverse
    assert inverse.epsilon.value is not None

    def noise(other: PlannedStudy) -> float:
        return forecast("ecdf", points=64).at(other, ("noise",))["noise"].width

    assert noise(study.with_epsilon(inverse.epsilon.value)) <= target
    assert noise(study.with_epsilon(inverse.epsilon.value / 1.04)) > target
    if inverse.rows.value is not None:
        assert noise(study.with_rows(inverse.rows.value)) <= target


def test_a_band_that_sampling_alone_makes_too_wide() -> None:
    (inverse,) = plan_alone(planned(), {"band": 0.005}).inverse
    assert inverse.epsilon.value is None
    assert "with the largest one it is 0.0" in (inverse.epsilon.reason or "")
    assert inverse.rows.value is not None


def test_a_precision_that_is_planned_is_accepted_by_the_task() -> None:
    """Planner and task speak of the same number."""
    noise = mechanisms(planned(), points=256)["tree"]["noise"]
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
    plan = mechanisms(study)["factorised"]
    assert plan["reason"]
    assert "noise" not in plan


def test_rows_that_are_left_out_and_points_that_are_rounded_up_are_said() -> None:
    study = replace(planned(), protection=Protection(rows_per_client=10))
    plan = plan_alone(study, points=1000)
    assert any("Only 200 of 5,000 rows" in warning for warning in plan.warnings)
    assert any("1,000 points are rounded up to 1,024" in warning for warning in plan.warnings)


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
    for words in ("tree", "path", "factorised", "noise in band", "Recommended: tree", "0.9"):
        assert words in out
    assert "5,000 rows at 20 clients; server-dp, ε = 1, δ = 0." in out
    assert "For noise within 0.001: ε ≥ " in out
    assert "…" not in out
    assert out.strip().splitlines()[-1] == "Enough data for band; not enough data for noise."


def test_the_command_as_json(capsys: Any) -> None:
    code, out, _ = call(capsys, *DATA, *NOISE, "--json", "-", "--quiet", "--target", "band=0.1")
    assert code == 0
    plan = json.loads(out)
    assert plan.keys() == KEYS | {"used", "recommended"}
    assert [row["mechanism"] for row in plan["tables"]["mechanisms"]["rows"]] == [
        "tree",
        "path",
        "factorised",
    ]
    assert plan["metrics"]["band"]["verdict"] == "enough data"
    assert [one["metric"] for one in plan["inverse"]] == ["band"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rows", 0], "rows: got 0"),
        (["--clients", 9999], "clients: got 9,999"),
        (["--target", "noise"], "--target: got 'noise'"),
        (["--target", "roc_auc=0.1"], "target: got 'roc_auc', expected one of noise, band"),
        (["--privacy", "server-dp"], "needs a budget"),
        (["--privacy", "two-server", "--epsilon", 1], "--rows-per-client"),
    ],
)
def test_bad_input_has_one_sentence(capsys: Any, arguments: list[object], words: str) -> None:
    code, out, err = call(capsys, *DATA, *arguments)
    assert (code, out) == (2, "")
    assert words in err.replace("\n", " ")
    assert err.count("Error") == 1
