"""Two models trained by federated averaging, and what they say about rows that no client trained on.

* ``mnist``: digits, all 70,000 rows over clients with label skew, pixels to one hidden layer to ten classes;
* ``shakespeare``: the next character of a speaker's text, speakers being clients, from the characters before it.

A client trains on 80 % of its rows; the rest, for calibration and tests, is what is stored here (`Outputs`) and divided
again for each repetition (`experiments.multiclass_data`). Outputs are stored in the folder that the environment
variable FEDASSAY_CACHE names, by default one in the system's folder for temporary files: a model is trained once.
The same seed gives the same model, up to the rounding of the machine's linear algebra.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.special import softmax
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from experiments.common import Floats, data_folder, generator

MNIST, SHAKESPEARE = "mnist", "shakespeare"
SEED = 20250607
TRAINED = 0.8
"""Share of a client's rows that its model is trained on."""
LEAST = 100
"""Characters that a speaker must have said to be a client, as in the paper (Appendix A.1)."""
CONTEXT = 8
"""Characters that the next one is predicted from."""

_AT_ONCE = 2000

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Singles = NDArray[np.float32]
Weights = tuple[Singles, Singles, Singles, Singles]


# --- what is trained, and on what ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a model is trained: in each round a share of the clients, each for so many passes over its rows."""

    hidden: int
    rounds: int
    passes: int
    rate: float
    share: float = 0.1
    batch: int = 64
    seed: int = SEED


SETTINGS: Mapping[str, Training] = {
    MNIST: Training(hidden=100, rounds=100, passes=5, rate=0.1),
    SHAKESPEARE: Training(hidden=128, rounds=60, passes=1, rate=0.3),
}
"""About as accurate as the paper's models (Appendix A.3): of about ten settings, the ones next to the paper's accuracy
and classwise error before calibration."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Federation:
    """Rows of all clients. `encode` makes inputs of `features`; `trains` says which rows are trained on."""

    features: Bytes
    labels: Ints
    owner: Ints
    trains: NDArray[np.bool_]
    encode: Callable[[Bytes], Singles]
    classes: int
    clients: int

    def rows(self, client: int) -> Ints:
        """Those that this client trains on."""
        return np.flatnonzero(self.trains & (self.owner == client))


@dataclass(frozen=True, kw_only=True, eq=False)
class Outputs:
    """What a model says about rows of clients, and what is true. Some of the `clients` may have no row."""

    name: str
    logits: Floats
    labels: Ints
    owner: Ints
    clients: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """One hidden layer of rectified linear units: weights and offsets into it, and out of it."""

    weights: Weights

    @classmethod
    def drawn(cls, inputs: int, hidden: int, classes: int, rng: np.random.Generator) -> Network:
        """To begin with: normal weights of variance 2/inputs and 1/hidden, no offsets."""
        into = rng.standard_normal((inputs, hidden)) * np.sqrt(2 / inputs)
        out = rng.standard_normal((hidden, classes)) * np.sqrt(1 / hidden)
        drawn = (into, np.zeros(hidden), out, np.zeros(classes))
        first, second, third, fourth = (part.astype(np.float32) for part in drawn)
        return cls(weights=(first, second, third, fourth))

    def logits(self, inputs: Singles) -> Singles:
        """One row each."""
        into, offset, out, last = self.weights
        logits: Singles = np.maximum(inputs @ into + offset, 0) @ out + last
        return logits

    def gradient(self, inputs: Singles, labels: Ints) -> Weights:
        """Of the mean of the rows' log loss."""
        into, offset, out, last = self.weights
        before = inputs @ into + offset
        units = np.maximum(before, 0)
        error = softmax(units @ out + last, axis=1)
        error[np.arange(len(labels)), labels] -= 1
        error /= len(labels)
        back = (error @ out.T) * (before > 0)
        return inputs.T @ back, back.sum(axis=0), units.T @ error, error.sum(axis=0)

    def after(self, gradient: Weights, rate: float) -> Network:
        """One step downhill."""
        first, second, third, fourth = (
            weight - np.float32(rate) * slope for weight, slope in zip(self.weights, gradient, strict=True)
        )
        return Network(weights=(first, second, third, fourth))


# --- federated averaging ------------------------------------------------------------------------------------------


def trained(federation: Federation, training: Training) -> Network:
    """The mean of the clients' networks by their numbers of rows, round after round (McMahan et al., 2017)."""
    rng = generator(training.seed, "training")
    inputs = federation.encode(federation.features[:1]).shape[1]
    network = Network.drawn(inputs, training.hidden, federation.classes, rng)
    rows = [federation.rows(client) for client in range(federation.clients)]
    several = max(1, round(training.share * federation.clients))
    for _ in range(training.rounds):
        chosen = [rows[client] for client in rng.choice(federation.clients, several, replace=False)]
        with_rows = [mine for mine in chosen if len(mine)]
        if with_rows:
            networks = [_locally(network, federation, mine, training, rng) for mine in with_rows]
            network = _mean(networks, [len(mine) for mine in with_rows])
    return network


def _locally(
    network: Network, federation: Federation, mine: Ints, training: Training, rng: np.random.Generator
) -> Network:
    """What one client makes of the network."""
    for _ in range(training.passes):
        shuffled = rng.permutation(mine)
        for start in range(0, len(mine), training.batch):
            batch = shuffled[start : start + training.batch]
            inputs = federation.encode(federation.features[batch])
            network = network.after(network.gradient(inputs, federation.labels[batch]), training.rate)
    return network


def _mean(networks: list[Network], sizes: list[int]) -> Network:
    shares = (np.array(sizes) / sum(sizes)).astype(np.float32)
    layers = zip(*(network.weights for network in networks), strict=True)
    first, second, third, fourth = (np.tensordot(shares, np.stack(layer), axes=1) for layer in layers)
    return Network(weights=(first, second, third, fourth))


def _held_out(name: str, federation: Federation, network: Network) -> Outputs:
    """What the network says about rows that were not trained on."""
    rows = np.flatnonzero(~federation.trains)
    parts = np.array_split(rows, max(1, -(-len(rows) // _AT_ONCE)))
    logits = [network.logits(federation.encode(federation.features[part])) for part in parts]
    return Outputs(
        name=name,
        logits=np.concatenate(logits).astype(np.float64),
        labels=federation.labels[rows],
        owner=federation.owner[rows],
        clients=federation.clients,
    )


# --- the two federations ------------------------------------------------------------------------------------------


def owners(labels: Ints, clients: int, beta: float | None, rng: np.random.Generator) -> Ints:
    """The client of each row, as in Appendix A.2 of the paper; None: equally many for all, at random.

    Each row of a class falls to a client by shares from Dirichlet(beta, .., beta), drawn for every class.
    """
    if beta is None:
        return rng.permutation(len(labels)) % clients
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        owner[rows] = rng.choice(clients, len(rows), p=rng.dirichlet(np.full(clients, beta)))
    return owner


def digits(*, beta: float | None, clients: int, seed: int) -> Federation:
    """MNIST, training and test rows together; a client trains on 80 % of its rows, drawn at random."""
    with np.load(data_folder() / "mnist70k.npz") as stored:
        images = np.concatenate([stored["x_train"], stored["x_test"]])
        labels = np.concatenate([stored["y_train"], stored["y_test"]]).astype(np.int64)
    rng = generator(seed, MNIST, str(beta), str(clients))
    owner = owners(labels, clients, beta, rng)
    trains = np.zeros(len(labels), dtype=bool)
    for client in range(clients):
        mine = rng.permutation(np.flatnonzero(owner == client))
        trains[mine[: int(TRAINED * len(mine))]] = True
    return Federation(
        features=images.reshape(len(labels), -1),
        labels=labels,
        owner=owner,
        trains=trains,
        encode=_brightness,
        classes=10,
        clients=clients,
    )


def _brightness(pixels: Bytes) -> Singles:
    return pixels.astype(np.float32) / np.float32(255)


def speakers() -> Federation:
    """Speakers of at least 100 characters, in the order of their names; each trains on the beginning of what it says.

    Speeches of one speaker are joined by line breaks. Before the first character is a sign that is no class.
    """
    table = pq.read_table(data_folder() / "tiny_shakespeare_by_speaker.parquet").to_pydict()
    texts: dict[str, list[str]] = {}
    for speaker, text in zip(table["speaker"], table["text"], strict=True):
        texts.setdefault(speaker, []).append(text)
    joined = ["\n".join(texts[speaker]) for speaker in sorted(texts)]
    alphabet = sorted(set("".join(joined)))
    coded = [_coded(text, alphabet) for text in joined if len(text) >= LEAST]
    sizes = np.array([len(codes) for codes in coded])
    places = np.concatenate([np.arange(size) for size in sizes])
    return Federation(
        features=np.concatenate([_contexts(codes, blank=len(alphabet)) for codes in coded]),
        labels=np.concatenate(coded).astype(np.int64),
        owner=np.repeat(np.arange(len(coded)), sizes),
        trains=places < (TRAINED * np.repeat(sizes, sizes)).astype(np.int64),
        encode=partial(_indicators, signs=len(alphabet) + 1),
        classes=len(alphabet),
        clients=len(coded),
    )


def _coded(text: str, alphabet: list[str]) -> Bytes:
    codes = {character: code for code, character in enumerate(alphabet)}
    return np.array([codes[character] for character in text], dtype=np.uint8)


def _contexts(codes: Bytes, *, blank: int) -> Bytes:
    """The characters before each one."""
    padded = np.concatenate([np.full(CONTEXT, blank, dtype=np.uint8), codes[:-1]])
    return np.lib.stride_tricks.sliding_window_view(padded, CONTEXT)


def _indicators(contexts: Bytes, *, signs: int) -> Singles:
    """A one for the sign at each place."""
    return np.eye(signs, dtype=np.float32)[contexts].reshape(len(contexts), -1)


# --- stored outputs -----------------------------------------------------------------------------------------------


def mnist(*, beta: float | None = 0.1, clients: int = 100, training: Training = SETTINGS[MNIST]) -> Outputs:
    """What the model says about the 20 % of each client's digits that it was not trained on."""
    made = partial(digits, beta=beta, clients=clients, seed=training.seed)
    return _stored(MNIST, f"{beta} {clients}", training, made)


def shakespeare(*, training: Training = SETTINGS[SHAKESPEARE]) -> Outputs:
    """What the model says about the last 20 % of each speaker's characters."""
    return _stored(SHAKESPEARE, "", training, speakers)


def cache_folder() -> Path:
    """Where outputs are stored."""
    return Path(os.environ.get("FEDASSAY_CACHE", Path(tempfile.gettempdir()) / "fedassay-cache"))


def _stored(name: str, variant: str, training: Training, made: Callable[[], Federation]) -> Outputs:
    """Read outputs, or train and store them. The file's name holds all settings, so that none is read for another."""
    digest = hashlib.sha256(f"{name} {variant} {training} {CONTEXT} {LEAST} {TRAINED}".encode()).hexdigest()
    file = cache_folder() / f"multiclass-{name}-{digest[:12]}.npz"
    if not file.exists():
        with threadpool_limits(1):
            federation = made()
            _store(file, _held_out(name, federation, trained(federation, training)))
    with np.load(file) as stored:
        return Outputs(
            name=name,
            logits=stored["logits"].astype(np.float64),
            labels=stored["labels"].astype(np.int64),
            owner=stored["owner"].astype(np.int64),
            clients=int(stored["clients"]),
        )


def _store(file: Path, outputs: Outputs) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    # Renamed when complete: who reads at the same time finds a whole file or none.
    unfinished = file.with_name(f"{os.getpid()}-{file.name}")
    np.savez(
        unfinished,
        logits=outputs.logits.astype(np.float32),
        labels=outputs.labels.astype(np.int16),
        owner=outputs.owner.astype(np.int16),
        clients=outputs.clients,
    )
    unfinished.replace(file)
