"""Comparison functions against sycret (PySyft's library in Rust), and what a whole-grid check costs.

    python benchmarks/dcf.py

Needs sycret (`pip install sycret`); without it, its times are those of the reference measurement of this project (12 s
and 4.2 s for a million keys on two cores), and marked. Wall times and processor times are the best of several
repetitions in one process, the two sides in turn. We use one core; sycret evaluates on all that are free, so compare
processor times, which a busy machine disturbs less, too. sycret's keys are for 32 bits, additive modulo 2^32, and its
points differ from key to key; ours are modulo 2^61 - 1, contain what the check needs, and are evaluated at a point that
all keys share, as a server does.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

from fedassay.crypto.dcf import evaluate, generate, totals, whole_domain
from fedassay.crypto.dcf_keys import Keys
from fedassay.crypto.sketch import Challenge, accepted, answer, begin
from fedassay.privacy.randomness import SecureRandomness

try:
    from sycret import LeFactory
except ImportError:
    LeFactory = None

SIZES = (10_000, 100_000, 1_000_000)
KEYGEN_BAR, EVALUATION_BAR = 8, 10
REFERENCE_KEYGEN, REFERENCE_EVALUATION = 12e-6, 4.2e-6


class Taken(NamedTuple):
    """Seconds on the clock, and of all processors together."""

    wall: float
    cpu: float


def seconds(*works: Callable[[], object], repetitions: int) -> list[Taken]:
    """The shortest times of each piece of work, run in turn so that all meet the same machine."""
    times: list[list[Taken]] = [[] for _ in works]
    for _ in range(repetitions):
        for work, taken in zip(works, times, strict=True):
            gc.collect()
            wall, cpu = perf_counter(), process_time()
            work()
            taken.append(Taken(perf_counter() - wall, process_time() - cpu))
    return [Taken(min(t.wall for t in taken), min(t.cpu for t in taken)) for taken in times]


def values(count: int, bits: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 2**bits, count)


def against_sycret(count: int) -> tuple[list[Taken], list[Taken]]:
    """Ours and theirs: making keys, and evaluating those of one party."""
    x, source, repetitions = values(count, 32), SecureRandomness(), 2 if count > 100_000 else 5
    keys, _ = generate(x, bits=32, randomness=source)
    mine = [lambda: generate(x, bits=32, randomness=source), lambda: evaluate(keys, [123_456_789])]
    if LeFactory is None:
        theirs = [Taken(each * count, each * count) for each in (REFERENCE_KEYGEN, REFERENCE_EVALUATION)]
        return [seconds(work, repetitions=repetitions)[0] for work in mine], theirs
    factory, points = LeFactory(), x.astype(np.int64)
    other, _ = factory.keygen(count)
    their = [lambda: factory.keygen(count), lambda: factory.eval(0, points, other)]
    pairs = [seconds(ours, peer, repetitions=repetitions) for ours, peer in zip(mine, their, strict=True)]
    return [ours for ours, _ in pairs], [peer for _, peer in pairs]


def comparison() -> list[str]:
    marked = "" if LeFactory else " (not installed: reference times, not measured here)"
    lines = [
        f"32 bits, against sycret{marked}",
        f"bars at a million keys: {KEYGEN_BAR} times for making, {EVALUATION_BAR} times for evaluating, per processor",
        f"{'keys':>10} {'work':>9} {'here':>9} {'sycret':>9} {'ratio':>7}  {'processor':>9} {'sycret':>9} {'ratio':>7}",
    ]
    for count in SIZES:
        ours, theirs = against_sycret(count)
        for work, mine, peer in zip(("make", "evaluate"), ours, theirs, strict=True):
            lines.append(
                f"{count:>10,} {work:>9} {mine.wall:>8.3f}s {peer.wall:>8.3f}s {peer.wall / mine.wall:>6.1f}x"
                f"  {mine.cpu:>8.3f}s {peer.cpu:>8.3f}s {peer.cpu / mine.cpu:>6.1f}x"
            )
    return lines


_together: Any = None


def _wait_here(barrier: Any) -> None:
    global _together
    _together = barrier


def _share_of_keys(count: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """One of several processes: makes its share of the keys and evaluates them, beginning when all others do."""
    x, source = values(count, 32), SecureRandomness()
    keys, _ = generate(x[:1000], bits=32, randomness=source)
    _together.wait()
    begun = perf_counter()
    keys, _ = generate(x, bits=32, randomness=source)
    made = perf_counter()
    _together.wait()
    again = perf_counter()
    evaluate(keys, [123_456_789])
    return (begun, made), (again, perf_counter())


def on_all_cores() -> list[str]:
    """By the clock, with a process for each core: clients make their own keys, and servers can share theirs out."""
    if LeFactory is None:
        return ["On all cores: sycret is not installed"]
    count, cores, context = SIZES[-1], os.cpu_count() or 1, get_context("spawn")
    _, theirs = against_sycret(count)
    with ProcessPoolExecutor(
        cores, mp_context=context, initializer=_wait_here, initargs=(context.Barrier(cores),)
    ) as pool:
        spans = list(pool.map(_share_of_keys, [count // cores] * cores))
    lines = [
        f"On all {cores} cores, by the clock, {count:,} keys of 32 bits: {cores} processes of ours, sycret's threads"
    ]
    for phase, (work, peer) in enumerate(zip(("make", "evaluate"), theirs, strict=True)):
        taken = max(span[phase][1] for span in spans) - min(span[phase][0] for span in spans)
        lines.append(f"{work:>10} {taken:>8.3f}s {peer.wall:>8.3f}s {peer.wall / taken:>6.1f}x")
    return lines


def by_itself() -> list[str]:
    lines = [
        "Keys per second of processor time",
        f"{'bits':>6} {'keys':>10} {'make':>10} {'to bytes':>10} {'from bytes':>11} {'evaluate':>10}",
    ]
    source = SecureRandomness()
    for bits in (16, 32):
        for count in SIZES:
            x = values(count, bits)
            keys, _ = generate(x, bits=bits, randomness=source)
            data = keys.to_bytes()
            works = (
                lambda x=x, bits=bits: generate(x, bits=bits, randomness=source),
                lambda keys=keys: keys.to_bytes(),
                lambda data=data, bits=bits: Keys.from_bytes(data, party=0, bits=bits),
                lambda keys=keys: evaluate(keys, [1000]),
            )
            rates = [count / taken.cpu for taken in seconds(*works, repetitions=2 if count > 100_000 else 5)]
            make, to_bytes, from_bytes, point = (f"{rate / 1e6:.2f}M" for rate in rates)
            lines.append(f"{bits:>6} {count:>10,} {make:>10} {to_bytes:>10} {from_bytes:>11} {point:>10}")
            del keys, data, works
    return lines


def grids() -> list[str]:
    lines = [
        "The whole grid for one server: sums over clients, and the first message of the check",
        f"{'points':>10} {'clients':>8} {'sums':>10} {'ns per client and point':>24} {'check':>10} {'ns':>6}",
    ]
    for bits, count in ((10, 4000), (12, 1000), (16, 60), (20, 4)):
        keys = generate(values(count, bits), bits=bits, randomness=SecureRandomness())
        challenge = Challenge.of(bytes(32), bits=bits)
        tau = whole_domain(bits)
        sums, check = seconds(
            lambda keys=keys, tau=tau: totals(keys[0], tau),
            lambda keys=keys, challenge=challenge: begin(keys[0], challenge),
            repetitions=3,
        )
        (half_0, first_0), (half_1, first_1) = (begin(party, challenge) for party in keys)
        assert accepted(answer(half_0, first_1), answer(half_1, first_0)).all()
        each, checked = (taken.cpu / count / 2**bits * 1e9 for taken in (sums, check))
        lines.append(
            f"{2**bits:>10,} {count:>8,} {sums.wall:>9.3f}s {each:>24.1f} {check.wall:>9.3f}s {checked:>6.1f}"
        )
    return lines


def peak() -> float:
    """The most memory that this process has had, in gigabytes (Linux)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1e6


def a_million_keys() -> tuple[float, float]:
    """The peaks after a million keys were made and evaluated, and after one server's were written as bytes."""
    first, second = generate(values(1_000_000, 32), bits=32, randomness=SecureRandomness())
    assert len(evaluate(second, [5])) == len(first)
    made = peak()
    first.to_bytes()
    return made, peak()


def memory() -> list[str]:
    if not Path("/proc/self/status").exists():
        return ["Memory: measured on Linux only"]
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        made, written = pool.submit(a_million_keys).result()
    return [
        "Peak memory of a process with a million keys of 32 bits for both servers (bar: 2 GB)",
        f"  made and evaluated {made:.2f} GB, with one server's keys as bytes beside them {written:.2f} GB",
    ]


def main() -> None:
    for table in (comparison, on_all_cores, by_itself, grids, memory):
        print("\n".join(table()), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
