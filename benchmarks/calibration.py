"""Calibrators of binary scores: scikit-learn and netcal against ours, fitted to the same rows.

    python benchmarks/calibration.py                        scikit-learn only
    python benchmarks/calibration.py --netcal PYTHON        netcal too, with an interpreter that has it
    python benchmarks/calibration.py --netcal PYTHON --large    netcal's BBQ at 10^6 rows too (about half an hour)

netcal needs PyTorch and several gigabytes, so it lives in an environment of its own
(`python -m venv E && E/bin/pip install netcal`); it is timed there, in the same run, on the same rows.

The bar: BBQ at least 100 times netcal, with equal outputs where they can be compared. netcal weighs binnings by BIC
instead of the published marginal likelihood, uses buckets of equal width, and prunes. So the rows have equally many
scores in each of 4,096 equal bins, where both kinds of buckets are the same, and for the comparison of outputs
(not of time) ours is given BIC too. `difference` is the largest one between calibrated probabilities, over all bins.
Ours is the best of three and includes counting the rows.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
from scipy.special import expit, logit, xlogy
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from fedassay.estimation.evidence import Evidence
from fedassay.protocol.vocabulary import NO_NOISE, Batch
from fedassay.summaries.maps import Map
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.calibration.bbq import bbq
from fedassay.tasks.calibration.methods import beta, histogram_binning, isotonic, platt

HISTOGRAM = ScoreHistogram(transform="uniform", height=12)
LEAVES = HISTOGRAM.grid.leaves
MIDDLES = (np.arange(LEAVES) + 0.5) / LEAVES
SIZES = (8_192, 98_304, 999_424)
BINS = 16

NETCAL = """
import sys, time
import numpy as np
from netcal.binning import BBQ, HistogramBinning

data = np.load(sys.argv[1])
name = sys.argv[2]
model = BBQ() if name == "bbq" else HistogramBinning(bins=int(name))
started = time.perf_counter()
model.fit(data["scores"], data["labels"])
seconds = time.perf_counter() - started
np.savez(sys.argv[3], seconds=seconds, values=model.transform(data["middles"]))
"""

Rows = tuple[np.ndarray, np.ndarray]
Fit = Callable[[Evidence], Map]


def even_rows(count: int) -> Rows:
    """Equally many scores in each bin, and labels that are less extreme than the scores."""
    rng = np.random.default_rng(0)
    scores = rng.permutation(np.repeat(MIDDLES, count // LEAVES))
    return scores, (rng.random(count) < expit(0.7 * logit(scores) - 0.4)).astype(np.int8)


class InMemory:
    """Rows of one client."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def batches(self) -> Iterator[Batch]:
        """See `protocol.Rows`."""
        yield {"score": self.rows[0], "label": self.rows[1]}


def count(rows: Rows) -> Evidence:
    total, _ = HISTOGRAM.measure(InMemory(rows), {})
    return HISTOGRAM.read(total).evidence(NO_NOISE)


def ours(rows: Rows, fit: Fit) -> tuple[np.ndarray, float]:
    fastest = float("inf")
    for _ in range(3):
        started = perf_counter()
        calibrator = fit(count(rows))
        fastest = min(fastest, perf_counter() - started)
    return calibrator(MIDDLES), fastest


def with_isotonic(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.asarray(IsotonicRegression(out_of_bounds="clip").fit(scores, labels).predict(MIDDLES))


def with_logistic(
    *features: Callable[[np.ndarray], np.ndarray],
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def work(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        model = LogisticRegression(C=np.inf).fit(np.stack([f(scores) for f in features], axis=1), labels)
        return np.asarray(model.predict_proba(np.stack([f(MIDDLES) for f in features], axis=1))[:, 1])

    return work


def timed(work: Callable[[np.ndarray, np.ndarray], np.ndarray], rows: Rows) -> tuple[np.ndarray, float]:
    started = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # stopping rules of the peers
        values = work(*rows)
    return values, perf_counter() - started


def netcal(interpreter: str, name: str, rows: Rows) -> tuple[np.ndarray, float]:
    with tempfile.TemporaryDirectory() as folder:
        given, returned = Path(folder) / "rows.npz", Path(folder) / "values.npz"
        np.savez(given, scores=rows[0], labels=rows[1], middles=MIDDLES)
        subprocess.run(
            [interpreter, "-c", NETCAL, given, name, returned], check=True, stderr=subprocess.DEVNULL
        )
        with np.load(returned) as found:
            return found["values"], float(found["seconds"])


def show(method: str, rows: int, peer: str, theirs: float, seconds: float, difference: float) -> None:
    print(
        f"{method:10} {rows:>9,} {peer:13} {theirs:9.3f} s {seconds:9.4f} s {theirs / seconds:8.0f}x   "
        f"{difference:.1e}",
        flush=True,
    )


def against_scikit_learn(rows: Rows) -> None:
    def falling(s: np.ndarray) -> np.ndarray:
        return -np.log1p(-s)

    for method, fit, work in (
        ("isotonic", isotonic, with_isotonic),
        ("platt", platt, with_logistic(logit)),
        ("beta", beta, with_logistic(np.log, falling)),
    ):
        expected, theirs = timed(work, rows)
        values, seconds = ours(rows, lambda evidence, fit=fit: fit(evidence).map)
        show(method, len(rows[0]), "scikit-learn", theirs, seconds, float(np.abs(values - expected).max()))


def against_netcal(interpreter: str, rows: Rows, *, large: bool) -> None:
    expected, theirs = netcal(interpreter, str(BINS), rows)
    values, seconds = ours(rows, lambda evidence: histogram_binning(evidence, bins=BINS).map)
    show("histogram", len(rows[0]), "netcal", theirs, seconds, float(np.abs(values - expected).max()))
    if len(rows[0]) > 200_000 and not large:
        return

    def bic(m: np.ndarray, n: np.ndarray, _midpoint: np.ndarray, _prior: np.ndarray) -> np.ndarray:
        return np.asarray(xlogy(m, m / (m + n)) + xlogy(n, n / (m + n)) - np.log(len(rows[0])) / 2)

    expected, theirs = netcal(interpreter, "bbq", rows)
    _, seconds = ours(rows, lambda evidence: bbq(evidence).map)
    compared = bbq(count(rows), score=bic).map(MIDDLES)
    show("bbq", len(rows[0]), "netcal", theirs, seconds, float(np.abs(compared - expected).max()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--netcal", metavar="PYTHON", help="an interpreter that has netcal")
    parser.add_argument("--large", action="store_true", help="netcal's BBQ at 10^6 rows too")
    options = parser.parse_args()
    print(f"{'method':10} {'rows':>9} {'peer':13} {'peer':>11} {'ours':>11} {'ratio':>9}   difference")
    for size in SIZES:
        rows = even_rows(size)
        against_scikit_learn(rows)
        if options.netcal is not None:
            against_netcal(options.netcal, rows, large=options.large)
        else:
            _, seconds = ours(rows, lambda evidence: bbq(evidence).map)
            print(f"{'bbq':10} {size:>9,} {'(no netcal)':13} {'':>11} {seconds:9.4f} s")


if __name__ == "__main__":
    main()
