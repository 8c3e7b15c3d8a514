"""Averaging of local fits: means of optima without noise; under noise the stated law, or a refusal that says why."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import softmax

from conformal_drive import answer, setting_of
from fedassay.errors import UsageError
from fedassay.protocol.vocabulary import All, Part, Query, Released, Sample, Setting, Sum, TrustModel
from fedassay.summaries.multiclass.local_fits import AVERAGED, RIDGE
from fedassay.summaries.multiclass.losses import LEAST_SLOPE
from fedassay.tasks.calibration.multiclass.exact import Fit, fit_exact
from fedassay.tasks.calibration.multiclass.fedavg import CLIP, FederatedAveraging
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.server_dp import ServerDP
from flows import finished
from multiclass_rows import Columns, design, dirichlet, drawn, objective, pooled_optimum

METHODS = tuple(AVERAGED)
Answer = Callable[[Query[Any]], Released[Any]]


def averaging(method: str, classes: int, setting: Setting, **fields: Any) -> FederatedAveraging:
    return FederatedAveraging(method=method, classes=classes, setting=setting, **fields)


def fitted(
    method: str,
    clients: Sequence[Columns],
    trust: TrustModel | None = None,
    setting: Setting | None = None,
    **fields: Any,
) -> Fit:
    setting = setting or setting_of(trust, clients=len(clients))
    flow = averaging(method, clients[0]["logits"].shape[1], setting, **fields).fit()
    return finished(flow, lambda query, _: answer(query, setting, clients, 0))[0]  # type: ignore[no-any-return]


def private(trust: TrustModel, clients: int, epsilon: float = 1.0, **fields: Any) -> Setting:
    return setting_of(
        trust,
        clients=clients,
        epsilon=epsilon,
        delta=1e-5,
        **{"unit": "client", "rows_per_client": 50, **fields},
    )


def alone(method: str, columns: Columns) -> np.ndarray:
    """What one client would find by itself, with SciPy: temperatures as temperatures."""
    z, y = columns["logits"], columns["class"]
    if method == "temperature":
        true = z[np.arange(len(y)), y]

        def slope(s: float) -> float:
            return float(np.mean((softmax(s * z, axis=1) * z).sum(axis=1) - true) + RIDGE * (s - 1))

        ends = slope(0.1) >= 0, slope(10.0) <= 0
        return np.array([10.0 if ends[0] else 0.1 if ends[1] else 1 / brentq(slope, 0.1, 10.0, xtol=1e-13)])
    start = AVERAGED[method].identity(z.shape[1])
    at = objective(design(method, z, len(start)), y, start, RIDGE)
    return pooled_optimum(at, start, LEAST_SLOPE if method == "order-preserving" else None)


def theta_of(fit: Fit) -> np.ndarray:
    return 1 / fit.map.theta if fit.map.kind == "temperature" else fit.map.theta


# --- without noise --------------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", [Plain(), SecureSum()], ids=lambda trust: trust.name)
@pytest.mark.parametrize("method", ["temperature", "vector", "matrix", "order-preserving"])
def test_one_round_with_everybody_is_the_mean_of_local_optima(method: str, trust: TrustModel) -> None:
    clients = dirichlet(drawn(400, 4, seed=1), 25, 0.1)
    some = [one for one in clients if len(one["class"])]
    assert len(some) < 25
    optima, rows = np.stack([alone(method, one) for one in some]), [len(one["class"]) for one in some]
    # 2^-20 each, and what L-BFGS-B leaves at the bounds of order-preserving scaling.
    tolerance = 1e-4 if method == "order-preserving" else 2e-6
    plain = fitted(method, clients, trust, rounds=1)
    assert theta_of(plain) == pytest.approx(optima.mean(axis=0), abs=tolerance)
    weighted = fitted(method, clients, trust, rounds=1, weights="rows")
    assert theta_of(weighted) == pytest.approx(np.average(optima, axis=0, weights=rows), abs=tolerance)
    assert np.abs(theta_of(plain) - theta_of(weighted)).max() > 0.02
    assert (plain.clients, plain.sums, plain.reason, plain.noise) == (25, 1, "", {})
    assert (plain.rows, plain.loss) == (None, None)


def sure(rows: int, classes: int, seed: int) -> Columns:
    """A model that is right nine times in ten, and whose logits are twice what they should be."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, classes))
    z[np.arange(rows), rng.integers(0, classes, rows)] += 5.0
    y = (softmax(z, axis=1).cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    return {"class": y.astype(np.int64), "logits": 2 * z}


def test_on_skewed_clients_the_mean_of_temperatures_is_worse_than_exact_and_weighted_close() -> None:
    """As on the logits of a CIFAR-10 model; as published without a penalty, and with ours, which helps."""
    columns = sure(2_000, 5, seed=2)
    clients = dirichlet(columns, 100, 0.1, seed=2)
    z, y = columns["logits"], columns["class"]
    setting = setting_of(clients=100)
    exact, _ = finished(fit_exact("temperature", 5), lambda query, _: answer(query, setting, clients, 0))
    assert exact.loss is not None

    def lost(**fields: Any) -> float:
        p = fitted("temperature", clients, rounds=1, **fields).map.predict_proba(z)
        return float(-np.log(p[np.arange(len(y)), y]).mean() - exact.loss)

    for ridge in (1e-6, RIDGE):
        assert 0 < 10 * lost(weights="rows", ridge=ridge) < lost(ridge=ridge)
    assert lost() < 0.6 * lost(ridge=1e-6)
    assert lost(ridge=1e-6) > 0.04


@pytest.mark.parametrize("weights", ["clients", "rows"])
@pytest.mark.parametrize("method", METHODS)
def test_several_rounds_with_a_clip_go_step_by_step(method: str, weights: str) -> None:
    """No round moves further than the clip; each starts where the last one ended."""
    clients = dirichlet(drawn(300, 4, seed=3), 10, 0.5)
    setting = setting_of(clients=10)
    flow = averaging(method, 4, setting, rounds=3, clip=0.2, weights=weights).fit()
    found, asked = finished(flow, lambda query, _: answer(query, setting, clients, 0))
    path = [np.array(query.of.theta) for (query,) in asked] + [theta_of(found)]
    assert np.array_equal(path[0], AVERAGED[method].identity(4))
    steps = [np.linalg.norm(after - before) for before, after in pairwise(path)]
    assert all(1e-3 < step <= 0.2 + 1e-9 for step in steps)
    assert len({query.share for (query,) in asked}) == 1
    assert found.sums == len(asked) == 3


def test_a_federation_without_rows_keeps_the_identity_map_and_says_so() -> None:
    for method in METHODS:
        found = fitted(method, [drawn(0, 3)] * 4, rounds=2)
        assert np.array_equal(theta_of(found), AVERAGED[method].identity(3))
        assert found.reason == "no client that took part has rows"
        assert not found.converged


def test_questions_name_the_cohort_and_the_part() -> None:
    setting = setting_of(clients=100)
    query = next(averaging("vector", 3, setting, rounds=8, participation=0.1).fit())
    assert isinstance(query, Sum)
    assert (query.cohort, query.share, query.part) == (Sample(rate=0.1), 1 / 8, Part.FIT)
    assert (query.of.clip, query.of.weights, query.of.ridge) == (0.0, "clients", RIDGE)
    query = next(averaging("vector", 3, setting, rounds=8, part=Part.ALL, ridge=0.5, clip=2.0).fit())
    assert isinstance(query, Sum)
    assert (query.cohort, query.part, query.of.ridge, query.of.clip) == (All(), Part.ALL, 0.5, 2.0)


@pytest.mark.parametrize("clients", [1, 100, 1_000_000])
def test_no_total_wraps_however_many_rows_weigh(clients: int) -> None:
    setting = setting_of(SecureSum() if clients > 1 else Plain(), clients=clients)
    query = next(averaging("vector", 3, setting, rounds=1, weights="rows").fit())
    assert isinstance(query, Sum)
    assert query.of.most_rows == min(2**32, 2**29 // clients)  # updates of 2^30 at most, totals of 2^59
    assert setting.trust.plan(query, setting)


# --- under noise ----------------------------------------------------------------------------------------


def changed_by_noise(setting: Setting, *, factor: float = 1.0, **fields: Any) -> tuple[np.ndarray, Fit]:
    """How one round of a federation without rows moves 4,998 weights, in units of what is stated."""

    def answered(query: Query[Any], _: int) -> Released[Any]:
        released = answer(query, setting, [drawn(0, 3)], seed=1)
        return released.with_value(
            type(released.value)(**{**vars(released.value), "total": factor * released.value.total})
        )

    found, _ = finished(averaging("fedcal", 6, setting, rounds=1, **fields).fit(), answered)
    moved = found.map.theta - AVERAGED["fedcal"].identity(6)
    return moved / found.noise["standard_deviation"], found


@pytest.mark.parametrize("trust", [ServerDP(), DistributedDP()], ids=lambda trust: trust.name)
def test_the_noise_in_the_mean_has_the_stated_law(trust: TrustModel) -> None:
    """4,998 draws of variance one: their mean square errs by √(2/4998) = 0.020 (both laws are nearly normal).

    Bounds are at five times that: an error rate of 6e-7. Half the noise would give 0.25.
    """
    setting = private(trust, 20_000)
    off = 5 * math.sqrt(2 / 4_998)
    draws, found = changed_by_noise(setting)
    assert len(draws) == 4_998
    assert abs(np.mean(draws**2) - 1) <= off
    assert abs(draws.mean()) <= 5 / math.sqrt(4_998)
    assert found.noise["clip"] == CLIP
    assert found.noise["divisor"] == 20_000
    halved, _ = changed_by_noise(setting, factor=0.5)
    assert abs(np.mean(halved**2) - 1) > off
    # What is stated is the plan's noise, in units of the clip, over the fixed number of clients.
    query = next(averaging("fedcal", 6, setting, rounds=1).fit())
    assert isinstance(query, Sum)
    noise = setting.noise(query)
    expected = math.sqrt(noise.variance) * CLIP / 2**24 / 20_000
    assert found.noise["standard_deviation"] == pytest.approx(expected)
    assert query.of.length == 4_998


def test_the_divisor_is_what_is_expected_never_who_answered() -> None:
    """Published: p·K. Of these clients every one wants a temperature that is higher by more than the clip."""
    y = np.arange(30) % 3
    hot = {"class": y, "logits": -2.0 * np.eye(3)[y]}
    setting = private(ServerDP(), 400, epsilon=3.0)
    for many, fields, divisor in (
        (300, {}, 400),
        (300, {"expected_clients": 280.0}, 280),
        (30, {"participation": 0.1}, 40),
    ):
        found = fitted("temperature", [hot] * many, setting=setting, rounds=1, **fields)
        assert found.noise["divisor"] == pytest.approx(divisor)
        expected = CLIP * many / divisor
        assert theta_of(found)[0] - 1 == pytest.approx(expected, abs=5 * found.noise["standard_deviation"])
        assert 0 < found.noise["standard_deviation"] < 0.02


def test_weights_of_rows_are_released_with_the_updates() -> None:
    y = np.arange(40) % 3
    hot = {"class": y, "logits": -2.0 * np.eye(3)[y]}
    cold = {"class": y[:10], "logits": 0.5 * np.eye(3)[y[:10]]}
    setting = private(ServerDP(), 800, epsilon=20.0)
    found = fitted("temperature", [hot, cold] * 400, setting=setting, rounds=1, weights="rows")
    assert theta_of(found)[0] == pytest.approx(1 + CLIP * (40 - 10) / (40 + 10), abs=0.02)
    assert (found.noise["weights"], found.noise["divisor"]) == ("rows", None)
    # Noise alone is divided by no less than noise: it does not lead anywhere far.
    empty = fitted("temperature", [drawn(0, 3)], setting=setting, rounds=1, weights="rows")
    assert abs(theta_of(empty)[0] - 1) <= 5 * CLIP
    unbounded = private(ServerDP(), 800, epsilon=20.0, unit="example", rows_per_client=None)
    with pytest.raises(
        UsageError, match="averaging: got rows under noise, but the rows of a client have no bound"
    ):
        next(averaging("temperature", 3, unbounded, rounds=1, weights="rows").fit())


@pytest.mark.parametrize("method", ["temperature", "order-preserving"])
def test_noise_does_not_lead_out_of_bounds(method: str) -> None:
    setting = private(ServerDP(), 3, epsilon=0.5)
    flow = averaging(method, 3, setting, rounds=30, noisiest=math.inf).fit()
    found, asked = finished(flow, lambda query, step: answer(query, setting, [drawn(0, 3)], step))
    of = AVERAGED[method]
    for (query,) in asked:
        assert np.array_equal(query.of.theta, of.within(np.array(query.of.theta)))
    ends = np.concatenate([query.of.theta for (query,) in asked])
    assert np.isin(ends, [of.least, of.most]).any()
    assert np.isfinite(found.map.predict_proba(drawn(5, 3)["logits"])).all()


# --- refusals -------------------------------------------------------------------------------------------


def refusal(setting: Setting, method: str = "order-preserving", **fields: Any) -> str:
    with pytest.raises(UsageError) as refused:
        next(averaging(method, 10, setting, **fields).fit())
    return str(refused.value)


def number_after(text: str, words: str) -> float:
    return float(text.split(words)[1].split()[0].rstrip(",.;"))


@pytest.mark.parametrize("trust", [ServerDP(), DistributedDP()], ids=lambda trust: trust.name)
def test_too_little_epsilon_for_the_rounds_is_refused_with_what_would_do(trust: TrustModel) -> None:
    setting = private(trust, 50, epsilon=0.5)
    text = refusal(setting, rounds=100)
    assert text.startswith(
        "epsilon: got 0.5 for 100 rounds that average 10 parameters over 50 clients; the noise"
    )
    rounds, epsilon = (
        int(number_after(text, "at most 2; give at most ")),
        number_after(text, "epsilon of at least "),
    )
    assert next(averaging("order-preserving", 10, setting, rounds=rounds).fit())
    assert "epsilon: got 0.5" in refusal(setting, rounds=rounds + 1)
    assert next(averaging("order-preserving", 10, private(trust, 50, epsilon=epsilon), rounds=100).fit())
    assert "epsilon: got" in refusal(private(trust, 50, epsilon=0.85 * epsilon), rounds=100)
    # A single parameter can bear more noise, and more clients make less of it.
    assert next(averaging("temperature", 10, setting, rounds=100).fit())
    assert next(averaging("order-preserving", 10, private(trust, 500, epsilon=0.5), rounds=100).fit())


def test_bearable_rounds_leave_noise_of_at_most_half_a_clip() -> None:
    def length(rounds: int, clients: int) -> float:
        found = fitted(
            "order-preserving", [drawn(0, 10)], setting=private(ServerDP(), clients), rounds=rounds
        )
        return float(math.sqrt(10) * found.noise["standard_deviation"])

    def bearable(method: str, clients: int) -> int:
        return averaging(method, 10, private(ServerDP(), clients), rounds=40).bearable_rounds

    rounds = bearable("order-preserving", 150)
    assert 1 < rounds < 40
    assert length(rounds, 150) <= CLIP / 2 < length(rounds + 1, 150)
    assert bearable("order-preserving", 15_000) == 40
    assert bearable("fedcal", 10) == 1


def test_what_no_number_of_rounds_would_help_is_said_too() -> None:
    text = refusal(private(ServerDP(), 100), "fedcal", rounds=5)
    assert "rounds," not in text.split("give")[1]
    assert "epsilon of at least" in text
    assert text.endswith("or more clients, or a method with fewer parameters.")
    text = refusal(private(ServerDP(), 2), "fedcal", rounds=5)
    assert text.endswith("; give more clients, or a method with fewer parameters.")


def test_sampled_rounds_are_judged_by_the_noise_that_they_get() -> None:
    """The divisor is smaller, and the noise too where sampling amplifies: only then is it enough here."""
    asked = {"rounds": 100, "participation": 0.1}
    assert next(averaging("order-preserving", 10, private(ServerDP(), 200), **asked).fit())
    assert "over 20 clients" in refusal(private(DistributedDP(), 200), **asked)
    assert next(averaging("order-preserving", 10, private(DistributedDP(), 200), rounds=100).fit())


@pytest.mark.parametrize(
    ("method", "fields", "message"),
    [
        ("platt", {}, "method: got 'platt', expected one of temperature, vector"),
        ("vector", {"rounds": 0}, "rounds: got 0"),
        ("vector", {"rounds": 10_001}, "rounds: got 10001"),
        ("vector", {"participation": 0.0}, "sampling rate: got 0"),
        ("vector", {"participation": 1.5}, "sampling rate: got 1.5"),
        ("vector", {"clip": 0.0}, "clip: got 0, expected a number above 0"),
        ("vector", {"clip": -1.0}, "clip: got -1"),
        ("vector", {"clip": float("inf")}, "clip: got inf"),
        ("vector", {"weights": "fixed"}, "weights: got 'fixed', expected clients or rows"),
        ("vector", {"ridge": 0.0}, "ridge: got 0"),
        ("vector", {"expected_clients": 0.0}, "expected clients: got 0"),
        ("vector", {"expected_clients": math.nan}, "expected clients: got nan"),
        ("vector", {"noisiest": 0.0}, "noisiest: got 0"),
    ],
)
def test_what_makes_no_sense_is_refused(method: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        next(averaging(method, 3, setting_of(clients=10), **{"rounds": 1, **fields}).fit())


def test_the_number_of_classes_is_checked() -> None:
    with pytest.raises(UsageError, match="classes: got 1"):
        next(averaging("vector", 1, setting_of(clients=10), rounds=1).fit())
