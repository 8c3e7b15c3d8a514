"""Two models that scored the same rows, with known true AUC and Brier score, and DeLong's test by definition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from binormal import Population
from fedassay.protocol.vocabulary import Batch, Released, Sum
from fedassay.tasks.evaluation import Evaluate


@dataclass(frozen=True)
class Twins:
    """Two binormal models whose latents are correlated within each class."""

    prevalence: float = 0.4
    deltas: tuple[float, float] = (1.5, 1.3)
    correlation: float = 0.7

    @property
    def models(self) -> tuple[Population, Population]:
        first, second = self.deltas
        return (
            Population(self.prevalence, delta=first, shift=0.2),
            Population(self.prevalence, delta=second, stretch=1.2),
        )

    def truth(self, metric: str) -> float:
        first, second = (model.truth(0.5)[metric] for model in self.models)
        return first - second

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        y = (rng.random(rows) < self.prevalence).astype(np.int8)
        z = rng.normal(size=(2, rows))
        latent = z[0], self.correlation * z[0] + np.sqrt(1 - self.correlation**2) * z[1]
        p, q = (
            1 / (1 + np.exp(-(model.offset + model.slope * (x + model.delta * y))))
            for model, x in zip(self.models, latent, strict=True)
        )
        return {"p": p, "q": q, "y": y}


def delong(first: np.ndarray, second: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The difference of two AUCs and its variance, by definition: over all pairs of rows (DeLong et al. 1988)."""
    differences = []
    for label in (1, 0):
        parts = []
        for scores in (first, second):
            X, Y = scores[labels == 1], scores[labels == 0]
            psi = (X[:, None] > Y[None]) + 0.5 * (X[:, None] == Y[None])
            parts.append(psi.mean(1 if label == 1 else 0))
        differences.append(parts[0] - parts[1])
    value = float(differences[0].mean())
    return value, sum(float(np.var(d, ddof=1)) / len(d) for d in differences)


class Rows:
    """All rows in one batch."""

    def __init__(self, data: dict[str, np.ndarray]) -> None:
        self.data = data

    def batches(self) -> Iterator[Batch]:
        yield {"score": self.data["p"], "versus": self.data["q"], "label": self.data["y"]}


def driven(task: Evaluate, setting: Any, data: dict[str, np.ndarray], draw: Any) -> dict[str, Any]:
    """Drive a task over pooled rows; `draw(noise, size)` is added to every total."""
    steps = task.steps(setting)
    step = next(steps)
    while True:
        answers = []
        for query in step if isinstance(step, tuple) else (step,):
            assert isinstance(query, Sum)
            noise = setting.noise(query)
            total = query.of.measure(Rows(data), {})[0]
            answers.append(
                Released(value=query.of.read(total + draw(noise, total.size)), noise=noise, clients=10)
            )
        try:
            step = steps.send(tuple(answers) if isinstance(step, tuple) else answers[0])
        except StopIteration as finished:
            results: dict[str, Any] = finished.value
            return results
