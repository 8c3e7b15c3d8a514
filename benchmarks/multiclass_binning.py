"""BBQ of multiclass models: netcal against one client that counts all rows and a server that fits from the counts.

    python benchmarks/multiclass_binning.py                     netcal is skipped where it is not installed
    python benchmarks/multiclass_binning.py --peers PYTHON      with an interpreter that has it

netcal needs PyTorch and several gigabytes, so it can live in an environment of its own
(`python -m venv E && E/bin/pip install netcal`); it is timed there, in the same run, on the same rows.

All times are processor seconds on one thread each. Ours are from logits to a map: measuring the histograms, reading
them, the fit and the map; the best of five. netcal's are of one `fit` to probabilities, once. The bar: at least 100
times less at 10^5 x 10.

The two are not the same estimator. netcal averages hundreds of binnings with equally many rows in each bin; FedBBQ
averages seven with 2, 4, .., 128 bins of equal width, which is what can be added up over clients. `log loss` (clipped
at 1e-12) and `cwECE` (classwise, 15 bins, in %) on fresh rows of the same law say what that costs.

Below: what a client of Table 11 does in a round (70 rows, 10 classes), and what it sends (Table 5; Table 10 in full).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

import numpy as np
from scipy.special import softmax

from fedassay.protocol import wire
from fedassay.protocol.vocabulary import Batch
from fedassay.summaries.multiclass.binned_map import Binned
from fedassay.summaries.multiclass.histograms import ProbabilityHistograms
from fedassay.tasks.calibration.multiclass.binned_flow import fit_bbq

SIZES = ((10_000, 10), (100_000, 10), (10_000, 100))
BAR_AT, BAR = (100_000, 10), 100
FRESH = 50_000

PUBLISHED = {"FedBin": 0.005, "FedBBQ": 0.032}
"""Seconds of a client in a round, the means of Table 11."""

CLIENT_ROWS, CLIENT_CLASSES, HEIGHT = 70, 10, 7

PEER = """
import sys, time, warnings
import numpy as np
import torch
from netcal.binning import BBQ

torch.set_num_threads(1)
warnings.simplefilter("ignore")
data = np.load(sys.argv[1])
model = BBQ()
started = time.process_time()
model.fit(data["p"], data["y"])
seconds = time.process_time() - started
np.savez(sys.argv[2], seconds=seconds, q=model.transform(data["fresh"]))
"""

Rows = tuple[np.ndarray, np.ndarray]


def drawn(rows: int, classes: int, seed: int) -> Rows:
    """Logits that are 1.6 times too far from each other, with one class that stands out."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, classes))
    z[np.arange(rows), rng.integers(0, classes, rows)] += 4.0
    y = (softmax(z, axis=1).cumsum(axis=1) > rng.random((rows, 1))).argmax(axis=1)
    return 1.6 * z, y.astype(np.int64)


class InMemory:
    """Rows of one client."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def batches(self) -> Iterator[Batch]:
        """See `protocol.Rows`."""
        yield {"logits": self.rows[0], "class": self.rows[1]}


def ours(rows: Rows) -> Binned:
    classes = rows[0].shape[1]
    summary = ProbabilityHistograms(classes=classes, height=HEIGHT)
    values = fit_bbq(summary.read(summary.measure(InMemory(rows), {})[0]))
    return Binned.of(np.append(values.reshape(-1), np.ones(classes)), classes)


def theirs(interpreter: str, rows: Rows, fresh: np.ndarray) -> tuple[np.ndarray, float] | None:
    """Probabilities of fresh rows and the seconds of the fit; None if the interpreter does not have netcal."""
    if subprocess.run([interpreter, "-c", "import netcal"], capture_output=True).returncode:
        return None
    with tempfile.TemporaryDirectory() as folder:
        given, returned = Path(folder) / "rows.npz", Path(folder) / "found.npz"
        np.savez(given, p=softmax(rows[0], axis=1), y=rows[1], fresh=softmax(fresh, axis=1))
        subprocess.run([interpreter, "-c", PEER, given, returned], check=True, capture_output=True)
        with np.load(returned) as found:
            return found["q"], float(found["seconds"])


def least(work: Callable[[], object], times: int) -> float:
    """The least processor seconds of several runs."""
    best = float("inf")
    for _ in range(times):
        started = process_time()
        work()
        best = min(best, process_time() - started)
    return best


def quality(q: np.ndarray, y: np.ndarray) -> str:
    loss = -float(np.log(np.clip(q[np.arange(len(y)), y], 1e-12, 1)).mean())
    errors = []
    for j in range(q.shape[1]):
        bins = np.minimum((q[:, j] * 15).astype(int), 14)
        errors.append(np.abs(np.bincount(bins, weights=q[:, j] - (y == j), minlength=15)).sum() / len(y))
    return f"log loss {loss:.4f}   cwECE {100 * float(np.mean(errors)):.3f}"


def show(rows: int, classes: int, name: str, seconds: float | None, said: str, note: str = "") -> None:
    took = "" if seconds is None else f"{1e3 * seconds:.1f} ms"
    print(f"{rows:>8,} x {classes:<4} {name:10} {took:>12}   {said}   {note}".rstrip(), flush=True)


def against_netcal(interpreter: str) -> None:
    for rows, classes in SIZES:
        fit, (z, y) = drawn(rows, classes, 0), drawn(FRESH, classes, 1)
        seconds = least(lambda fit=fit: ours(fit), 5)  # type: ignore[misc]
        show(rows, classes, "model", None, quality(softmax(z, axis=1), y))
        show(rows, classes, "fedassay", seconds, quality(ours(fit).predict_proba(z), y))
        peer = theirs(interpreter, fit, z)
        if peer is None:
            print(f"netcal is skipped: {interpreter} does not have it; give --peers PYTHON.")
            continue
        q, took = peer
        missed = (rows, classes) == BAR_AT and took < BAR * seconds
        note = f"{took / seconds:,.0f}x" + (f", below {BAR}x" if missed else "")
        show(rows, classes, "netcal", took, quality(q, y), note)


def one_client() -> None:
    rows = drawn(CLIENT_ROWS, CLIENT_CLASSES, 0)
    kinds = {
        "plain": {},
        "clipped jointly": {"positive_clip": 10.0, "negative_clip": 50.0},
        "clipped one by one": {"positive_clip": 10.0, "negative_clip": 50.0, "joint": False},
    }
    print(f"\na client with {CLIENT_ROWS} rows of {CLIENT_CLASSES} classes, 2^{HEIGHT} bins, one round")
    for name, fields in kinds.items():
        summary = ProbabilityHistograms(classes=CLIENT_CLASSES, height=HEIGHT, **fields)  # type: ignore[arg-type]
        seconds = least(lambda summary=summary: summary.measure(InMemory(rows), {}), 200)  # type: ignore[misc]
        ratios = ", ".join(f"{published / seconds:,.0f}x {one}" for one, published in PUBLISHED.items())
        print(f"{name:20} {1e6 * seconds:8.0f} µs   {ratios} of Table 11")
    vector, _ = summary.measure(InMemory(rows), {})
    sent = len(wire.encode({"vectors": [vector]}))
    print(f"sent: {len(vector):,} numbers (2 · 2^M · c) in {sent:,} bytes; Table 10: 20.0 kb; received: none")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--peers", metavar="PYTHON", default=sys.executable, help="an interpreter that has netcal"
    )
    options = parser.parse_args()
    against_netcal(options.peers)
    one_client()


if __name__ == "__main__":
    main()
