"""The AUC of many scored rows: scikit-learn (exact, sorts), polars and duckdb (a histogram each), and ours.

    python benchmarks/auc.py            10^5, 10^6 and 10^7 rows
    python benchmarks/auc.py --large    10^8 rows too (about 10 GB of memory, several minutes)

The bar: at least 100 times scikit-learn at 10^7 rows and more, at an error of at most 1e-5. Ours is measured twice:
with uniform bins, and with the default grid, which also resolves scores that concentrate at one in a million.
Ratios are from this run; scikit-learn runs once per row, the others are the best of three.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from time import perf_counter

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from fedassay.estimation.ranking import roc_auc
from fedassay.protocol.vocabulary import NO_NOISE, Batch
from fedassay.summaries.score_histogram import ScoreHistogram

BINS = 1 << 14
UNIFORM = ScoreHistogram(transform="uniform", height=14, thresholds=(0.5,))
DEFAULT = ScoreHistogram(transform="mixed", height=15, thresholds=(0.5,))

Rows = tuple[np.ndarray, np.ndarray]


def spread(count: int) -> Rows:
    """A calibrated model: the score is the probability of being positive."""
    rng = np.random.default_rng(0)
    scores = rng.random(count)
    return scores, (rng.random(count) < scores).astype(np.int8)


def concentrated(count: int) -> Rows:
    """Scores around one in a million."""
    rng = np.random.default_rng(0)
    labels = (rng.random(count) < 0.5).astype(np.int8)
    return expit(rng.normal(-14, 1.5, count) + 1.2 * labels), labels


def auc_of(positives: np.ndarray, negatives: np.ndarray) -> float:
    beaten = np.cumsum(negatives) - negatives / 2
    return float(positives @ beaten / (positives.sum() * negatives.sum()))


def with_sklearn(rows: Rows) -> Callable[[], float]:
    return lambda: float(roc_auc_score(rows[1], rows[0]))


def with_polars(rows: Rows) -> Callable[[], float]:
    frame = pl.DataFrame({"s": rows[0], "y": rows[1]})

    def work() -> float:
        bins = (pl.col("s") * BINS).cast(pl.Int32).clip(0, BINS - 1).alias("bin")
        table = frame.group_by(bins).agg(pl.len().alias("n"), pl.col("y").cast(pl.Int64).sum()).sort("bin")
        positives = table["y"].to_numpy()
        return auc_of(positives, table["n"].to_numpy() - positives)

    return work


def with_duckdb(rows: Rows) -> Callable[[], float]:
    table = pa.table({"s": rows[0], "y": rows[1]})
    connection = duckdb.connect()
    connection.register("rows", table)

    def work() -> float:
        counts = connection.execute(
            f"SELECT least(CAST(floor(s * {BINS}) AS INTEGER), {BINS - 1}) AS bin, sum(y)::BIGINT, count(*) "
            "FROM rows GROUP BY bin ORDER BY bin"
        ).fetchnumpy()
        positives, everyone = list(counts.values())[1:]
        return auc_of(np.asarray(positives), np.asarray(everyone) - np.asarray(positives))

    return work


def with_fedassay(rows: Rows, histogram: ScoreHistogram) -> Callable[[], float]:
    class InMemory:
        def batches(self) -> Iterator[Batch]:
            yield {"score": rows[0], "label": rows[1]}

    def work() -> float:
        total, _ = histogram.measure(InMemory(), {})
        value = roc_auc(histogram.read(total).evidence(NO_NOISE)).value
        assert value is not None
        return value

    return work


def measured(work: Callable[[], float], *, repetitions: int) -> tuple[float, float]:
    """The value, and the seconds of the fastest repetition."""
    value, fastest = 0.0, float("inf")
    for _ in range(repetitions):
        started = perf_counter()
        value = work()
        fastest = min(fastest, perf_counter() - started)
    return value, fastest


def compare(title: str, rows: Rows, *, histograms_of_others: bool) -> None:
    exact, reference = measured(with_sklearn(rows), repetitions=1)
    peers: dict[str, Callable[[], float]] = {}
    if histograms_of_others:
        peers = {"polars": with_polars(rows), "duckdb": with_duckdb(rows)}
        peers["fedassay, uniform"] = with_fedassay(rows, UNIFORM)
    peers["fedassay, default"] = with_fedassay(rows, DEFAULT)
    count = len(rows[0])
    print(f"{title:13} {count:>11,} {'scikit-learn':18} {reference:9.3f} s {1:7.0f}x   exact")
    for name, work in peers.items():
        value, seconds = measured(work, repetitions=3)
        print(
            f"{title:13} {count:>11,} {name:18} {seconds:9.4f} s {reference / seconds:7.0f}x   "
            f"error {abs(value - exact):.1e}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="10^8 rows too")
    large = parser.parse_args().large
    print(f"{'scores':13} {'rows':>11} {'who':18} {'time':>11} {'ratio':>8}")
    for count in (10**5, 10**6, 10**7, *((10**8,) if large else ())):
        compare("spread", spread(count), histograms_of_others=True)
    for count in (10**5, 10**6, 10**7):
        compare("concentrated", concentrated(count), histograms_of_others=False)


if __name__ == "__main__":
    main()
