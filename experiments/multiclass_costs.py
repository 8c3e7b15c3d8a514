"""What a round costs a client: bytes on the wire (Table 5) and time (Table 11)."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np

from experiments.multiclass_data import SEED, Split
from experiments.multiclass_runs import (
    AUTO,
    BBQ,
    BBQ_ALL,
    EXACT_TEMPERATURE,
    EXACT_VECTOR,
    FEDCAL,
    FEDOP,
    FEDTEMP,
    WAYS,
    Terms,
    Way,
    federation_of,
)
from experiments.three_privacy_models import markdown
from fedassay.kernel.run import Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Batch, Part, Protection, Setting, Step, Sum, Summary, TrustModel
from fedassay.study.simulation import Simulation
from fedassay.trust import Plain, SecureSum

ONCE = Terms(rounds=1, participation=1.0)
PRIVATE = Terms(rounds=1, participation=1.0, epsilon=1.0, amplified=True, joint=True)
PRIVATE_AUTO = "auto, ε = 1"

MEASURED: Mapping[str, tuple[Way, Terms]] = {
    FEDTEMP: (WAYS[FEDTEMP], ONCE),
    FEDOP: (WAYS[FEDOP], ONCE),
    FEDCAL: (WAYS[FEDCAL], ONCE),
    BBQ: (WAYS[BBQ], ONCE),
    BBQ_ALL: (WAYS[BBQ_ALL], ONCE),
    EXACT_TEMPERATURE: (WAYS[EXACT_TEMPERATURE], ONCE),
    EXACT_VECTOR: (WAYS[EXACT_VECTOR], ONCE),
    AUTO: (WAYS[AUTO], ONCE),
    PRIVATE_AUTO: (WAYS[AUTO], PRIVATE),
}


@dataclass(frozen=True, kw_only=True)
class Printed:
    """As in the paper: kb sent and received per round, and seconds per round."""

    sent: float
    received: float
    seconds: float


PRINTED: Mapping[str, Printed] = {
    FEDTEMP: Printed(sent=0.01, received=0.01, seconds=0.111),
    FEDOP: Printed(sent=0.16, received=0.16, seconds=0.017),
    FEDCAL: Printed(sent=43.08, received=43.08, seconds=0.008),
    BBQ: Printed(sent=20.0, received=0.0, seconds=0.032),
    BBQ_ALL: Printed(sent=20.0, received=0.0, seconds=0.039),
}
"""Tables 5 and 11."""


@dataclass(frozen=True, kw_only=True)
class Bytes:
    """Of a client in one round of a flow, both directions."""

    sent: float
    received: float


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Bytes under two trust models, and the seconds of the clients that have rows."""

    numbers: int
    plain: Bytes
    secure: Bytes
    seconds: np.ndarray


def costs(split: Split, *, repeats: int = 5, seed: int = SEED) -> dict[str, Cost]:
    """Of all that is `MEASURED`."""
    return {name: _cost(split, way, terms, repeats, seed) for name, (way, terms) in MEASURED.items()}


def _cost(split: Split, way: Way, terms: Terms, repeats: int, seed: int) -> Cost:
    summaries = _asked(split, way, terms)
    return Cost(
        numbers=sum(summary.length for summary in summaries),
        plain=_bytes(split, way, terms, Plain(), seed),
        secure=_bytes(split, way, terms, SecureSum(), seed),
        seconds=_seconds(split, summaries, repeats),
    )


def _asked(split: Split, way: Way, terms: Terms) -> list[Summary[Any]]:
    """What clients measure in the first round."""
    step = next(way(split.classes, terms.setting(split.clients), terms))
    return [query.of for query in (step if isinstance(step, tuple) else (step,))]


def _bytes(split: Split, way: Way, terms: Terms, trust: TrustModel, seed: int) -> Bytes:
    """Every message goes through bytes, of every client.

    With an epsilon, what clients send is that of the private flow, but masks and clear messages are as here: noise is
    the server's.
    """
    federation = federation_of(split)
    setting = Setting(trust=trust, protection=Protection(), budget=None, clients=federation.client_count)
    summaries = _asked(split, way, terms)
    job = Job(name="fit", task=_Once(summaries=tuple(summaries)), setting=setting)
    source = SimulatedRandomness(seed, "costs")
    with Simulation(seed=seed, mode="faithful").start(federation) as runtime:
        run([job], runtime=runtime, ledger=MemoryLedger(None), randomness=source, study="costs")
    traffic, clients = runtime.traffic, federation.client_count
    return Bytes(sent=traffic.bytes_from_clients / clients, received=traffic.bytes_to_clients / clients)


@dataclass(frozen=True, kw_only=True)
class _Once:
    """A task that asks for these sums in one round."""

    summaries: tuple[Summary[Any], ...]

    def steps(self, setting: Setting) -> Generator[Step, Any, None]:
        """One step."""
        share = 1 / len(self.summaries)
        yield tuple(Sum(of=summary, share=share, part=Part.ALL) for summary in self.summaries)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
    """The rows of one client, in memory."""

    batch: Batch

    def batches(self) -> Iterator[Batch]:
        """All at once."""
        yield self.batch


def _seconds(split: Split, summaries: list[Summary[Any]], repeats: int) -> np.ndarray:
    """The processor time of each client that has rows: the least of several."""
    found = []
    for logits, labels in split.by_client():
        if not len(labels):
            continue
        rows, best = _Rows(batch={"logits": logits, "class": labels}), np.inf
        for _ in range(repeats):
            start = process_time()
            for summary in summaries:
                summary.measure(rows, {})
            best = min(best, process_time() - start)
        found.append(best)
    return np.array(found)


# --- tables -------------------------------------------------------------------------------------------------------


def table_5(found: Mapping[str, Cost]) -> str:
    """Bytes per client and round, in kb of 1,024 bytes."""
    lines = []
    for name, cost in found.items():
        printed = PRINTED.get(name)
        cells = [f"{one.sent / 1024:.2f} / {one.received / 1024:.2f}" for one in (cost.plain, cost.secure)]
        theirs = "" if printed is None else f"{printed.sent:.2f} / {printed.received:.2f}"
        lines.append([name, f"{cost.numbers:,}", theirs, *cells])
    return markdown(["method", "numbers sent", "paper", "plain", "secure sum"], lines)


def table_11(found: Mapping[str, Cost]) -> str:
    """Client time per round, in milliseconds."""
    lines = []
    for name, cost in found.items():
        printed, ms = PRINTED.get(name), 1000 * cost.seconds
        theirs = "" if printed is None else f"{1000 * printed.seconds:.0f}"
        times = "" if printed is None else f"{1000 * printed.seconds / ms.mean():.0f}×"
        lines.append([name, theirs, f"{ms.mean():.2f}", f"{ms.min():.2f}", f"{ms.max():.2f}", times])
    return markdown(["method", "paper, mean", "mean", "least", "most", "paper / ours"], lines)
