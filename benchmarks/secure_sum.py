"""The secure sum against double masking (commit 8a02517) and against Flower's SecAgg+, in one run.

    python benchmarks/secure_sum.py [--long]

Needs the extra `bench` (flwr, pycryptodome). Processor time of one process and one thread, all parties of an exchange
together, with the signatures of keys and sets, which are parts of the protocols; client and server halves are called
directly. The runtimes wrap every reply of either protocol in the same envelope, packed, sealed and signed by its
sender, and opened by the coordinator: this, and with it the signature over long messages, is measured on one client's
replies, and stands in columns of its own. With `--long` also vectors of 100,000 entries for 1,000 clients, which take
double masking minutes.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import gc
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests")]

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

from double_masking.graph import parameters
from double_masking.protocol import DoubleMasking
from fedassay.crypto.identity import Credentials
from fedassay.crypto.keys import KeyPair
from fedassay.crypto.packed import Packing
from fedassay.crypto.prekeys import PAD_KEY_BYTES, expand
from fedassay.kernel import envelope
from fedassay.protocol.vocabulary import Exchange, Released, Request
from fedassay.trust.secure_sum import SecureSum
from secure_sum_driver import Run, Seeded, credentials_of, vectors


def best(work: Callable[[], object], repetitions: int = 3) -> float:
    """The shortest processor time of a piece of work."""
    times = []
    for _ in range(repetitions):
        started = process_time()
        work()
        times.append(process_time() - started)
    return min(times)


class Times(NamedTuple):
    """Seconds of a whole exchange, and of the envelopes around all its replies."""

    protocol: float
    envelopes: float


def in_envelope(name: str, replies: Mapping[str, Any], credentials: Credentials) -> float:
    """The envelopes around a leg's replies: the time for one of them, as often as there are replies."""
    own, request = KeyPair.draw(Seeded("reply")), b"request"

    def there_and_back() -> None:
        packed = envelope.pack_reply(sender=name, exchange=bytes(16), leg=0, message=replies[name])
        addressee = envelope.Addressee(own.public, request)
        data = envelope.sealed(
            packed, addressee, sender=name, credentials=credentials, randomness=Seeded("seal")
        )
        found = envelope.opened(data, own, request=request, sender=name, credentials=credentials)
        envelope.open_reply(found, sender=name, exchange=bytes(16), leg=0)

    return best(there_and_back, 12) * len(replies)


def double_masking(run: Run) -> Times:
    """The four legs of double masking over the same clients and values, with signed keys."""
    trust, names = DoubleMasking(), list(run.values)
    exchange = Exchange(id=run.exchange.id, plans=run.exchange.plans, cohort=tuple(names))
    credentials = {name: credentials_of(name, names) for name in names}
    gc.freeze()  # what a protocol is given is not looked through for garbage while it runs
    started = process_time()
    flow = trust.exchange(exchange, Seeded("server"))
    states: dict[str, Any] = {name: {} for name in names}
    asked, leg, envelopes = next(flow), 0, 0.0
    while True:
        replies: dict[str, Any] = {}
        for name, message in asked.requests.items():
            request = Request(
                exchange=exchange.id,
                plans=exchange.plans,
                cohort=len(names),
                leg=leg,
                recipient=name,
                message=message,
                credentials=credentials[name],
            )
            replies[name], states[name] = trust.respond(
                request, lambda name=name: run.values[name], states[name], Seeded(name, leg)
            )
        paused = process_time()
        envelopes += in_envelope(name, replies, credentials[name])
        started += process_time() - paused
        try:
            asked, leg = flow.send(replies), leg + 1
        except StopIteration as finished:
            taken = process_time() - started
            require_exact(finished.value, run)
            return Times(taken, envelopes)


def one_shot(run: Run) -> Times:
    """The two legs, with what each party keeps on its disk in memory."""
    names, exchange = list(run.values), run.exchange
    credentials = {name: credentials_of(name, names) for name in names}
    for name in names:  # rosters are read, and stores made, once for many exchanges
        assert len(credentials[name].sites) > len(run.stores[name].sets("rows"))
    gc.freeze()  # what a protocol is given is not looked through for garbage while it runs
    started = process_time()
    flow = run.trust.exchange(exchange, Seeded("server"))
    asked, envelopes = next(flow), 0.0
    while True:
        kept: dict[str, Any] = {}
        leg = int("named" in next(iter(asked.requests.values())))
        for name, message in asked.requests.items():
            request = Request(
                exchange=exchange.id,
                plans=exchange.plans,
                cohort=len(names),
                leg=leg,
                recipient=name,
                message=message,
                asker=run.asker,
                credentials=credentials[name],
                membership=run.seat(name),
            )
            reply, _ = run.trust.respond(request, lambda name=name: run.values[name], {}, Seeded(name, leg))
            kept[name] = asked.take(name, reply)
        paused = process_time()
        envelopes += in_envelope(name, dict.fromkeys(asked.requests, reply), credentials[name])
        started += process_time() - paused
        try:
            asked = flow.send(kept)
        except StopIteration as finished:
            taken = process_time() - started
            require_exact(finished.value, run)
            return Times(taken, envelopes)


def require_exact(released: Sequence[Released[Any]], run: Run) -> None:
    """A fast sum that is wrong is no sum."""
    if vectors(released) != run.total(list(run.values)):
        raise SystemExit("secure sum: the total is wrong")


def whole_exchanges(cases: Sequence[tuple[int, int, int | None, float]]) -> Iterator[str]:
    """A line for each case as it is done."""
    yield "A whole exchange, all parties, without what signs long messages (bar: at least so many times as fast)"
    yield (
        f"{'clients':>8} {'entries':>8} {'members':>8} {'double masking':>15} {'one shot':>9} {'ratio':>6} {'bar':>5}"
        f" {'envelopes: before':>18} {'now':>7} {'ratio of both':>14}"
    )
    before: dict[tuple[int, int], Times] = {}
    for n, length, members, bar in cases:
        names = tuple(f"client-{i:03}" for i in range(members or 0))
        of = partial(
            Run.of, trust=SecureSum(members=names), lengths=(length,), signed=True, through_bytes=False
        )
        few = min(
            n, 20
        )  # after an exchange among these the allocator keeps the memory that is taken again and again
        if (n, length) not in before:
            parameters(n, 0.2, 0.1)
            double_masking(of(few))
            before[n, length] = double_masking(of(n))
        one_shot(of(few))
        old, new = before[n, length], one_shot(of(n))
        yield (
            f"{n:>8,} {length:>8,} {members or n:>8,} {old.protocol:>14.2f}s {new.protocol:>8.2f}s "
            f"{old.protocol / new.protocol:>6.1f} {bar:>5.1f} {old.envelopes:>17.2f}s {new.envelopes:>6.2f}s "
            f"{sum(old) / sum(new):>14.1f}"
        )


def mask_flower(vector: np.ndarray, seeds: list[bytes]) -> np.ndarray:
    """What flwr's client does for each neighbour, modulo 2^32 (its largest modulus)."""
    total = [vector]
    for place, seed in enumerate(seeds):
        mask = pseudo_rand_gen(seed, 1 << 32, [vector.shape])
        total = parameters_subtraction(total, mask) if place % 2 else parameters_addition(total, mask)
    return parameters_mod(total, 1 << 32)[0]


def share_flower(secret: bytes, threshold: int, shares: int) -> None:
    """Two blocks of 16 bytes, as flwr splits a 32-byte secret (without the padding block it adds)."""
    for block in (secret[:16], secret[16:]):
        Shamir.split(threshold, shares, block, ssss=False)


def clients_work(length: int, members: int, packing: Packing) -> tuple[float, float]:
    """One client's work: keys, pads and corrections here; two shared secrets and the masks of all neighbours there."""
    keys = [KeyPair.draw(Seeded("member", j)) for j in range(members)]
    seeds = [hashlib.sha256(bytes([j])).digest() for j in range(members)]
    vector = np.random.default_rng(1).integers(0, 1000, length)
    own = KeyPair.draw(Seeded("own"))

    def here() -> None:
        agreed = [own.agree(k.public, salt=b"", info=b"", length=PAD_KEY_BYTES) for k in keys]
        packing.corrections(packing.rows(vector), expand(agreed, packing.columns(length), packing.at_once))

    def there() -> None:
        for secret in seeds[:2]:
            share_flower(secret, members // 2 + 1, members)
        mask_flower(vector, seeds)

    here()
    return best(here), best(there)


def against_flower() -> list[str]:
    lines = [
        "One client's work for 40 members, or neighbours: here, and with the primitives of Flower's SecAgg+",
        "(whose masks come from a Mersenne Twister with a 32-bit seed, modulo 2^32; measured as they are)",
        f"{'entries':>12} {'here':>10} {'flwr':>10} {'ratio':>7}",
    ]
    packing = SecureSum().sizes(40).packing
    for length in (1_000, 10_000, 100_000):
        here, there = clients_work(length, 40, packing)
        lines.append(f"{length:>12,} {here * 1e3:>8.1f}ms {there * 1e3:>8.1f}ms {there / here:>6.1f}x")
    return lines


def main() -> None:
    cases: list[tuple[int, int, int | None, float]] = [
        (10, 1000, None, 0.2),
        (40, 1000, None, 0.2),
        (40, 65_536, None, 0.2),
        (160, 1000, 16, 1.0),
        (1000, 1000, 16, 8.0),
    ]
    if "--long" in sys.argv:
        cases += [(1000, 100_000, 16, 6.0), (1000, 100_000, 10, 9.0)]
    print("\n".join(against_flower()), end="\n\n", flush=True)
    for line in whole_exchanges(cases):
        print(line, flush=True)


if __name__ == "__main__":
    main()
