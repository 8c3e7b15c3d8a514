"""Methods of conformal prediction under trust models, and scores of which everything is known, to run them on."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from conformal_drive import answer, setting_of
from fedassay.protocol.vocabulary import Setting, TrustModel, Unit
from fedassay.summaries import local_quantiles as quantile_votes
from fedassay.tasks.conformal import Conformal, local_thresholds, methods, pooled
from fedassay.tasks.conformal.threshold import Found
from fedassay.trust import Plain

LEVEL = 0.9
EQUAL = (100,) * 10
UNEQUAL = (260, 180, 133, 100, 80, 60, 44, 23, 9, 4, 0)
ABOUT_60 = (260, 180, 133, 100, 80, 70, 65, 62, 60, 58, 57)
ONE_EACH = (1,) * 2500


# --- scores of which everything is known ----------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """A distribution: how to draw from it, and its distribution function."""

    name: str
    draw: Callable[[np.random.Generator, int], np.ndarray]
    share_up_to: Callable[[float], float]

    def __str__(self) -> str:
        return self.name


CONTINUOUS = Scores("continuous", lambda rng, n: np.abs(rng.normal(size=n)), lambda x: float(2 * ndtr(x) - 1))
ENDS = np.array([0.4, 0.7, 0.85, 0.9, 0.94, 0.97, 0.99, 1.0])
"""P(S <= 0), P(S <= ½), P(S <= 1), ..: one of them is the level itself."""

TIED = Scores(
    "tied",
    lambda rng, n: np.searchsorted(ENDS, rng.random(n)) / 2,
    lambda x: float(ENDS[min(7, math.floor(2 * x))]),
)
GAP = Scores(
    "gap",
    lambda rng, n: np.searchsorted([0.895, 0.903], rng.random(n)) * 2.2,
    lambda x: 0.895 if x < 2.2 else 0.903 if x < 4.4 else 1.0,
)
"""Nearly enough rows at one end, a few in the middle, and nothing between: many points where noise can mislead."""

RANGE = (0.0, 4.5)


# --- cases ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Case:
    """A method under a trust model; `lost` of the clients do not answer."""

    method: str
    trust: TrustModel = field(default_factory=Plain)
    rows: tuple[int, ...] = EQUAL
    epsilon: float | None = None
    delta: float = 0.0
    bins: int | None = None
    lost: int = 0
    confidence: float | None = None
    rows_per_client: int | None = None
    unit: Unit = Unit.EXAMPLE
    runs: int = 300

    def __str__(self) -> str:
        sizes = (
            "one row each" if self.rows == ONE_EACH else "equal" if len(set(self.rows)) == 1 else "unequal"
        )
        words = [self.method, self.trust.name, sizes]
        words += [f"eps {self.epsilon or 0:g}"] * (self.epsilon is not None) + ["delta"] * (self.delta > 0)
        words += [f"{self.lost} lost"] * (self.lost > 0) + ["confident"] * (self.confidence is not None)
        return ", ".join(words)

    @property
    def task(self) -> Conformal:
        asked = (
            {}
            if self.confidence is None
            else {"guarantee": "training-conditional", "confidence": self.confidence}
        )
        return Conformal(method=self.method, level=LEVEL, score_range=RANGE, bins=self.bins, **asked)

    @property
    def setting(self) -> Setting:
        return setting_of(
            self.trust,
            clients=len(self.rows),
            epsilon=self.epsilon,
            delta=self.delta,
            rows_per_client=self.rows_per_client,
            unit=self.unit,
        )

    def federation(self, scores: Scores, rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
        if self.rows == ONE_EACH:
            return [{"conformity": scores.draw(rng, len(self.rows))}]  # added up at once
        most = self.rows_per_client or max(self.rows)
        return [
            {"conformity": scores.draw(rng, min(n, most))} for n in self.rows[: len(self.rows) - self.lost]
        ]


ONE_ROW = {"rows": ONE_EACH, "rows_per_client": 1, "unit": Unit.CLIENT, "bins": 32, "runs": 60}
# --- runs -----------------------------------------------------------------------------------------------


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A pure function of public numbers, computed once for each: what a federation works out, thousands share."""
    known: dict[bytes, Any] = {}

    def recall(*args: Any, **named: Any) -> Any:
        key = pickle.dumps((args, sorted(named.items())))
        if key not in known:
            known[key] = function(*args, **named)
        return known[key]

    return recall


def share_public_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work out once what depends on public numbers only, and give votes a short ladder of rows."""
    for module, name in (
        (methods, "chosen"),
        (local_thresholds, "best_server_rank"),
        (pooled, "pooled_margin"),
        (local_thresholds, "best_choice"),
        (local_thresholds, "published_choice"),
        (local_thresholds, "ChoiceLaw"),
    ):
        monkeypatch.setattr(module, name, remembered(getattr(module, name)))
    monkeypatch.setattr(quantile_votes, "TALLEST_LADDER", max(UNEQUAL))


def thresholds(case: Case, scores: Scores, *, runs: int, seed: int = 0) -> Iterator[Found]:
    """What the task finds for so many federations."""
    task, setting, rng = case.task, case.setting, np.random.default_rng(seed)
    for run in range(runs):
        yield threshold_of(task, setting, case.federation(scores, rng), seed + run)["all"]


def threshold_of(
    task: Conformal, setting: Setting, clients: list[dict[str, np.ndarray]], seed: int
) -> dict[str, Found]:
    """The task without its report, which takes longer than all the rest."""
    method, way = task.way(setting)
    steps = way(task, method, setting)
    query = next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send(answer(query, setting, clients, seed))
    found: dict[str, Found] = end.value.value[0]
    return found


def covered(found: Found, scores: Scores) -> float:
    assert found.threshold is not None
    return 1.0 if found.infinite else scores.share_up_to(found.threshold)


def coverages(case: Case, scores: Scores, *, runs: int | None = None, seed: int = 0) -> np.ndarray:
    found = thresholds(case, scores, runs=runs or case.runs, seed=seed)
    return np.array([covered(one, scores) for one in found])


def falls_short(values: np.ndarray, *, comparisons: int = 40) -> bool:
    """Whether their mean is below the level by more than chance explains: with probability 1e-4 for all comparisons."""
    z = float(norm.isf(1e-4 / comparisons))
    return bool(values.mean() + z * values.std(ddof=1) / math.sqrt(len(values)) < LEVEL)
