"""Sets of 0 and 1 cover as they promise: as scores are, calibrated, by label, under every kind of answer.

As in `test_conformal_methods`: the exact coverage of each threshold is looked up, and a method that keeps its promise
fails one of these tests with a probability of at most 1e-4.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from conformal_cases import LEVEL, falls_short, share_public_numbers, threshold_of
from conformal_drive import setting_of
from fedassay.protocol.vocabulary import Setting, TrustModel
from fedassay.summaries.maps import InterpolatedMap, Map, Sigmoid, Steps
from fedassay.tasks.conformal import Conformal
from fedassay.tasks.conformal.threshold import Found
from fedassay.trust import LocalDP, Plain, SecureSum, ServerDP

CLIENTS, ROWS = 8, 80

Rows = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    share_public_numbers(monkeypatch)


def drawn(rng: np.random.Generator, rows: int = ROWS) -> Rows:
    """Scores u², u uniform, that are right about themselves: P(1) is the score, a third of the labels are 1."""
    scores = rng.random(rows) ** 2
    return {"score": scores, "label": (rng.random(rows) < scores).astype(np.int8)}


def federation(rng: np.random.Generator) -> list[Rows]:
    return [drawn(rng) for _ in range(CLIENTS)]


def share_of_0(t: float) -> float:
    """P(s <= t | 0) = 3/2 (√t - t√t/3), for t in [0, 1]."""
    root = math.sqrt(min(1.0, max(0.0, t)))
    return 1.5 * (root - root**3 / 3)


def share_of_1(t: float) -> float:
    """P(1 - s <= t | 1) = 1 - (1 - t)^1.5, for t in [0, 1]."""
    return 1 - (1 - min(1.0, max(0.0, t))) ** 1.5


def share_through(one: Map | None, points: int = 20_001) -> Callable[[float], float]:
    """P(score <= t) of both labels together, by the midpoint rule; exact but for half a point per jump."""
    s = ((np.arange(points) + 0.5) / points) ** 2
    p = s if one is None else one(s)
    scores = np.concatenate([1 - p, p])
    order = np.argsort(scores)
    up_to = np.cumsum(np.concatenate([s, 1 - s])[order]) / points
    return lambda t: float(np.append(up_to, 0.0)[np.searchsorted(scores[order], t, side="right") - 1])


def covered(found: Found, share: Callable[[float], float]) -> float:
    assert found.threshold is not None
    return 1.0 if found.infinite else share(found.threshold)


def test_shares_by_formula_and_by_integration() -> None:
    together = share_through(None)
    for t in (0.05, 0.3, 0.66, 0.95):
        assert together(t) == pytest.approx(share_of_0(t) * 2 / 3 + share_of_1(t) / 3, abs=2e-4)


CELLS: tuple[tuple[str, Setting], ...] = (
    ("qq", setting_of(Plain(), clients=CLIENTS)),
    ("qq", setting_of(SecureSum(), clients=CLIENTS)),
    ("pooled", setting_of(SecureSum(), clients=CLIENTS)),
    ("pooled", setting_of(ServerDP(), clients=CLIENTS, epsilon=2.0)),
    ("qq", setting_of(LocalDP(), clients=CLIENTS, epsilon=8.0, rows_per_client=ROWS)),
)
CALIBRATORS: dict[str, Map | None] = {
    "none": None,
    "sigmoid": Sigmoid(a=0.6, b=1.4, c=0.3),
    "steps": Steps(edges=(0.05, 0.2, 0.5), values=(0.03, 0.1, 0.33, 0.75)),
}


def coverages(task: Conformal, one: Map | None, setting: Setting, *, runs: int = 60) -> np.ndarray:
    """Of so many federations."""
    asked, share = task if one is None else task.calibrated(one.to_json()), share_through(one)
    rng = np.random.default_rng(5)
    found = (threshold_of(asked, setting, federation(rng), run)["all"] for run in range(runs))
    return np.array([covered(each, share) for each in found])


CASES = [
    *((*cell, "sigmoid") for cell in CELLS),
    (*CELLS[0], "none"),
    (*CELLS[2], "none"),
    (*CELLS[3], "steps"),
]


@pytest.mark.parametrize(
    ("method", "setting", "name"),
    CASES,
    ids=[f"{method}, {at.trust.name}, {name}" for method, at, name in CASES],
)
def test_a_new_row_is_covered(method: str, setting: Setting, name: str) -> None:
    """Whatever the calibrator does to scores, as long as it has not seen these rows."""
    task = Conformal(method=method, level=LEVEL, sets="binary", conditional="none", bins=256)
    values = coverages(task, CALIBRATORS[name], setting)
    assert not falls_short(values)
    if name != "steps":  # its scores are tied, so that sets cover more
        assert values.mean() < 0.985


def test_a_level_that_is_lower_by_a_fiftieth_would_be_seen() -> None:
    task = Conformal(method="qq", level=LEVEL - 0.02, sets="binary", conditional="none")
    assert falls_short(coverages(task, CALIBRATORS["sigmoid"], CELLS[0][1]))


@pytest.mark.parametrize(
    ("method", "trust", "epsilon"),
    [("qq", Plain(), None), ("pooled", SecureSum(), None), ("pooled", ServerDP(), 4.0)],
    ids=["plain", "secure-sum", "server-dp"],
)
def test_both_labels_are_covered(method: str, trust: TrustModel, epsilon: float | None) -> None:
    """One threshold for all would leave the rare label with less."""
    rng, setting = np.random.default_rng(6), setting_of(trust, clients=CLIENTS, epsilon=epsilon)
    asked = {"method": method, "level": LEVEL, "sets": "binary", "bins": 256}
    apart = Conformal(**asked)
    found = [threshold_of(apart, setting, federation(rng), run) for run in range(60)]
    for label, share in (("0", share_of_0), ("1", share_of_1)):
        values = np.array([covered(one[label], share) for one in found])
        assert not falls_short(values), label
        assert values.mean() < 0.98, label
    together = [
        threshold_of(Conformal(**asked, conditional="none"), setting, federation(rng), run)["all"]
        for run in range(60)
    ]
    assert falls_short(np.array([covered(one, share_of_1) for one in together]))


def overfitted(rows: list[Rows], each: int = 4) -> Map:
    """The share of ones among four neighbours: a calibrator that says much about the rows it was fitted on."""
    s, y = (np.concatenate([one[role] for one in rows]) for role in ("score", "label"))
    order = np.argsort(s)
    s, y = s[order].reshape(-1, each), y[order].reshape(-1, each)
    return InterpolatedMap(scores=tuple(s.mean(axis=1)), values=tuple((y.sum(axis=1) + 0.2) / (each + 0.4)))


def test_a_calibrator_must_not_have_seen_the_rows_of_the_threshold() -> None:
    """Fitted on other rows it may be as bad as it likes; fitted on the same ones the promise is broken."""
    rng, setting = np.random.default_rng(7), setting_of(Plain(), clients=CLIENTS)
    task = Conformal(method="pooled", level=LEVEL, sets="binary", conditional="none")
    fresh, same = [], []
    for run in range(60):
        rows, others = federation(rng), federation(rng)
        for values, seen in ((fresh, others), (same, rows)):
            one = overfitted(seen)
            found = threshold_of(task.calibrated(one.to_json()), setting, rows, run)["all"]
            values.append(covered(found, share_through(one, points=5_001)))
    assert not falls_short(np.array(fresh))
    assert np.mean(fresh) < 0.95
    assert falls_short(np.array(same))
