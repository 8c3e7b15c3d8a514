"""Optimized Unary Encoding over 1,024 cells: simulated federations against pure-ldp and multi-freq-ldpy.

    python benchmarks/unary_encoding.py

The peers simulate by making every client's report; we draw how many ones each cell gets, which has the same law
(Bin(n_j, ½) + Bin(M - n_j, q), tested in tests/statistical/test_local_reports.py). The bar is 1,000 times. The last
column is the error of the estimates in units of what theory says, √(V·M + n_j): near 1 for all three, so that
speed is not bought with a wrong law. Peers run once per size, ours is the best of twenty. Times are of the
processor, for all run on one core and the machine may have other work.

A real client cannot do this: below is what one report costs it, with secure coins, and the server.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import process_time

import numpy as np

from fedassay.privacy.randomness import SecureRandomness, SimulatedRandomness
from fedassay.protocol.vocabulary import Budget, Exchange, Plan, Protection, Request, Setting, Sum
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.trust.local_dp import LocalDP

SIZES = (10_000, 100_000, 1_000_000)
EPSILON = 1.0
HISTOGRAM = ScoreHistogram(transform="uniform", height=9)
CELLS = HISTOGRAM.length
CHUNK = 20_000
"""Reports that a peer keeps at once: a million of its vectors would be 8 GB."""

Estimate = Callable[[np.ndarray], np.ndarray]


def pure_ldp(cells: np.ndarray) -> np.ndarray:
    from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

    client = UEClient(EPSILON, CELLS, use_oue=True, index_mapper=lambda x: x)
    server = UEServer(EPSILON, CELLS, use_oue=True, index_mapper=lambda x: x)
    for cell in cells:
        server.aggregate(client.privatise(cell))
    return np.array(server.estimate_all(range(CELLS), suppress_warnings=True))


def multi_freq_ldpy(cells: np.ndarray) -> np.ndarray:
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client

    q, ones = 1 / (math.exp(EPSILON) + 1), np.zeros(CELLS)
    for start in range(0, len(cells), CHUNK):
        reports = [UE_Client(cell, CELLS, EPSILON) for cell in cells[start : start + CHUNK]]
        ones += np.sum(reports, axis=0)  # as its aggregator does, before it clips at zero
    return (ones - len(cells) * q) / (0.5 - q)


def plan_for(clients: int, histogram: ScoreHistogram = HISTOGRAM) -> Plan:
    trust = LocalDP()
    setting = Setting(
        trust=trust,
        protection=Protection(rows_per_client=1),
        budget=Budget(epsilon=EPSILON),
        clients=clients,
    )
    return trust.plan(Sum(of=histogram), setting)


def fedassay(cells: np.ndarray) -> np.ndarray:
    total = np.bincount(cells, minlength=CELLS)
    plan = plan_for(len(cells))
    (released,) = LocalDP().aggregate([plan], [total], len(cells), SimulatedRandomness(1))
    return released.value


def seconds(estimate: Estimate, cells: np.ndarray, *, repetitions: int) -> tuple[float, np.ndarray]:
    taken = []
    for _ in range(repetitions):
        started = process_time()
        value = estimate(cells)
        taken.append(process_time() - started)
    return min(taken), value


def relative_error(value: np.ndarray, cells: np.ndarray) -> float:
    counts = np.bincount(cells, minlength=CELLS)
    q = 1 / (math.exp(EPSILON) + 1)
    variance = len(cells) * q * (1 - q) / (0.5 - q) ** 2 + counts
    return math.sqrt(float(((value - counts) ** 2 / variance).mean()))


def simulated() -> None:
    print(f"{'clients':>10} {'who':16} {'seconds':>10} {'ratio':>8}   error/theory")
    for clients in SIZES:
        rng = np.random.default_rng(0)
        cells = np.minimum(rng.geometric(0.01, clients) - 1, CELLS - 1)
        ours, value = seconds(fedassay, cells, repetitions=20)
        for peer in (pure_ldp, multi_freq_ldpy):
            peer(cells[:10])  # compile, where there is something to compile
            taken, theirs = seconds(peer, cells, repetitions=1)
            ratio = f"{taken / ours:,.0f}x"
            print(
                f"{clients:10,} {peer.__name__:16} {taken:10.3f} {ratio:>8}   {relative_error(theirs, cells):.2f}",
                flush=True,
            )
        print(f"{clients:10,} {'fedassay':16} {ours:10.5f} {'':8}   {relative_error(value, cells):.2f}")


def single_clients() -> None:
    print("\nOne client's report, with secure coins, and the server's work on it")
    print(f"{'cells':>10} {'bytes':>7} {'client':>12} {'server':>12}")
    for height in (7, 9, 11):
        histogram = ScoreHistogram(transform="uniform", height=height)
        plan, source, reports = plan_for(2_000, histogram), SecureRandomness(), {}
        row = np.zeros(histogram.length, dtype=np.int64)
        row[3] = 1
        names = [f"client{i}" for i in range(2_000)]
        started = process_time()
        for name in names:
            request = Request(
                exchange=b"id", plans=(plan,), cohort=len(names), leg=0, recipient=name, message={}
            )
            reports[name], _ = LocalDP().respond(request, lambda row=row: (row,), {}, source)
        client = (process_time() - started) / len(names)
        flow = LocalDP().exchange(Exchange(id=b"id", plans=(plan,), cohort=tuple(names)), source)
        next(flow)
        started = process_time()
        try:
            flow.send(reports)
        except StopIteration:
            server = (process_time() - started) / len(names)
        size = len(reports["client0"]["reports"][0])
        print(f"{histogram.length:10,} {size:7,} {client * 1e6:9.0f} µs {server * 1e6:9.1f} µs")


def main() -> None:
    simulated()
    single_clients()


if __name__ == "__main__":
    main()
