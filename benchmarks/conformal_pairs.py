"""The best pair of a quantile of quantiles: the paper's convolution against ours, and how ours grows.

    python benchmarks/conformal_pairs.py            about two minutes
    python benchmarks/conformal_pairs.py --large    10^5 clients with 10^6 rows, and 10^4 different clients, too

The bars: at 10 clients with 20 rows at least 1,000 times a direct implementation of the paper's Eq. 5; 1,000 clients
with 1,000 rows within 50 ms, 100 with 10^6 within a second, all at an error of M of at most 1e-12.

The direct implementation does what the paper's A.2 describes: for each pair, each number j of clients and each sum r it
multiplies the generating functions of truncated binomials and reads off one coefficient. `shared` is the best that can
be said for it: all coefficients are read off one product, which is made once for each ℓ and j. Both use doubles.
Times are processor time, of which other work on a shared machine takes less than of the clock's, and the best of
several repetitions; the direct implementation runs once. Ratios are from this run.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from time import process_time
from typing import TypeVar

import numpy as np

from fedassay.estimation.coverage import UnequalLaw, best_pair, best_ranks, best_server_rank, split_ranks
from fedassay.estimation.coverage.law import moments

LEVEL = 0.9
T = TypeVar("T")


# --- the paper's convolution ----------------------------------------------------------------------------


def parts(n: int, ell: int) -> tuple[np.ndarray, np.ndarray]:
    """Masses of Bin(n, 1/2) from ℓ on and below, as generating functions."""
    mass = np.array([math.comb(n, i) / 2**n for i in range(n + 1)])
    return np.where(np.arange(n + 1) >= ell, mass, 0), np.where(np.arange(n + 1) < ell, mass, 0)


def product(upper: np.ndarray, lower: np.ndarray, j: int, m: int) -> np.ndarray:
    result = np.ones(1)
    for i in range(m):
        result = np.convolve(result, upper if i < j else lower)
    return result


def rectangle(upper: np.ndarray, lower: np.ndarray, j: int, m: int, r: int) -> float:
    """p_r of A.2: the probability of a rectangle under the multivariate hypergeometric law, one at a time."""
    scores = m * (len(upper) - 1)
    return float(product(upper, lower, j, m)[r]) / (math.comb(scores, r) / 2**scores)


def direct_mean(m: int, n: int, ell: int, k: int) -> float:
    """Eq. 5 for one pair."""
    upper, lower = parts(n, ell)
    missed = 0.0
    for j in range(k, m + 1):
        for r in range(j * ell, j * n + (m - j) * (ell - 1) + 1):
            missed += math.comb(m, j) * rectangle(upper, lower, j, m, r)
    return 1 - missed / (m * n + 1)


def direct(m: int, n: int) -> np.ndarray:
    """M of all pairs, one by one."""
    return np.array([[direct_mean(m, n, ell, k) for k in range(1, m + 1)] for ell in range(1, n + 1)])


def shared(m: int, n: int) -> np.ndarray:
    """M of all pairs, with one product for each ℓ and j."""
    scores = m * n
    choices = np.array([math.comb(scores, r) / 2**scores for r in range(scores + 1)])
    table = np.empty((n, m))
    for ell in range(1, n + 1):
        upper, lower = parts(n, ell)
        terms = [math.comb(m, j) * (product(upper, lower, j, m) / choices).sum() for j in range(1, m + 1)]
        table[ell - 1] = 1 - np.cumsum(terms[::-1])[::-1] / (scores + 1)
    return table


def papers_pair(table: np.ndarray) -> tuple[int, int]:
    """Eq. 6."""
    ell, k = np.unravel_index(np.where(table >= LEVEL - 1e-12, table, 2).argmin(), table.shape)
    return int(ell) + 1, int(k) + 1


# --- times ----------------------------------------------------------------------------------------------


def fastest(work: Callable[[], T], *, repetitions: int) -> tuple[T, float]:
    """The result, and the seconds of the fastest repetition."""
    best = math.inf
    for _ in range(repetitions):
        started = process_time()
        result = work()
        best = min(best, process_time() - started)
    return result, best


def against_the_paper() -> None:
    print("the best pair by the paper's rule; `difference` is that of M")
    for m, n in ((5, 10), (10, 10), (10, 20), (20, 20), (20, 50)):
        ours, seconds = fastest(lambda m=m, n=n: best_pair(m, n, LEVEL, rule="paper"), repetitions=30)
        print(f"({m}, {n})  ours   {1e3 * seconds:9.2f} ms         {ours.pair}")
        ell, k = (x.ravel() for x in np.meshgrid(np.arange(1, n + 1), np.arange(1, m + 1), indexing="ij"))
        means = moments(m, n, ell, k).mean.reshape(n, m)
        for work in (direct, shared) if m * n <= 200 else (shared,):
            table, slow = fastest(
                lambda work=work, m=m, n=n: work(m, n), repetitions=1 if work is direct else 3
            )
            print(
                f"({m}, {n})  {work.__name__} {1e3 * slow:9.2f} ms {slow / seconds:6.0f}x {papers_pair(table)}"
                f"  difference {np.abs(table - means).max():.0e}",
                flush=True,
            )


def growth(*, large: bool) -> None:
    print("\nours, (m, n): time, pair, mean, standard deviation")
    sizes = [
        (10, 20),
        (10, 100),
        (100, 100),
        (1000, 1000),
        (100, 10**4),
        (100, 10**6),
        (10**5, 10),
        (10**5, 1000),
    ]
    for m, n in sizes + ([(10**5, 10**6)] if large else []):
        for title, options in (
            ("spread", {}),
            ("paper", {"rule": "paper"}),
            ("confident", {"confidence": 0.9}),
        ):
            law, seconds = fastest(
                lambda m=m, n=n, options=options: best_pair(m, n, LEVEL, **options),
                repetitions=20 if m * n < 10**7 else 3,
            )
            print(
                f"({m}, {n}) {title:9} {1e3 * seconds:9.2f} ms  {law.pair!s:18} {law.mean:.7f} "
                f"{law.standard_deviation:.3g}",
                flush=True,
            )


def unequal(*, large: bool) -> None:
    print(
        "\nclients with 10 to 10,000 rows: the law for given ranks, the best k, the search over shifted ranks"
    )
    for m in (10, 100, 1000) + ((10_000,) if large else ()):
        rows = tuple(int(n) for n in 10 ** np.random.default_rng(m).uniform(1, 4, m))
        ranks, repetitions = split_ranks(rows, LEVEL), max(1, 300 // m)
        _, law = fastest(
            lambda rows=rows, ranks=ranks, m=m: (
                UnequalLaw(rows=rows, local_ranks=ranks, server_rank=m // 2).variance
            ),
            repetitions=repetitions,
        )
        plain, k = fastest(
            lambda rows=rows, ranks=ranks: best_server_rank(rows, ranks, LEVEL), repetitions=repetitions
        )
        shifted, search = fastest(lambda rows=rows: best_ranks(rows, LEVEL), repetitions=1)
        print(
            f"{m:6} clients: law {1e3 * law:8.1f} ms, best k {1e3 * k:8.1f} ms, search {1e3 * search:8.0f} ms; "
            f"error {error(plain):.4g} and {error(shifted):.4g}",
            flush=True,
        )


def error(law: UnequalLaw) -> float:
    """The root of E(U - (1-α))²."""
    return math.hypot(1 - LEVEL - law.miss, law.standard_deviation)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="the largest federations too")
    options = parser.parse_args()
    against_the_paper()
    growth(large=options.large)
    unequal(large=options.large)


if __name__ == "__main__":
    main()
