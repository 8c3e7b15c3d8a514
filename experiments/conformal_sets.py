"""Sets of classes over 100 clients, alike or not: quantiles of quantiles, pooled rows, averages, and MAPIE.

MAPIE is optional; without it its lines are left out, and `pooled` is the same split conformal prediction for LAC.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

import fedassay
from experiments.common import Floats, data_folder, generator

Ints = NDArray[np.int64]

FILES: Mapping[str, str] = {
    "CIFAR-10": "logits_cifar10_resnet18.npz",
    "CIFAR-100": "logits_cifar100_wideresnet16x4.npz",
}
SCORES = ("lac", "aps", "raps")
IID, DIRICHLET = "alike", "Dirichlet(0.1)"
OURS, PAPER, POOLED, AVERAGE = "qq (ours)", "qq-paper", "pooled", "average"
MAPIE, MAPIE_RANDOM = "MAPIE", "MAPIE, randomised sets"
METHODS: Mapping[str, str] = {OURS: "qq", PAPER: "qq-paper", POOLED: "pooled", AVERAGE: "average"}
ENOUGH = 20
"""Test rows that a client must have to count as the worst one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Outputs:
    """What a network says about images, and what they show."""

    name: str
    logits: Floats
    labels: Ints

    def take(self, rows: Ints) -> Outputs:
        """These rows."""
        return Outputs(name=self.name, logits=self.logits[rows], labels=self.labels[rows])

    @property
    def classes(self) -> int:
        """How many."""
        return int(self.logits.shape[1])


def load(name: str) -> Outputs:
    """One of `FILES`, from the data folder."""
    with np.load(data_folder() / FILES[name]) as stored:
        return Outputs(
            name=name, logits=stored["logits"].astype(np.float64), labels=stored["labels"].astype(np.int64)
        )


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much is measured; sets with a threshold for each class take long, and have fewer splits."""

    clients: int = 100
    splits: int = 10
    class_splits: int = 3
    level: float = 0.9
    seed: int = 20230713


# --- who holds what -------------------------------------------------------------------------------------


def dealt(labels: Ints, clients: int, how: str, rng: np.random.Generator) -> Ints:
    """The client of each row: equally many at random, or each class divided by shares from Dirichlet(0.1, .., 0.1)."""
    if how == IID:
        return rng.permutation(np.arange(len(labels)) % clients)
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        owner[rows] = rng.choice(clients, len(rows), p=rng.dirichlet(np.full(clients, 0.1)))
    return owner


def halves(owner: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Each client's rows in two halves at random: for calibration (one more if odd) and for testing."""
    order = rng.permutation(len(owner))
    order = order[np.argsort(owner[order], kind="stable")]
    place = np.arange(len(owner)) - np.searchsorted(owner[order], owner[order])
    return order[place % 2 == 0], order[place % 2 == 1]


# --- one run --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SetOutcome:
    """On the test rows: coverage, mean size of the sets, coverage of the worst client and class, processor seconds.

    `worst_by_chance` is what the worst client would have on average if all were alike.
    """

    coverage: float
    size: float
    worst_client: float
    worst_by_chance: float
    worst_class: float
    seconds: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """Calibration and test rows with their clients."""

    calibration: Outputs
    holders: Ints
    test: Outputs
    owners: Ints
    rng: np.random.Generator = field(repr=False)

    def judged(self, sets: NDArray[np.bool_], seconds: float) -> SetOutcome:
        """How these sets do."""
        held = sets[np.arange(len(sets)), self.test.labels]
        sizes = np.bincount(self.owners)
        rates = np.bincount(self.owners, weights=held)[sizes >= ENOUGH] / sizes[sizes >= ENOUGH]
        by_chance = self.rng.binomial(sizes[sizes >= ENOUGH], held.mean(), size=(200, len(rates)))
        by_class = np.bincount(self.test.labels, weights=held) / np.bincount(self.test.labels)
        return SetOutcome(
            coverage=float(held.mean()),
            size=float(sets.sum(axis=1).mean()),
            worst_client=float(rates.min(initial=1.0)),
            worst_by_chance=float((by_chance / sizes[sizes >= ENOUGH]).min(axis=1, initial=1.0).mean()),
            worst_class=float(by_class.min()),
            seconds=seconds,
        )

    def ours(self, score: str, method: str, level: float, *, conditional: str = "none") -> SetOutcome:
        """By the library, all clients in this process."""
        data = {
            "client": self.holders,
            "label": self.calibration.labels,
            "logits": self.calibration.logits,
        }
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = fedassay.conformal(
                data,
                client="client",
                label="label",
                logits="logits",
                sets=score,
                level=level,
                method=method,
                conditional=conditional,
                privacy=fedassay.Plain(),
            )
        predictor = fedassay.ConformalPredictor.of(result)
        sets = np.asarray(predictor.predict_set(self.test.logits))
        return self.judged(sets, time.process_time() - start)

    def mapie(self, score: str, level: float, seed: int, **options: object) -> SetOutcome | None:
        """By MAPIE on the pooled rows, with its own defaults but for `options`; None if it is not installed."""
        try:
            from mapie.classification import SplitConformalClassifier  # type: ignore[import-untyped]
        except ImportError:
            return None
        start = time.process_time()
        stored = Stored(self.calibration.classes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = SplitConformalClassifier(
                stored, confidence_level=level, conformity_score=score, prefit=True, random_state=seed
            )
            made.conformalize(softmax(self.calibration.logits, axis=1), self.calibration.labels)
            _, sets = made.predict_set(softmax(self.test.logits, axis=1), conformity_score_params=options)
        return self.judged(np.asarray(sets)[:, :, 0], time.process_time() - start)


class Stored:
    """A fitted classifier, as scikit-learn sees it, whose inputs are its probabilities."""

    _estimator_type = "classifier"

    def __init__(self, classes: int = 2) -> None:
        self.classes = classes
        self.classes_ = np.arange(classes)
        self.fitted_ = True

    def fit(self, X: Floats, y: Ints) -> Stored:
        """Nothing to do."""
        return self

    def predict_proba(self, X: Floats) -> Floats:
        """The input."""
        return X

    def predict(self, X: Floats) -> Ints:
        """The most probable class."""
        return np.asarray(np.argmax(X, axis=1))


# --- all runs -------------------------------------------------------------------------------------------

Key = tuple[str, str, str, str]
"""Data, clients, score, method."""


def measured(outputs: Outputs, scope: Scope) -> dict[Key, list[SetOutcome]]:
    """All scores and methods over random splits; label-conditional sets under "lac by class"."""
    found: dict[Key, list[SetOutcome]] = {}

    def note(how: str, score: str, method: str, outcome: SetOutcome | None) -> None:
        if outcome is not None:
            found.setdefault((outputs.name, how, score, method), []).append(outcome)

    for how in (IID, DIRICHLET):
        for number in range(scope.splits):
            case = case_of(outputs, how, number, scope)
            for score in SCORES:
                for name, method in METHODS.items():
                    note(how, score, name, case.ours(score, method, scope.level))
                note(how, score, MAPIE, case.mapie(score, scope.level, number))
                if score != "lac":
                    random = case.mapie(score, scope.level, number, include_last_label="randomized")
                    note(how, score, MAPIE_RANDOM, random)
            for name in (OURS, POOLED) if number < scope.class_splits else ():
                by_class = case.ours("lac", METHODS[name], scope.level, conditional="class")
                note(how, "lac by class", name, by_class)
    return found


def case_of(outputs: Outputs, how: str, number: int, scope: Scope) -> Case:
    """One random deal and split."""
    rng = generator(scope.seed, outputs.name, how, str(number))
    owner = dealt(outputs.labels, scope.clients, how, rng)
    fit, test = halves(owner, rng)
    return Case(
        calibration=outputs.take(fit),
        holders=owner[fit],
        test=outputs.take(test),
        owners=owner[test],
        rng=rng,
    )
