"""Clients, classes and groups with distributions of their own: each is covered where that is promised.

As in `test_conformal_methods`: the exact coverage of each threshold is looked up, and a method that keeps its promise
fails one of these tests with a probability of at most 1e-4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from scipy.special import ndtr

from conformal_cases import CONTINUOUS, LEVEL, falls_short, share_public_numbers, threshold_of
from conformal_drive import drive, setting_of
from fedassay.protocol.vocabulary import Setting, TrustModel
from fedassay.summaries.grouped_histogram import fingerprints
from fedassay.tasks.conformal import Conformal
from fedassay.tasks.conformal.threshold import Found
from fedassay.trust import Plain, SecureSum, ServerDP


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    share_public_numbers(monkeypatch)


SPREADS = (0.3, 0.5, 0.8, 1.0, 1.0, 1.2, 1.5, 1.8)
SIZES = (40, 5, 100, 9, 60, 3, 30, 20)


def with_own_weights(
    method: str, rows: tuple[int, ...], shifts: tuple[float, ...], setting: Setting, *, runs: int
) -> np.ndarray:
    """Coverage of new rows that come from client j with probability (n_j + 1)/(N + K); its scores are |z|·shift_j."""
    task = Conformal(method=method, level=LEVEL, score_range=(0.0, 40.0), bins=1024)
    rng, found = np.random.default_rng(1), []
    weights = (np.array(rows) + 1) / (sum(rows) + len(rows))
    for run in range(runs):
        clients = [{"conformity": s * np.abs(rng.normal(size=n))} for s, n in zip(shifts, rows, strict=True)]
        threshold = threshold_of(task, setting, clients, run)["all"].threshold
        found.append(weights @ (2 * ndtr(threshold / np.array(shifts)) - 1))
    return np.array(found)


@pytest.mark.parametrize(
    ("trust", "epsilon"),
    [(Plain(), None), (SecureSum(), None), (ServerDP(), 2.0)],
    ids=["plain", "secure-sum", "server-dp"],
)
def test_weighted_covers_rows_of_clients_that_differ(trust: TrustModel, epsilon: float | None) -> None:
    setting = setting_of(trust, clients=len(SIZES), epsilon=epsilon)
    assert not falls_short(with_own_weights("weighted", SIZES, SPREADS, setting, runs=150))


def test_pooled_promises_nothing_about_clients_that_differ() -> None:
    """One large client with small scores, and a dozen of one row with large ones: a seventh of all new rows."""
    rows, shifts = (150, *(1,) * 12), (0.01, *(8.0,) * 12)
    setting = setting_of(clients=len(rows))
    assert falls_short(with_own_weights("pooled", rows, shifts, setting, runs=100))
    assert not falls_short(with_own_weights("weighted", rows, shifts, setting, runs=100))


def test_each_client_alone_covers_its_own_rows() -> None:
    task, rng = Conformal(method="local", level=LEVEL), np.random.default_rng(2)
    setting, values = setting_of(clients=len(SIZES)), []
    for _ in range(200):
        clients = [
            {"conformity": s * np.abs(rng.normal(size=n))} for s, n in zip(SPREADS, SIZES, strict=True)
        ]
        own = drive(task, setting, clients)["sites"]
        values.append(
            [
                1.0 if one["infinite"] else 2 * ndtr(one["threshold"] / s) - 1
                for one, s in zip(own, SPREADS, strict=True)
            ]
        )
    for each in np.array(values).T:
        assert not falls_short(each) or each.std() == 0  # those with too few rows cover everything
        assert each.mean() >= LEVEL - 0.01


CONDITIONAL = (
    ("qq", Plain(), None),
    ("qq", SecureSum(), None),
    ("pooled", SecureSum(), None),
    ("pooled", ServerDP(), 2.0),
)


def judge_parts(
    found: list[Mapping[str, Found]], share_up_to: Mapping[str, Callable[[float], float]]
) -> None:
    for name, share in share_up_to.items():
        values = np.array([1.0 if one[name].infinite else share(one[name].threshold) for one in found])
        assert not falls_short(values), name
        assert values.mean() < 0.99, name
    # One threshold for all would leave the harder part with less.
    easy = [one[min(share_up_to)].threshold for one in found]
    hard = share_up_to[max(share_up_to)]
    assert falls_short(np.array([hard(threshold) for threshold in easy]))


@pytest.mark.parametrize(
    ("method", "trust", "epsilon"), CONDITIONAL, ids=lambda x: getattr(x, "name", str(x))
)
def test_every_class_is_covered(method: str, trust: TrustModel, epsilon: float | None) -> None:
    """Two classes: the probability of the wrong one is uniform where 0 is true, and the root of that where 1 is."""
    task = Conformal(
        method=method, level=LEVEL, sets="lac", conditional="class", groups=("0", "1"), classes=2, bins=1024
    )
    setting, rng, found = setting_of(trust, clients=8, epsilon=epsilon), np.random.default_rng(3), []

    def client() -> dict[str, np.ndarray]:
        truth = rng.integers(0, 2, 80)
        wrong = np.where(truth == 0, rng.random(80), np.sqrt(rng.random(80)))
        sides = np.log(np.stack([1 - wrong, wrong], axis=1))
        return {"class": truth, "logits": np.where((truth == 0)[:, None], sides, sides[:, ::-1])}

    for run in range(100):
        found.append(threshold_of(task, setting, [client() for _ in range(8)], run))
    judge_parts(found, {"0": lambda x: min(x, 1.0), "1": lambda x: min(x, 1.0) ** 2})


@pytest.mark.parametrize(
    ("method", "trust", "epsilon"), CONDITIONAL, ids=lambda x: getattr(x, "name", str(x))
)
def test_every_group_is_covered(method: str, trust: TrustModel, epsilon: float | None) -> None:
    task = Conformal(
        method=method,
        level=LEVEL,
        conditional="group",
        groups=("easy", "hard"),
        score_range=(0.0, 8.0),
        bins=1024,
    )
    setting, rng, found = setting_of(trust, clients=8, epsilon=epsilon), np.random.default_rng(4), []
    prints = fingerprints(["easy", "hard", "unknown"])

    def client() -> dict[str, np.ndarray]:
        kind = rng.choice(3, size=90, p=[0.45, 0.45, 0.1])
        return {"conformity": np.abs(rng.normal(size=90)) * (1 + (kind == 1)), "group": prints[kind]}

    for run in range(100):
        found.append(threshold_of(task, setting, [client() for _ in range(8)], run))
    judge_parts(found, {"easy": CONTINUOUS.share_up_to, "hard": lambda x: CONTINUOUS.share_up_to(x / 2)})
