"""What all experiments share: data, privacy models, variants, releases with seeds, and averages of errors.

Data: the folder that the environment variable FEDASSAY_DATA names, by default ``../shared/datasets`` beside the
repository. Nothing of it is copied; what is written are averages over repetitions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from experiments.published import binary_histogram, dyadic_evidence
from fedassay.estimation.evidence import Evidence
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Batch, Budget, Protection, Randomness, Setting, Sum, TrustModel
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.evaluation import Evaluate
from fedassay.tasks.evaluation.accuracy import least_noisy
from fedassay.trust import DistributedDP, LocalDP, SecureSum

REPOSITORY = Path(__file__).resolve().parent.parent
THRESHOLDS = tuple(j / 11 for j in range(1, 11))
"""The paper's decision thresholds."""

Floats = NDArray[np.float64]


# --- data -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """Scored rows, one client each. `ranks` are dense ranks of the scores: equal scores have equal ranks."""

    name: str
    scores: Floats
    labels: NDArray[np.int8]
    ranks: NDArray[np.int64]

    @classmethod
    def of(cls, name: str, scores: Floats, labels: NDArray[np.int8]) -> Sample:
        """Rows from two columns."""
        ranks = np.unique(scores, return_inverse=True)[1]
        return cls(name=name, scores=scores, labels=labels, ranks=ranks)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.scores)

    def batches(self) -> Iterator[Batch]:
        """All rows at once, as a summary reads them."""
        yield {"score": self.scores, "label": self.labels}

    def take(self, rows: NDArray[np.int64]) -> Sample:
        """These rows."""
        return replace(self, scores=self.scores[rows], labels=self.labels[rows], ranks=self.ranks[rows])

    def draw(self, rows: int, rng: np.random.Generator) -> Sample:
        """So many rows: without replacement if there are enough, else with. All of them: as they are."""
        if rows == len(self):
            return self
        return self.take(rng.choice(len(self), rows, replace=rows > len(self)))


SOURCES: Mapping[str, tuple[str, str, str]] = {
    "flights": ("nycflights13_scored", "score_gbm", "y"),
    "imagenet": ("imagenet_toplabel_8models", "confidence", "correct"),
    "coco": ("coco_detections_fasterrcnn_iou60", "score", "y"),
}
"""Name to file, score column and label column. ImageNet: the rows of all eight models together."""


def data_folder() -> Path:
    """Where the data are."""
    return Path(os.environ.get("FEDASSAY_DATA", REPOSITORY.parent / "shared" / "datasets"))


def load(name: str) -> Sample:
    """One of the data sets of `SOURCES`."""
    file, score, label = SOURCES[name]
    table = pq.read_table(data_folder() / f"{file}.parquet", columns=[score, label])
    scores = table[score].to_numpy().astype(np.float64)
    return Sample.of(name, scores, table[label].to_numpy().astype(np.int8))


# --- privacy models and variants ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Model:
    """A privacy model of the paper: its trust model as we use it, and as published (no dropouts, no colluders)."""

    name: str
    ours: TrustModel
    published: TrustModel
    epsilon: float | None


FEDERATED = Model(name="federated", ours=SecureSum(), published=SecureSum(), epsilon=None)
DISTRIBUTED = Model(
    name="distributed-dp",
    ours=DistributedDP(),
    published=DistributedDP(dropout=0.0, collusion=0.0),
    epsilon=1.0,
)
LOCAL = Model(name="local-dp", ours=LocalDP(), published=LocalDP(), epsilon=5.0)
MODELS = (FEDERATED, DISTRIBUTED, LOCAL)
"""With the paper's epsilons."""

PUBLISHED, SAME_BINS, DEFAULT = "as published", "ours, same bins", "ours, default"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to get evidence from rows.

    * ``as published``: a binary hierarchy over 2^height uniform bins, sums up to an edge from its dyadic
      decomposition, noise shares made for all clients;
    * ``ours, same bins``: the same bins and shares, but fan-out and division of the budget chosen by exact
      variance, and least squares over all levels;
    * ``ours, default``: what `Evaluate` does by default, thresholds declared; `height` is not used.
    """

    model: Model
    variant: str
    height: int = 10

    def evidence(self, sample: Sample, randomness: Randomness) -> Evidence:
        """What a release over these rows, one per client, says."""
        trust = self.model.ours if self.variant == DEFAULT else self.model.published
        setting = setting_of(trust, self.model.epsilon, len(sample))
        histogram = _histogram(self.variant, self.height, setting)
        return released(histogram, sample, setting, randomness, dyadic=self.variant == PUBLISHED)


def setting_of(trust: TrustModel, epsilon: float | None, clients: int) -> Setting:
    """One example, the only one of its client, is protected, added or removed; pure epsilon."""
    budget = None if epsilon is None else Budget(epsilon=epsilon)
    protection = trust.with_one_row_each(Protection())
    return Setting(trust=trust, protection=protection, budget=budget, clients=clients)


@lru_cache(maxsize=4096)
def _histogram(variant: str, height: int, setting: Setting) -> ScoreHistogram:
    if variant == DEFAULT:
        return Evaluate(thresholds=THRESHOLDS).histogram(setting)
    if variant == PUBLISHED:
        return binary_histogram(height)
    flat = ScoreHistogram(transform="uniform", height=height)
    return flat if setting.noise(Sum(of=flat)).variance == 0 else least_noisy(flat, setting)


def released(
    histogram: ScoreHistogram,
    sample: Sample,
    setting: Setting,
    randomness: Randomness,
    *,
    dyadic: bool = False,
) -> Evidence:
    """Measure all rows and draw the release from the law of the protocol."""
    plan = setting.trust.plan(Sum(of=histogram), setting)
    total, _ = histogram.measure(sample, {})
    (release,) = setting.trust.aggregate([plan], [total], setting.clients, randomness)
    read = histogram.read(release.value)
    return dyadic_evidence(read) if dyadic else read.evidence(release.noise)


# --- repetitions --------------------------------------------------------------------------------------------------

Key = tuple[str | float, ...]
Judge = Callable[[Evidence, Case], Mapping[Key, Sequence[float]]]
"""Errors of what a piece of evidence says, against a truth that it knows."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A point of a curve: mean absolute error, 10th and 90th percentile of the single errors, and their number."""

    mean: float
    low: float
    high: float
    number: int

    @classmethod
    def of(cls, errors: Sequence[float]) -> Point:
        """The point of these absolute errors."""
        low, high = np.quantile(errors, [0.1, 0.9])
        return cls(mean=float(np.mean(errors)), low=float(low), high=float(high), number=len(errors))


Points = dict[tuple[int, Case, Key], Point]
"""Number of rows, case and what else was varied, to the point."""


def measure(
    sample: Sample,
    cases: Mapping[int, Iterable[Case]],
    judge: Callable[[Sample], Judge],
    *,
    repetitions: int,
    seed: int,
) -> Points:
    """Errors over repetitions: for each number of rows, draw rows once per repetition and run all cases on them.

    `judge` is called with the drawn rows and computes the truth; every case has random bits of its own.
    """
    errors: dict[tuple[int, Case, Key], list[float]] = {}
    for rows, several in cases.items():
        listed = list(several)
        for repetition in range(repetitions):
            path = (sample.name, str(rows), str(repetition))
            drawn = sample.draw(rows, generator(seed, *path, "rows"))
            judged = judge(drawn)
            for case in listed:
                # Nothing is random in an exact sum over the same rows.
                if repetition and case.model.epsilon is None and drawn is sample:
                    continue
                source = SimulatedRandomness(seed, *path, repr(case))
                for key, values in judged(case.evidence(drawn, source), case).items():
                    errors.setdefault((rows, case, key), []).extend(values)
    return {key: Point.of(values) for key, values in errors.items()}


def generator(seed: int, *path: str) -> np.random.Generator:
    """A stream of its own for each path."""
    return np.random.default_rng(SimulatedRandomness(seed, *path).words(4).tolist())
