"""The rows of the experiments on multiclass calibration: for each repetition, who calibrates on what, and what tests.

* ``cifar10_*`` and ``cifar100_*``: outputs of ten networks for 10,000 images, half of them for calibration, drawn at
  random and spread over clients with label skew (Appendix A.2 of the paper) or alike;
* ``mnist`` and ``shakespeare``: outputs of the models of `experiments.multiclass_models` for rows that clients did not
  train on; a repetition divides the rows of each client in two halves, at random. Clients are those that trained.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from experiments import multiclass_models as models
from experiments.common import Floats, data_folder, generator
from experiments.multiclass_models import MNIST, SHAKESPEARE, Ints, Outputs

SEED = 20250608
CLIENTS, BETA = 100, 0.1

CIFAR = (
    "cifar10_densenet121",
    "cifar10_mobilenet_v2",
    "cifar10_resnet18",
    "cifar10_resnet34",
    "cifar10_vgg11_bn",
    "cifar10_vgg16_bn",
    "cifar10_vgg16keras",
    "cifar10_wideresnet16x4",
    "cifar100_lenet5",
    "cifar100_wideresnet16x4",
)
"""Networks whose outputs are in the data folder, as ``logits_<name>.npz``."""

NAMES = (*CIFAR, MNIST, SHAKESPEARE)


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """One repetition: rows to fit a calibrator with, the client of each (0, 1, ..), and rows to test it on.

    `clients` is how many there are, also of those without a row.
    """

    name: str
    logits_fit: Floats
    labels_fit: Ints
    logits_test: Floats
    labels_test: Ints
    clients_fit: Ints
    clients: int

    def __post_init__(self) -> None:
        """One label and one client for each row."""
        assert len(self.logits_fit) == len(self.labels_fit) == len(self.clients_fit)
        assert len(self.logits_test) == len(self.labels_test)
        assert np.all((self.clients_fit >= 0) & (self.clients_fit < self.clients))

    @property
    def classes(self) -> int:
        """How many."""
        return int(self.logits_fit.shape[1])

    def by_client(self) -> Iterator[tuple[Floats, Ints]]:
        """Logits and labels of each client in turn, of some perhaps none."""
        order = np.argsort(self.clients_fit, kind="stable")
        ends = np.cumsum(np.bincount(self.clients_fit, minlength=self.clients))
        for rows in np.split(order, ends[:-1]):
            yield self.logits_fit[rows], self.labels_fit[rows]


def load(
    name: str, number: int, *, clients: int = CLIENTS, beta: float | None = BETA, seed: int = SEED
) -> Split:
    """The repetition with this number of one of `NAMES`.

    `beta` is the skew, None for none. Shakespeare's speakers are who they are: `clients` and `beta` mean nothing there.
    """
    if name == SHAKESPEARE:
        return shakespeare(number, seed=seed)
    if name == MNIST:
        return mnist(number, clients=clients, beta=beta, seed=seed)
    return cifar(name, number, clients=clients, beta=beta, seed=seed)


def cifar(
    name: str, number: int, *, clients: int = CLIENTS, beta: float | None = BETA, seed: int = SEED
) -> Split:
    """One of `CIFAR`. The rows for calibration are the same whatever the skew, and so are those for tests."""
    logits, labels = _network(name)
    rng = generator(seed, name, str(number), "rows")
    fits = np.zeros(len(labels), dtype=bool)
    fits[rng.permutation(len(labels))[: len(labels) // 2]] = True
    spread = generator(seed, name, str(number), "clients", str(clients), str(beta))
    owner = models.owners(labels[fits], clients, beta, spread)
    return _split(name, logits, labels, fits, owner, clients)


def mnist(number: int, *, clients: int = CLIENTS, beta: float | None = BETA, seed: int = SEED) -> Split:
    """Digits; the model is trained by the same clients, anew for each skew."""
    return _halves(_mnist(clients, beta), number, seed)


def shakespeare(number: int, *, seed: int = SEED) -> Split:
    """Characters of speakers."""
    return _halves(_shakespeare(), number, seed)


def _halves(outputs: Outputs, number: int, seed: int) -> Split:
    """Half of each client's rows at random for calibration; a coin says where the odd one goes."""
    rng = generator(seed, outputs.name, str(number), "rows")
    owner = outputs.owner
    order = np.lexsort((rng.random(len(owner)), owner))
    sizes = np.bincount(owner, minlength=outputs.clients)
    place = np.empty(len(owner), dtype=np.int64)
    place[order] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    fits = (place + rng.integers(2, size=outputs.clients)[owner]) % 2 == 0
    return _split(outputs.name, outputs.logits, outputs.labels, fits, owner[fits], outputs.clients)


def _split(
    name: str, logits: Floats, labels: Ints, fits: NDArray[np.bool_], owner: Ints, clients: int
) -> Split:
    return Split(
        name=name,
        logits_fit=logits[fits],
        labels_fit=labels[fits],
        logits_test=logits[~fits],
        labels_test=labels[~fits],
        clients_fit=owner,
        clients=clients,
    )


@lru_cache(maxsize=2)
def _network(name: str) -> tuple[Floats, Ints]:
    with np.load(data_folder() / f"logits_{name}.npz") as stored:
        return stored["logits"].astype(np.float64), stored["labels"].astype(np.int64)


@lru_cache(maxsize=2)
def _mnist(clients: int, beta: float | None) -> Outputs:
    return models.mnist(clients=clients, beta=beta)


@lru_cache(maxsize=1)
def _shakespeare() -> Outputs:
    return models.shakespeare()


# --- how good a model is ------------------------------------------------------------------------------------------


def binned_error(scores: Floats, hits: NDArray[np.bool_], bins: int = 15) -> float:
    """Mean over rows of |mean score - share of hits| in the row's bin, (lo, hi] of equal widths."""
    places = np.clip(np.ceil(scores * bins).astype(np.int64) - 1, 0, bins - 1)
    return float(np.abs(np.bincount(places, scores - hits, minlength=bins)).sum() / len(scores))


def classwise_error(logits: Floats, labels: Ints, bins: int = 15) -> float:
    """Classwise ECE: the mean over classes (Definition 3.3 of the paper)."""
    probabilities = softmax(logits, axis=1)
    classes = range(probabilities.shape[1])
    return float(np.mean([binned_error(probabilities[:, j], labels == j, bins) for j in classes]))


def top_label_error(logits: Floats, labels: Ints, bins: int = 15) -> float:
    """ECE of the probability of the most probable class."""
    probabilities = softmax(logits, axis=1)
    return binned_error(probabilities.max(axis=1), probabilities.argmax(axis=1) == labels, bins)


def accuracy(logits: Floats, labels: Ints) -> float:
    """How often the class of the largest logit is right."""
    return float(np.mean(logits.argmax(axis=1) == labels))


def main() -> None:
    """Train what is not stored; print sizes, accuracy and calibration errors of the first repetition of all."""
    for name in NAMES:
        start = time.perf_counter()
        split = load(name, 0)
        print(*_lines(split), f"  {time.perf_counter() - start:.1f} s", sep="\n")


def _lines(split: Split) -> Iterator[str]:
    sizes = np.bincount(split.clients_fit, minlength=split.clients)
    held = np.mean([np.unique(labels).size for _, labels in split.by_client()])
    tests = split.logits_test, split.labels_test
    confidence = softmax(split.logits_test, axis=1).max(axis=1).mean()
    yield f"{split.name}: {split.classes} classes, {len(sizes)} clients ({np.count_nonzero(sizes)} with rows)"
    yield f"  rows for calibration {sizes.sum()}, for tests {len(split.labels_test)}"
    yield f"  of a client: median {np.median(sizes):.0f}, largest {sizes.max()}, mean number of classes {held:.1f}"
    yield f"  accuracy {accuracy(*tests):.2%}, mean confidence {confidence:.2%}"
    yield f"  cwECE {classwise_error(*tests):.3%}, ECE {top_label_error(*tests):.2%}"


if __name__ == "__main__":
    main()
