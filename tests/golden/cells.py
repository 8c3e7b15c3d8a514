"""Pairs of a task and a trust model, each with a result that is the same in every process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fedassay
from fedassay import Budget, Protection, Simulation
from fedassay.protocol.vocabulary import Neighbours, Unit
from fedassay.trust.distributed_dp import DistributedDP
from fedassay.trust.local_dp import LocalDP
from fedassay.trust.plain import Plain
from fedassay.trust.secure_sum import SecureSum
from fedassay.trust.server_dp import ServerDP
from fedassay.trust.shuffle.model import Shuffle
from fedassay.trust.two_server.model import TwoServer
from golden.documents import summarised

SITES, PRACTICES, ROWS, CLASSES = 8, 130, 400, 3
EACH = ROWS // SITES


def rows(count: int = ROWS, sites: int = SITES) -> dict[str, Any]:
    """Scores of an overconfident model at eight sites, and columns for other tasks; rounded, so that bins are clear."""
    rng = np.random.default_rng(22)
    odds = rng.normal(-0.5, 1.2, count)
    label = (rng.random(count) < 1 / (1 + np.exp(-odds))).astype(int)
    other = odds + rng.normal(0, 0.7, count)
    age = rng.integers(20, 90, count).astype(float)
    target = 1 + 0.5 * odds - 0.03 * age + rng.normal(0, 0.5, count)
    prediction = 1 - 0.03 * age
    return {
        "site": np.array([f"site-{number}" for number in np.arange(count) % sites]),
        "practice": np.arange(count) % PRACTICES,
        "risk": (1 / (1 + np.exp(-1.8 * odds))).round(4),
        "rival": (1 / (1 + np.exp(-other))).round(4),
        "y": label,
        "sex": np.where(rng.random(count) < 0.45, "female", "male"),
        "age": age,
        "odds": odds.round(3),
        "t": target.round(3),
        "p": prediction.round(3),
        "spread": (0.5 + rng.random(count)).round(3),
        "low": (prediction - 0.8).round(3),
        "high": (prediction + 0.9).round(3),
        "strange": np.abs(target - prediction).round(3),
        **_logits(rng, count),
    }


def _logits(rng: np.random.Generator, count: int) -> dict[str, Any]:
    true = rng.integers(0, CLASSES, count)
    logits = rng.normal(0, 1.5, (count, CLASSES)) + 2.0 * np.eye(CLASSES)[true]
    return {"class": true, **{f"z{place}": logits[:, place].round(3) for place in range(CLASSES)}}


def _client(rows_per_client: int) -> Protection:
    return Protection(unit=Unit.CLIENT, rows_per_client=rows_per_client)


BUDGET = Budget(epsilon=3.0, delta=1e-6)
BOUNDED = Protection(rows_per_client=EACH)

TRUST: Mapping[str, dict[str, Any]] = {
    "plain": {"privacy": Plain()},
    "secure-sum": {"privacy": SecureSum()},
    "distributed-dp": {"privacy": DistributedDP(), "budget": BUDGET},
    "distributed-dp-clients": {"privacy": DistributedDP(), "budget": BUDGET, "protection": _client(10)},
    "local-dp": {"privacy": LocalDP(), "budget": Budget(epsilon=6.0), "protection": BOUNDED},
    "server-dp": {"privacy": ServerDP(), "budget": BUDGET},
    "server-dp-pure": {"privacy": ServerDP(), "budget": Budget(epsilon=2.0)},
    "server-dp-clients": {"privacy": ServerDP(), "budget": BUDGET, "protection": _client(10)},
    "server-dp-replace": {
        "privacy": ServerDP(),
        "budget": BUDGET,
        "protection": Protection(neighbours=Neighbours.REPLACE_ONE),
    },
    "two-server": {"privacy": TwoServer(), "budget": BUDGET, "protection": BOUNDED},
    "shuffle": {"privacy": Shuffle(), "budget": Budget(epsilon=6.0, delta=1e-6), "protection": BOUNDED},
}
"""Who is trusted with what; two of them also protect whole clients."""

BINARY = {"score": "risk", "label": "y"}
LOGITS = {"logits": "z", "label": "class"}
RANGE = {"value": "age", "lower": 0, "upper": 128, "points": 64}
FEATURES = {"features": ["age", "odds"]}


@dataclass(frozen=True, kw_only=True)
class Question:
    """An entry point of the Python interface and what it is given."""

    ask: Callable[..., fedassay.Result]
    given: Mapping[str, Any] = field(default_factory=dict)
    relative: float = 1e-6
    """How far numbers may move on another processor; more where an optimiser stops."""


QUESTIONS: Mapping[str, Question] = {
    "evaluate": Question(ask=fedassay.evaluate, given={**BINARY, "thresholds": [0.2, 0.5], "height": 6}),
    "evaluate-by": Question(
        ask=fedassay.evaluate, given={**BINARY, "by": "sex", "groups": ["female", "male"], "height": 5}
    ),
    "evaluate-versus": Question(ask=fedassay.evaluate, given={**BINARY, "versus": "rival", "height": 6}),
    "evaluate-per-site": Question(ask=fedassay.evaluate, given={**BINARY, "per_site": True, "height": 6}),
    "evaluate-logits": Question(ask=fedassay.evaluate, given={**LOGITS, "height": 5}),
    "calibrate": Question(ask=fedassay.calibrate, given={**BINARY, "height": 6}, relative=1e-5),
    **{
        f"calibrate-{method}": Question(
            ask=fedassay.calibrate, given={**BINARY, "method": method, "height": 6}, relative=1e-5
        )
        for method in ("histogram", "bbq", "isotonic", "platt", "beta")
    },
    **{
        f"calibrate-logits-{method}": Question(
            ask=fedassay.calibrate, given={**LOGITS, "method": method}, relative=1e-4
        )
        for method in ("auto", "temperature", "vector", "isotonic", "fedcal")
    },
    "conformal-absolute": Question(
        ask=fedassay.conformal, given={"target": "t", "prediction": "p", "score_range": [0, 4]}
    ),
    "conformal-own-score": Question(
        ask=fedassay.conformal, given={"conformity": "strange", "score_range": [0, 4], "holdout": 0.3}
    ),
    "conformal-normalised": Question(
        ask=fedassay.conformal,
        given={"target": "t", "prediction": "p", "scale": "spread", "score_range": [0, 6], "level": 0.8},
    ),
    "conformal-cqr": Question(
        ask=fedassay.conformal, given={"target": "t", "lower": "low", "upper": "high", "score_range": [-3, 3]}
    ),
    "conformal-binary": Question(
        ask=fedassay.conformal, given={**BINARY, "method": "pooled", "conditional": "class"}
    ),
    "conformal-logits": Question(
        ask=fedassay.conformal, given={**LOGITS, "sets": "aps", "score_range": [0, 1]}
    ),
    **{
        f"conformal-{method}": Question(
            ask=fedassay.conformal,
            given={"target": "t", "prediction": "p", "score_range": [0, 4], "method": method},
        )
        for method in ("qq", "qq-paper", "average", "pooled", "weighted", "local")
    },
    "conformal-groups": Question(
        ask=fedassay.conformal,
        given={
            **{"target": "t", "prediction": "p", "score_range": [0, 4]},
            **{"conditional": "group", "by": "sex", "groups": ["female", "male"], "method": "pooled"},
        },
    ),
    "ecdf": Question(ask=fedassay.ecdf, given={**RANGE, "quantiles": [0.25, 0.5]}),
    "ecdf-labelled": Question(ask=fedassay.ecdf, given={**RANGE, "label": "y"}),
    "quantiles": Question(ask=fedassay.quantiles, given={**RANGE, "quantiles": [0.5]}),
    **{
        f"hosmer-lemeshow-{method}": Question(
            ask=fedassay.hosmer_lemeshow, given={**BINARY, "method": method, "groups": 5, "points": 64}
        )
        for method in ("free", "corrected", "published")
    },
    "infer-newton": Question(
        ask=fedassay.infer, given={"target": "t", **FEATURES, "method": "newton"}, relative=1e-5
    ),
    "infer-logistic": Question(
        ask=fedassay.infer,
        given={"target": "y", **FEATURES, "model": "logistic", "method": "newton", "contrasts": ["age"]},
        relative=1e-5,
    ),
    "infer-rounds": Question(
        ask=fedassay.infer,
        given={"target": "t", **FEATURES, "rounds": 40, "scales": ["age=50:20", "odds=0:1", "target=0:2"]},
        relative=1e-4,
    ),
    "infer-private": Question(
        ask=fedassay.infer,
        given={
            **{"target": "t", **FEATURES, "client": "practice", "rounds": 40},
            **{"scales": ["age=50:20", "odds=0:1", "target=0:2"]},
            "simulation": Simulation(seed=7, mode="aggregate"),
        },
        relative=1e-4,
    ),
    "infer-scaling": Question(
        ask=fedassay.infer,
        given={"target": "t", **FEATURES, "rounds": 40, "method": "random-scaling"},
        relative=1e-4,
    ),
}

CELLS: Mapping[str, tuple[str, ...]] = {
    "evaluate": (
        *("plain", "secure-sum", "distributed-dp", "distributed-dp-clients", "local-dp"),
        *("server-dp-replace", "two-server", "shuffle"),
    ),
    "evaluate-by": ("server-dp",),
    "evaluate-versus": ("distributed-dp",),
    "evaluate-per-site": ("plain",),
    "evaluate-logits": ("secure-sum", "distributed-dp", "server-dp-clients"),
    "calibrate": ("secure-sum", "distributed-dp", "local-dp", "two-server", "shuffle"),
    "calibrate-histogram": ("server-dp",),
    "calibrate-bbq": ("secure-sum",),
    "calibrate-isotonic": ("distributed-dp",),
    "calibrate-platt": ("server-dp-clients",),
    "calibrate-beta": ("secure-sum",),
    "calibrate-logits-auto": ("distributed-dp",),
    "calibrate-logits-temperature": ("plain", "server-dp"),
    "calibrate-logits-vector": ("secure-sum", "server-dp-clients"),
    "calibrate-logits-isotonic": ("plain",),
    "calibrate-logits-fedcal": ("plain",),
    "conformal-absolute": (
        "plain",
        "secure-sum",
        "distributed-dp",
        "local-dp",
        "server-dp",
        "two-server",
        "shuffle",
    ),
    "conformal-own-score": ("plain", "secure-sum"),
    "conformal-normalised": ("secure-sum",),
    "conformal-cqr": ("secure-sum", "server-dp"),
    "conformal-binary": ("secure-sum", "distributed-dp"),
    "conformal-logits": ("plain", "secure-sum"),
    "conformal-qq": ("secure-sum", "local-dp"),
    "conformal-qq-paper": ("plain",),
    "conformal-average": ("plain",),
    "conformal-pooled": ("plain", "distributed-dp-clients"),
    "conformal-weighted": ("secure-sum",),
    "conformal-local": ("plain",),
    "conformal-groups": ("secure-sum", "server-dp"),
    "ecdf": (
        "plain",
        "secure-sum",
        "distributed-dp",
        "local-dp",
        "server-dp-replace",
        "two-server",
        "shuffle",
    ),
    "ecdf-labelled": ("secure-sum", "server-dp"),
    "quantiles": ("two-server",),
    "hosmer-lemeshow-free": ("plain", "secure-sum", "distributed-dp", "two-server"),
    "hosmer-lemeshow-corrected": ("secure-sum", "server-dp"),
    "hosmer-lemeshow-published": ("secure-sum",),
    "infer-newton": ("plain", "secure-sum"),
    "infer-logistic": ("secure-sum",),
    "infer-rounds": ("plain", "secure-sum"),
    "infer-private": ("server-dp",),
    "infer-scaling": ("secure-sum",),
}
"""Which question is asked under which trust model."""

NAMES = tuple(f"{question}--{trust}" for question, models in CELLS.items() for trust in models)


STATED = frozenset({name.partition("--")[2]: name for name in reversed(NAMES)}.values())
"""The first cell of each trust model: it has the statement, which the question does not change, for all of them."""


def relative(name: str) -> float:
    return QUESTIONS[name.partition("--")[0]].relative


def run(name: str) -> dict[str, Any]:
    """The result of a cell as a short document, without what differs from run to run."""
    question, _, trust = name.partition("--")
    asked = QUESTIONS[question]
    given = {"client": "site", "simulation": Simulation(seed=7), **asked.given, **TRUST[trust]}
    result = asked.ask(rows(), **given)
    document = result.to_dict()
    del document["fedassay"], document["runtime"]["seconds"]
    if name not in STATED:
        del document["privacy"]["statement"]
    return summarised(document)  # type: ignore[no-any-return]
