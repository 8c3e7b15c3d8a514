"""The task from data to result: every method, under every way to sum, within its budget, and true to held-out rows."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jsonschema
import numpy as np
import pytest

import fedassay
from fedassay.data.federation import Federation, load
from fedassay.data.selection import select_pooled_part
from fedassay.errors import UsageError
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Budget, Part, Protection, Setting, TrustModel, Unit
from fedassay.study.simulation import Simulation
from fedassay.summaries.multiclass.maps import logit_map_from_json
from fedassay.tasks.calibration.multiclass.calibrate import METHODS, CalibrateMulticlass
from multiclass_rows import drawn
from simulated_clients import clients_of
from softmax_rows import pooled_metrics

SCHEMA = json.loads((files("fedassay") / "documents" / "result.schema.json").read_text())
SITES, CLASSES, SEED = 20, 3, 1
BUDGET = Budget(epsilon=8.0, delta=1e-5)
WHOLE_CLIENTS: dict[str, Any] = {"unit": Unit.CLIENT, "rows_per_client": 300}
UNITS: dict[str, dict[str, Any]] = {"example": {}, "client": WHOLE_CLIENTS}
EXACT: tuple[TrustModel, ...] = (fedassay.Plain(), fedassay.SecureSum())
PRIVATE: tuple[TrustModel, ...] = (fedassay.ServerDP(), fedassay.DistributedDP())
NOT_PRIVATE = ("isotonic", "fedcal")
"""Refused under this budget: the first needs exact sums, the second has thousands of parameters."""

KEYS = {
    *("method", "solver", "parameters", "calibrator", "fit", "recommended", "reason", "before", "after"),
    *("difference", "reliability_curve", "classes", "rows", "notes"),
}
METRICS = {
    *("classwise_calibration_error", "expected_calibration_error", "brier_score", "log_loss", "accuracy")
}


def data(rows: int = 1_600, **changes: Any) -> dict[str, Any]:
    found = drawn(rows, CLASSES, seed=1)
    rng = np.random.default_rng(0)
    # Each site has mostly one class: skewed, as sites are.
    site = np.where(
        rng.random(rows) < 0.7, found["class"] + 3 * rng.integers(0, 6, rows), rng.integers(0, SITES, rows)
    )
    return {"site": site, "z": found["logits"], "y": found["class"], **changes}


DATA = data()


def calibrated(
    method: str = "auto",
    trust: TrustModel | None = None,
    unit: str = "example",
    *,
    rows: dict[str, Any] | None = None,
    mode: Any = "aggregate",
    seed: int = SEED,
    **how: Any,
) -> fedassay.Result:
    trust = trust or fedassay.Plain()
    return fedassay.calibrate(
        DATA if rows is None else rows,
        client="site",
        label="y",
        logits="z",
        method=method,
        privacy=trust,
        budget=BUDGET if trust.private else None,
        protection=Protection(**UNITS[unit]),
        simulation=Simulation(seed=seed, mode=mode),
        **how,
    )


def held_out(unit: str, rows: dict[str, Any] | None = None, share: float = 0.3) -> np.ndarray:
    """Which rows are held out, by the split of the data layer."""
    rows = rows or DATA
    federation = load(rows, client="site", columns={"class": "y", "logits": "z"})
    part = select_pooled_part(
        federation,
        Part.HELD_OUT,
        key=Simulation(seed=SEED).key_of_split(),
        unit=UNITS[unit].get("unit", Unit.EXAMPLE),
        holdout=share,
    )
    held = np.concatenate([batch["logits"][:, 0] for batch in part.batches()])
    return np.isin(rows["z"][:, 0], held)


def check_document(result: fedassay.Result) -> None:
    """All keys, nothing that JSON has not, and a calibrator that gives probabilities."""
    results = result.results
    wanted = KEYS | ({"temperature"} if results["method"] == "temperature" else set())
    assert set(results) == wanted
    jsonschema.validate(json.loads(result.to_json()), SCHEMA)
    assert set(results["before"]) == set(results["after"]) == METRICS
    assert set(results["difference"]) == {"log_loss", "brier_score", "accuracy"}
    assert set(results["reliability_curve"]) == {"before", "after"}
    assert [one["class"] for one in results["classes"]] == list(range(CLASSES))
    assert results["reason"].startswith("Recommended" if results["recommended"] else "Not recommended")
    p = fedassay.ClassCalibrator.of(result).predict_proba(DATA["z"])
    assert p.shape == (1_600, CLASSES)
    assert np.abs(p.sum(axis=1) - 1).max() < 1e-9
    assert np.array_equal(p, logit_map_from_json(results["calibrator"]).predict_proba(DATA["z"]))
    if results["method"] == "temperature":
        s = results["parameters"]["inverse_temperature"]
        assert results["temperature"]["value"] == pytest.approx(1 / s)


# --- without noise --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain() -> dict[tuple[str, str], fedassay.Result]:
    """Every method in the clear, for both units."""
    return {(method, unit): calibrated(method, unit=unit) for method in METHODS for unit in UNITS}


@pytest.mark.parametrize("unit", list(UNITS))
@pytest.mark.parametrize("method", METHODS)
def test_before_and_after_are_those_of_the_pooled_held_out_rows(
    plain: dict[tuple[str, str], fedassay.Result], method: str, unit: str
) -> None:
    result = plain[method, unit]
    check_document(result)
    mask = held_out(unit)
    z, y = DATA["z"][mask], DATA["y"][mask]
    maps = {"before": np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)}
    maps["after"] = fedassay.ClassCalibrator.of(result).predict_proba(z)
    found = {when: pooled_metrics(p, y) for when, p in maps.items()}
    for when, metrics in found.items():
        for name, value in metrics.items():
            # Sums are of fixed-point numbers; bins of calibrated probabilities have edges that rounding can cross.
            assert result[when][name]["value"] == pytest.approx(value, abs=2e-6), (when, name)
    for name in ("log_loss", "brier_score", "accuracy"):
        change = found["after"][name] - found["before"][name]
        assert result["difference"][name]["value"] == pytest.approx(change, abs=2e-6)
    assert result["rows"] == mask.sum()
    assert [one["rows"] for one in result["classes"]] == np.bincount(y, minlength=CLASSES).tolist()
    assert result.cohort == {"clients": SITES, "dropped": 0, "truncated": 0, "rows": mask.sum()}


def test_most_methods_improve_a_crooked_model(plain: dict[tuple[str, str], fedassay.Result]) -> None:
    for method in METHODS:
        if method != "histogram":  # 128 bins of equal width for 1,100 rows
            result = plain[method, "example"]
            assert result["recommended"] is True, (method, result["reason"])
            assert result["difference"]["log_loss"]["interval"][1] < 0
    assert plain["auto", "example"].results == plain["isotonic", "example"].results


def test_whole_clients_are_held_out_where_they_are_the_unit() -> None:
    for unit, mixed in (("example", True), ("client", False)):
        mask = held_out(unit)
        shares = [mask[DATA["site"] == site].mean() for site in np.unique(DATA["site"])]
        assert any(0 < share < 1 for share in shares) == mixed
        assert 0.15 < mask.mean() < 0.45


def test_the_calibrator_sees_fit_rows_only_and_is_judged_on_the_others_only() -> None:
    for unit in UNITS:
        mask = held_out(unit)
        y = np.where(mask, (DATA["y"] + 1) % CLASSES, DATA["y"])
        usual, other = calibrated("vector", unit=unit), calibrated("vector", unit=unit, rows={**DATA, "y": y})
        assert other["calibrator"] == usual["calibrator"]
        assert other["before"] != usual["before"]
        y = np.where(~mask, (DATA["y"] + 1) % CLASSES, DATA["y"])
        other = calibrated("vector", unit=unit, rows={**DATA, "y": y})
        assert other["calibrator"] != usual["calibrator"]
        assert other["before"] == usual["before"]
        assert other["recommended"] is False


@pytest.mark.parametrize("method", METHODS)
def test_a_secure_sum_gives_the_same(plain: dict[tuple[str, str], fedassay.Result], method: str) -> None:
    assert calibrated(method, fedassay.SecureSum()).results == plain[method, "example"].results


@pytest.mark.parametrize("trust", EXACT, ids=lambda trust: trust.name)
def test_messages_give_the_same_as_totals(trust: TrustModel) -> None:
    """Every client's own message through bytes, with keys and masks where there are some."""
    few = {**DATA, "site": DATA["site"] % 6}
    for method in ("temperature", "bbq", "isotonic"):
        faithful, aggregate = (
            calibrated(method, trust, rows=few, mode=mode) for mode in ("faithful", "aggregate")
        )
        assert faithful.results == aggregate.results
        assert faithful.cohort == aggregate.cohort
        assert (faithful.runtime["mode"], aggregate.runtime["mode"]) == ("faithful", "aggregate")
        assert faithful.runtime["bytes_per_client"] > 0


def test_another_share_is_held_out() -> None:
    result = calibrated("temperature", holdout=0.6)
    assert result["rows"] == held_out("example", share=0.6).sum()
    assert result.parameters["holdout"] == result.parameters["holdout"] == 0.6


# --- under noise ----------------------------------------------------------------------------------------


def federation() -> Federation:
    return load(DATA, client="site", columns={"class": "y", "logits": "z"})


def charged(
    trust: TrustModel, unit: str, *, budget: Budget = BUDGET, seed: int = 0, **fields: Any
) -> tuple[dict[str, Any], MemoryLedger]:
    """Results of the task, on a ledger that refuses whatever exceeds the budget."""
    setting = Setting(trust=trust, protection=Protection(**UNITS[unit]), budget=budget, clients=SITES)
    ledger = MemoryLedger(budget)
    found = run(
        [Job(name="calibrate", task=CalibrateMulticlass(classes=CLASSES, **fields), setting=setting)],
        runtime=clients_of(federation(), seed=SEED, mode="aggregate"),
        ledger=ledger,
        randomness=SimulatedRandomness(seed),
        study="calibrate",
    )
    return found["calibrate"], ledger


@pytest.mark.parametrize("unit", list(UNITS))
@pytest.mark.parametrize("trust", PRIVATE, ids=lambda trust: trust.name)
@pytest.mark.parametrize("method", [method for method in METHODS if method not in NOT_PRIVATE])
def test_every_method_keeps_to_its_budget(method: str, trust: TrustModel, unit: str) -> None:
    results, ledger = charged(trust, unit, method=method)
    assert set(results) == KEYS | ({"temperature"} if results["method"] == "temperature" else set())
    json.dumps(results, allow_nan=False)
    p = logit_map_from_json(results["calibrator"]).predict_proba(DATA["z"])
    assert np.abs(p.sum(axis=1) - 1).max() < 1e-9
    assert not any(charge.exact for charge in ledger.charges)
    # Fit and held-out rows are other units: each part may spend everything, and does.
    assert {charge.part for charge in ledger.charges} == {Part.FIT, Part.HELD_OUT}
    assert 0.9 * BUDGET.epsilon < ledger.spent("federation", BUDGET.delta) <= BUDGET.epsilon
    assert sum(charge.part is Part.FIT for charge in ledger.charges) == results["fit"]["sums"]
    assert results["fit"]["noise"]
    assert results["fit"]["rows"] is None


@pytest.mark.parametrize("unit", list(UNITS))
@pytest.mark.parametrize("trust", PRIVATE, ids=lambda trust: trust.name)
def test_methods_that_this_budget_does_not_bear_are_refused(trust: TrustModel, unit: str) -> None:
    for method in NOT_PRIVATE:
        with pytest.raises(UsageError, match="needs exact sums|or a method with fewer parameters"):
            charged(trust, unit, method=method)


@pytest.mark.parametrize(("method", "solver"), [("temperature", "fedavg"), ("bbq", "auto")])
@pytest.mark.parametrize("trust", PRIVATE, ids=lambda trust: trust.name)
@pytest.mark.parametrize("unit", list(UNITS))
def test_several_sampled_rounds_keep_to_the_budget(
    method: str, solver: str, trust: TrustModel, unit: str
) -> None:
    results, ledger = charged(trust, unit, method=method, solver=solver, rounds=3, participation=0.3)
    fit = [charge for charge in ledger.charges if charge.part is Part.FIT]
    assert len(fit) == results["fit"]["sums"] == 3
    amplified = trust.name == "server-dp" and unit == "client"
    assert {charge.sampled for charge in fit} == {0.3 if amplified else 1.0}
    assert 0.9 * BUDGET.epsilon < ledger.spent("federation", BUDGET.delta) <= BUDGET.epsilon
    assert results["parameters"]["rounds"] == 3
    assert results["parameters"]["participation"] == 0.3
    if amplified:  # and it is worth it: as if everybody took part, the same noise would not be enough
        in_full = [one.__class__(**{**vars(one), "sampled": 1.0}) for one in fit]
        other = MemoryLedger(None)
        other.charge(in_full)
        assert other.spent("federation", BUDGET.delta) > 1.5 * BUDGET.epsilon


@pytest.mark.parametrize("unit", list(UNITS))
@pytest.mark.parametrize("trust", [*EXACT, *PRIVATE], ids=lambda trust: trust.name)
def test_the_same_seed_gives_the_same_result(trust: TrustModel, unit: str) -> None:
    one, again, other = (calibrated("auto", trust, unit, seed=seed) for seed in (5, 5, 6))
    check_document(one)
    assert one.results == again.results
    assert one.cohort == again.cohort
    assert other.results != one.results  # another split, other noise


@pytest.mark.parametrize("unit", list(UNITS))
@pytest.mark.parametrize("trust", PRIVATE, ids=lambda trust: trust.name)
def test_messages_under_noise(trust: TrustModel, unit: str) -> None:
    few = {**DATA, "site": DATA["site"] % 6}
    result = calibrated("auto", trust, unit, rows=few, mode="faithful")
    check_document(result)
    assert result["solver"] == "one-shot"
    assert result.privacy["epsilon"] == BUDGET.epsilon
    assert result.privacy["simulated"] is True
    if unit == "example":
        assert (result["method"], result["recommended"]) == ("temperature", True)
        assert 1.3 < result["temperature"]["value"] < 3.1


# --- edges ----------------------------------------------------------------------------------------------


def test_a_class_that_nobody_has_is_a_warning() -> None:
    rows = {**DATA, "y": np.where(DATA["y"] == 2, 0, DATA["y"])}
    for method in ("temperature", "matrix", "bbq", "isotonic"):
        result = calibrated(method, rows=rows)
        check_document(result)
        assert "No row is of class 2: what is said about it rests on no rows." in result.warnings
        assert "Class 2: no held-out row has it." in result.warnings
        assert result["classes"][2]["rows"] == 0
    for trust in PRIVATE:  # an exact count would be one more release, without noise
        result = calibrated("auto", trust, rows=rows)
        assert not any("class 2" in one.lower() for one in result.warnings)


def test_hardly_any_rows() -> None:
    """One or two rows, whoever has them and whichever part they are in: a result, and no recommendation."""
    for rows in (1, 2, 5):
        tiny = {name: column[:rows] for name, column in DATA.items()}
        for method in METHODS:
            result = calibrated(method, rows=tiny)
            assert result["recommended"] is False
            assert np.isfinite(fedassay.ClassCalibrator.of(result).predict_proba(DATA["z"])).all()
    tiny = {name: column[:8] for name, column in DATA.items()}
    for trust in PRIVATE[:1]:
        result = calibrated("auto", trust, rows=tiny)
        assert result["recommended"] is False


def test_fits_that_end_early_say_so() -> None:
    result = calibrated("temperature", rows=data(z=100 * DATA["z"]), solver="one-shot")
    assert result["fit"]["converged"] is False
    assert "The fit ended early: the best temperature is beyond the grid." in result["notes"]
    assert "The fit ended early: the best temperature is beyond the grid." in result.warnings


def test_a_noisy_temperature_at_the_end_of_its_grid_says_so() -> None:
    for unit in UNITS:
        result = calibrated("temperature", fedassay.ServerDP(), unit, rows=data(z=100 * DATA["z"]))
        assert result["fit"]["converged"] is False
        assert "The fit ended early: the best temperature is beyond the grid." in result.warnings


def test_options_that_made_the_solver_are_a_warning() -> None:
    words = (
        "The solver is fedavg, as only federated averaging has a use for --rounds; leave it out for exact."
    )
    assert words in calibrated("temperature", rounds=2).warnings
    assert words in calibrated("temperature", rounds=2)["notes"]
    assert not any("solver" in one for one in calibrated("temperature", rounds=2, solver="fedavg").warnings)


def test_the_number_of_classes_must_be_declared_in_a_study() -> None:
    task = CalibrateMulticlass()
    with pytest.raises(
        UsageError, match="classes: got none, expected the number of classes of the model; give `classes`"
    ):
        next(task.steps(Setting(trust=fedassay.Plain(), protection=Protection(), budget=None, clients=3)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"score": "p"}, "score: got it together with `logits`"),
        ({"bins": 5}, "bins: got it together with `logits`"),
        ({"transform": "logit"}, "transform: got it together with `logits`"),
        ({"method": "platt"}, "method: got 'platt', expected auto, temperature"),
        ({"rounds": 3}, "rounds: the method auto has no use for it"),
        ({"height": 3}, "height: the method auto has no use for it"),
        ({"logits": None}, "give `score` .* or `logits`"),
        ({"logits": None, "score": "p", "rounds": 3}, "rounds: only calibrators of logits have it"),
    ],
    ids=lambda one: "-".join(one) if isinstance(one, dict) else "",
)
def test_what_does_not_go_together_is_refused_before_the_data_are_opened(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        fedassay.calibrate("no such file.npz", label="y", **{"logits": "z", **fields})
