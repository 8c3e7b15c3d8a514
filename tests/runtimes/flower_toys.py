"""The cast of the tracer tests on Flower: toy clients that also hold scores, a helper, and one that breaks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedassay import wire
from fedassay.client import Client, Site
from fedassay.endpoint import Endpoint
from fedassay.helper import Helper
from fedassay.privacy.ledger import MemoryLedger
from fedassay.privacy.policy import AllowAll
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol import Batch
from fedassay.summaries import CATALOGUE
from fedassay.trust import TRUST_MODELS
from toys import TOY_SUMMARIES, TwoShares

ROWS = {"a": (1, 2, 3), "b": (2, 2), "c": (5, 0, 1, 2), "d": (3,), "e": (4, 4)}
SUMMARIES = {**CATALOGUE, **TOY_SUMMARIES}
TRUSTED = {**TRUST_MODELS, TwoShares.name: TwoShares}
BROKEN_STUDY = "c breaks"


@dataclass(frozen=True)
class ToyRows:
    """Whole numbers, each with a score and a label made from it."""

    values: tuple[int, ...]

    def batches(self) -> Iterator[Batch]:
        value = np.array(self.values, dtype=np.int64)
        yield {"value": value, "score": (value + 0.5) / 7, "label": (value > 2).astype(np.int8)}


def pooled() -> dict[str, Any]:
    names = [name for name, values in ROWS.items() for _ in values]
    whole = ToyRows(tuple(value for values in ROWS.values() for value in values))
    columns = next(whole.batches())
    return {"site": names, "score": columns["score"], "label": columns["label"]}


def endpoint(name: str, request: bytes) -> Endpoint:
    """The toy of this name; `c` breaks down whenever it is asked in the study that says so."""
    source = SimulatedRandomness(7).child(name).child(hashlib.sha256(request).hexdigest())
    if name == "helper":
        return Helper("helper", randomness=source, summaries=SUMMARIES, trust_models=TRUSTED)
    if name == "c" and wire.decode(request)["study"] == BROKEN_STUDY:
        raise RuntimeError("a text that nobody else should read")
    site = Site(
        name=name,
        dataset=name,
        rows=lambda: ToyRows(ROWS[name]),
        policy=AllowAll(),
        ledger=MemoryLedger(None),
        randomness=source,
        split_key=bytes(32),
    )
    return Client(site, summaries=SUMMARIES, trust_models=TRUSTED)
