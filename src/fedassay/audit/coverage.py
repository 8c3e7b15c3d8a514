"""Do intervals and prediction sets hold what they promise? Federations with a known truth, again and again.

Each run draws rows from a distribution whose truth is known, gives them to clients, and lets the shipped task find its
interval under the shipped trust model (in aggregate, where the law of the released totals is that of the messages).
Runs are independent, so that the number of those in which the statement was true is binomial, and Clopper and Pearson
(1934) bound how often it is true. Covering more than was promised is no violation: bins and whole numbers widen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.special import ndtr

from fedassay.audit.bound import clopper_pearson_high, clopper_pearson_low
from fedassay.audit.findings import CONFIDENCE, Progress
from fedassay.data.federation import load
from fedassay.errors import UsageError
from fedassay.privacy.ledger import MemoryLedger
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import Budget, Protection, Setting, TrustModel
from fedassay.run import Job, run
from fedassay.runtimes.in_process import Aggregate
from fedassay.tasks.catalogue import task_of
from fedassay.trust import SecureSum, ServerDP

Data = dict[str, Any]
Draw = Callable[[np.random.Generator], Data]
Holds = Callable[[Mapping[str, Any], np.random.Generator], bool]

RUNS = 200
"""Unless more are asked for: enough to see that a 95 % interval holds in less than 88 %."""

_ROWS, _CLIENTS = 1_000, 10


@dataclass(frozen=True, kw_only=True)
class CoverageCase:
    """A statement that is true in a known share of runs.

    Parameters
    ----------
    statement : in words.
    level : the share of runs in which it is promised to be true.
    task, parameters, columns : what is asked, as a study file would.
    draw : rows of a federation with a column ``client``.
    holds : whether the statement is true of a result; it may draw new rows.
    """

    name: str
    statement: str
    level: float
    task: str
    parameters: Mapping[str, Any]
    columns: Mapping[str, str]
    trust: TrustModel
    budget: Budget | None
    draw: Draw = field(repr=False)
    holds: Holds = field(repr=False)

    def result(self, rng: np.random.Generator, randomness: Any) -> Mapping[str, Any]:
        """What the task finds in one federation."""
        federation = load(self.draw(rng), client="client", columns=self.columns)
        setting = Setting(
            trust=self.trust, protection=Protection(), budget=self.budget, clients=federation.client_count
        )
        runtime = Aggregate(
            federation, randomness=randomness.child("limit"), split_key=randomness.child("split").bytes(32)
        )
        found: Mapping[str, Any] = run(
            [Job(name=self.name, task=task_of(self.task, self.parameters), setting=setting)],
            runtime=runtime,
            ledger=MemoryLedger(None),
            randomness=randomness.child("server"),
            study="audit",
        )[self.name]
        return found


@dataclass(frozen=True, kw_only=True)
class Covered:
    """How often a statement was true, and between which shares of all runs it is, with the stated confidence."""

    case: CoverageCase
    hits: int
    runs: int
    confidence: float
    low: float
    high: float
    seconds: float

    @property
    def share(self) -> float:
        """Of these runs."""
        return self.hits / self.runs

    @property
    def violated(self) -> bool:
        """Whether the promise is broken: even the upper end is below the level."""
        return self.high < self.case.level

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "case": self.case.name,
            "statement": self.case.statement,
            "trust_model": self.case.trust.name,
            "level": self.case.level,
            "covered": self.share,
            "interval": [self.low, self.high],
            "confidence": self.confidence,
            "runs": self.runs,
            "violated": self.violated,
            "seconds": round(self.seconds, 1),
        }


def covered(
    case: CoverageCase,
    *,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    randomness: Any = None,
    progress: Progress | None = None,
) -> Covered:
    """Count in how many of so many federations the statement is true.

    Guarantee: a promise that is kept is called violated with a probability of at most 1 - confidence.
    """
    if runs < 1:
        raise UsageError(f"runs: got {runs}, expected at least 1.")
    started = time.perf_counter()
    source = SecureRandomness() if randomness is None else randomness
    rng = np.random.default_rng(source.child("rows").words(4).tolist())
    hits = 0
    for number in range(runs):
        hits += case.holds(case.result(rng, source.child(f"run-{number}")), rng)
        if progress is not None:
            progress(number + 1, runs)
    error = (1 - confidence) / 2
    return Covered(
        case=case,
        hits=hits,
        runs=runs,
        confidence=confidence,
        low=clopper_pearson_low(hits, runs, error),
        high=clopper_pearson_high(hits, runs, error),
        seconds=time.perf_counter() - started,
    )


# --- the cases ----------------------------------------------------------------------------------------------------


def _clients() -> Any:
    return np.arange(_ROWS) % _CLIENTS


def _scored(rng: np.random.Generator) -> Data:
    """Two normal classes, one standard deviation apart."""
    label = (rng.random(_ROWS) < 0.5).astype(np.int8)
    return {"client": _clients(), "p": ndtr(rng.normal(label, 1.0) - 0.5), "y": label}


_AUC = float(ndtr(1 / math.sqrt(2)))
"""Of two normal classes, one standard deviation apart."""


def _uniform(rng: np.random.Generator) -> Data:
    return {"client": _clients(), "x": rng.random(_ROWS)}


def _regression(rng: np.random.Generator) -> Data:
    """A slope of 1, and errors that grow with the feature: the textbook's own standard errors are too small."""
    x = rng.normal(size=_ROWS)
    return {"client": _clients(), "x": x, "y": 0.5 + x + (0.5 + np.abs(x)) * rng.normal(size=_ROWS)}


def _within(interval: Any, truth: float) -> bool:
    return bool(interval[0] <= truth <= interval[1])


def _band_holds(results: Mapping[str, Any], rng: np.random.Generator) -> bool:
    truth = np.array(results["points"])
    return bool(((np.array(results["lower"]) <= truth) & (truth <= np.array(results["upper"]))).all())


def _new_row_is_covered(results: Mapping[str, Any], rng: np.random.Generator) -> bool:
    return bool(results["infinite"] or rng.random() <= results["threshold"])


def _slope_holds(results: Mapping[str, Any], rng: np.random.Generator) -> bool:
    (slope,) = (one for one in results["coefficients"] if one["name"] == "x")
    return _within(slope["interval"], 1.0)


@lru_cache(maxsize=1)
def coverage_cases() -> Mapping[str, CoverageCase]:
    """Name to case."""
    values = {"lower": 0.0, "upper": 1.0, "points": 64, "quantiles": [0.5]}
    private: dict[str, Any] = {"trust": ServerDP(), "budget": Budget(epsilon=1.0)}
    found = [
        CoverageCase(
            name="coverage/evaluate",
            statement="95 % interval of the area under the ROC curve, epsilon 1",
            level=0.95,
            task="evaluate",
            parameters={"height": 8},
            columns={"score": "p", "label": "y"},
            draw=_scored,
            holds=lambda results, rng: _within(results["roc_auc"]["interval"], _AUC),
            **private,
        ),
        CoverageCase(
            name="coverage/ecdf-quantile",
            statement="95 % interval of the median, epsilon 1",
            level=0.95,
            task="ecdf",
            parameters=values,
            columns={"value": "x"},
            draw=_uniform,
            holds=lambda results, rng: _within(results["quantiles"][0]["interval"], 0.5),
            **private,
        ),
        CoverageCase(
            name="coverage/ecdf-band",
            statement="95 % band of a distribution function, everywhere at once, epsilon 1",
            level=0.95,
            task="ecdf",
            parameters=values,
            columns={"value": "x"},
            draw=_uniform,
            holds=_band_holds,
            **private,
        ),
        CoverageCase(
            name="coverage/conformal",
            statement="90 % prediction set of a new row, epsilon 1",
            level=0.9,
            task="conformal",
            parameters={"method": "pooled", "level": 0.9, "score_range": [0.0, 1.0]},
            columns={"conformity": "x"},
            draw=_uniform,
            holds=_new_row_is_covered,
            **private,
        ),
        CoverageCase(
            name="coverage/infer",
            statement="95 % interval of a slope, errors that grow with the feature, no noise",
            level=0.95,
            task="infer",
            parameters={"model": "linear", "features": ["x"], "method": "newton"},
            columns={"features": "x", "target": "y"},
            draw=_regression,
            holds=_slope_holds,
            trust=SecureSum(),
            budget=None,
        ),
    ]
    return MappingProxyType({case.name: case for case in found})
