"""Three mechanisms for a distribution function: the mean variance of a sum up to a point, claimed and measured.

    python benchmarks/distribution_mechanisms.py             2^6 .. 2^16 points, and the times of 2^20
    python benchmarks/distribution_mechanisms.py --runs 400  more releases, for the measured numbers

Claimed is the exact variance that the noise law gives, averaged over the points; measured is the mean squared error
of that many releases through server-dp. Both in squared rows. The bars, at 2^10 points and add-remove neighbours: tree
at most 0.17 of path for a pure epsilon, factorised at most 0.5 of path for (epsilon, delta). For the latter epsilon is
0.5, so that noise of a Gaussian type is the better one for both.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np

from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Budget, Neighbours, Protection, Setting, Sum
from fedassay.summaries.distribution.tree import ValueTree
from fedassay.tasks.distribution.mechanisms import MECHANISMS, chosen, mean_variance
from fedassay.tasks.distribution.stored import Release
from fedassay.trust.server_dp import ServerDP

BUDGETS = {"pure": Budget(epsilon=1.0), "delta": Budget(epsilon=0.5, delta=1e-6)}


def leaves(points: int) -> ValueTree:
    return ValueTree(lower=0, upper=1, points=points)


def releases(query: Sum, setting: Setting, counts: np.ndarray, runs: int) -> Iterator[Release]:
    plan = setting.trust.plan(query, setting)
    total = query.of.from_leaves(counts)
    for run in range(runs):
        (released,) = setting.trust.aggregate([plan], [total], setting.clients, SimulatedRandomness(run))
        yield Release.of(query.of.read(released.value), released.noise)


def measured(query: Sum, setting: Setting, points: int, runs: int) -> tuple[float, float]:
    """The mean squared error of a sum, and its standard error."""
    counts = np.random.default_rng(0).poisson(3, points)
    exact = np.cumsum(counts)
    squares = [
        float(((release.sums[0, 1:] - exact) ** 2).mean())
        for release in releases(query, setting, counts, runs)
    ]
    return float(np.mean(squares)), float(np.std(squares, ddof=1) / np.sqrt(runs))


def compare(points: int, neighbours: Neighbours, name: str, runs: int) -> None:
    setting = Setting(
        trust=ServerDP(), protection=Protection(neighbours=neighbours), budget=BUDGETS[name], clients=10
    )
    path = None
    for mechanism in ("path", "tree", "factorised"):
        query = Sum(of=chosen(leaves(points), setting, mechanism=mechanism))
        noise = setting.noise(query)
        claimed = mean_variance(query.of, noise)
        found, error = measured(query, setting, points, runs)
        path = path or claimed
        widths = getattr(query.of, "widths", None)
        note = "" if widths is None else f"  fan-out levels {len(widths)}: {','.join(map(str, widths))}"
        print(
            f"2^{points.bit_length() - 1:<3} {neighbours:12} {name:6} {mechanism:11} {noise.law:18} "
            f"{claimed:10.1f} {found:10.1f} ± {error:<8.1f} {claimed / path:6.3f}{note[:60]}",
            flush=True,
        )


def fastest(work: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        started = perf_counter()
        work()
        times.append(perf_counter() - started)
    return min(times)


def times(points: int) -> None:
    """Seconds for what a server does: choose, read a release, make it monotone, band and median."""
    counts = np.random.default_rng(0).poisson(3, points)
    print(f"\nseconds at {points:,} points   choose     read   smooth     band")
    for mechanism in MECHANISMS:
        budget = BUDGETS["delta" if mechanism == "factorised" else "pure"]
        setting = Setting(trust=ServerDP(), protection=Protection(), budget=budget, clients=10)
        query = Sum(of=chosen(leaves(points), setting, mechanism=mechanism))
        release = next(releases(query, setting, counts, 1))
        steps = (
            lambda mechanism=mechanism, setting=setting: chosen(leaves(points), setting, mechanism=mechanism),
            lambda release=release: Release.of(release.distribution, release.noise),
            lambda release=release: Release.of(release.distribution, release.noise).everyone.monotone,
            lambda release=release: release.everyone.band(level=0.95),
        )
        choose, read, both, band = (fastest(step) for step in steps)
        print(f"{mechanism:26} {choose:8.2f} {read:8.2f} {both - read:8.2f} {band:8.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100, help="releases per measured number")
    runs = parser.parse_args().runs
    print("points neighbours   budget mechanism   law                   claimed   measured            ratio")
    for name in BUDGETS:
        for neighbours in Neighbours:
            for height in range(6, 17, 2):
                compare(1 << height, neighbours, name, max(10, min(runs, runs * (1 << 10) >> height)))
    times(1 << 20)


if __name__ == "__main__":
    main()
