"""Secure sums against the primitives that Flower 1.41 uses for the same work, at three sizes each.

    python benchmarks/secure_sum.py

Needs the extra `bench` (flwr, pycryptodome). Times are the best of several repetitions in one process, the
two sides in turn, so that a busy machine disturbs both equally. Flower's masks come from a Mersenne Twister
with a 32-bit seed, so they are not secure; they are measured as they are.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from flwr.common.secure_aggregation.ndarrays_arithmetic import (
    parameters_addition,
    parameters_mod,
    parameters_subtraction,
)
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

from fedassay import wire
from fedassay.crypto.keys import Secret
from fedassay.crypto.masks import add_masks
from fedassay.crypto.shamir import combine, split

NEIGHBOURS = 40


class Source:
    """The operating system's random bytes."""

    simulated = False

    def bytes(self, count: int) -> bytes:
        """Uniform bytes."""
        return os.urandom(count)

    def words(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """Uniform words."""
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def seconds(*works: Callable[[], object], repetitions: int) -> list[float]:
    """The shortest time of each piece of work, run in turn so that all meet the same machine."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repetitions):
        for work, taken in zip(works, times, strict=True):
            started = perf_counter()
            work()
            taken.append(perf_counter() - started)
    return [min(taken) for taken in times]


def mask_here(vector: np.ndarray, seeds: list[bytes]) -> np.ndarray:
    keys = [Secret(seed[:16]) for seed in seeds]
    return add_masks(vector, plus=keys[::2], minus=keys[1::2])


def mask_flower(vector: np.ndarray, seeds: list[bytes]) -> np.ndarray:
    """What flwr's client does for each neighbour, modulo 2^32 (its largest modulus)."""
    total = [vector]
    for place, seed in enumerate(seeds):
        mask = pseudo_rand_gen(seed, 1 << 32, [vector.shape])
        total = parameters_subtraction(total, mask) if place % 2 else parameters_addition(total, mask)
    return parameters_mod(total, 1 << 32)[0]


def shamir_here(secret: bytes, threshold: int, shares: int) -> None:
    dealt = split(Secret(secret), threshold=threshold, shares=shares, randomness=Source())
    assert combine({x: dealt[x - 1] for x in range(1, threshold + 1)}) == Secret(secret)


def shamir_pycryptodome(secret: bytes, threshold: int, shares: int) -> None:
    """Two blocks of 16 bytes, as flwr splits a 32-byte secret (without the padding block it adds)."""
    for block in (secret[:16], secret[16:]):
        dealt = Shamir.split(threshold, shares, block, ssss=False)
        assert Shamir.combine(dealt[:threshold], ssss=False) == block


def masks() -> list[str]:
    lines = [
        f"Masking one vector for {NEIGHBOURS} neighbours (bar: at most 2 ns, at least 3 times faster)",
        f"{'elements':>12} {'here':>10} {'flwr':>10} {'ratio':>7} {'ns per element and neighbour':>30}",
    ]
    for length in (10_000, 100_000, 1_000_000):
        seeds = [hashlib.sha256(bytes([i])).digest() for i in range(NEIGHBOURS)]
        whole, words = np.zeros(length, np.int64), np.zeros(length, np.uint64)
        here, flower = seconds(
            lambda words=words, seeds=seeds: mask_here(words, seeds),
            lambda whole=whole, seeds=seeds: mask_flower(whole, seeds),
            repetitions=15,
        )
        each = here / length / NEIGHBOURS * 1e9
        lines.append(f"{length:>12,} {here:>9.4f}s {flower:>9.4f}s {flower / here:>6.1f}x {each:>30.2f}")
    return lines


def sharing() -> list[str]:
    lines = [
        "Shamir sharing of 32 bytes, split and combine (bar: at least 100 times faster)",
        f"{'threshold':>12} {'here':>10} {'pycryptodome':>13} {'ratio':>7}",
    ]
    secret = hashlib.sha256(b"secret").digest()
    for threshold, shares in ((6, 10), (21, 40), (51, 100)):
        here, other = seconds(
            lambda t=threshold, n=shares: shamir_here(secret, t, n),
            lambda t=threshold, n=shares: shamir_pycryptodome(secret, t, n),
            repetitions=5,
        )
        sizes = f"{threshold} of {shares}"
        lines.append(f"{sizes:>12} {here * 1e3:>8.2f}ms {other * 1e3:>11.1f}ms {other / here:>6.0f}x")
    return lines


def unmasking() -> list[str]:
    lines = [
        "Server: removing 100 self masks from a total",
        f"{'elements':>12} {'seconds':>10} {'ms per client':>14}",
    ]
    keys = [Secret(hashlib.sha256(bytes([i])).digest()[:16]) for i in range(100)]
    for length in (10_000, 100_000, 1_000_000):
        total = np.zeros(length, np.uint64)
        [taken] = seconds(lambda total=total: add_masks(total, minus=keys), repetitions=5)
        lines.append(f"{length:>12,} {taken:>9.4f}s {taken * 10:>14.3f}")
    return lines


def whole_runs() -> list[str]:
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from secure_sum_driver import Run, vectors

    lines = [
        "Whole runs in one process, a tenth of the clients silent from leg 2 on, 1,000 elements",
        f"{'clients':>12} {'neighbours':>11} {'seconds':>10} {'ms per client':>14} {'KB per client':>14}",
    ]
    for n in (10, 40, 160):
        run = Run.of(n, lengths=(1000,), through_bytes=False)
        run.silent = dict.fromkeys(list(run.values)[: n // 10], 2)
        started = perf_counter()
        released = run.go()
        taken = perf_counter() - started
        assert vectors(released) == run.total(list(run.values)[n // 10 :])
        sent = [message for leg in (*run.requests, *run.replies) for message in leg.values()]
        size = sum(len(wire.encode(message)) for message in sent) / n / 1000
        k = run.requests[0]["client-000"]["neighbours"]
        lines.append(f"{n:>12} {k:>11} {taken:>9.3f}s {taken / n * 1e3:>14.1f} {size:>14.1f}")
    return lines


def main() -> None:
    for table in (masks, sharing, unmasking, whole_runs):
        print("\n".join(table()), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
