"""Temperature scaling of multiclass models: netcal and probmetrics against the sums of one client that has all rows.

    python benchmarks/multiclass_scaling.py                     peers are skipped where they are not installed
    python benchmarks/multiclass_scaling.py --peers PYTHON      with an interpreter that has them

Both peers need PyTorch and several gigabytes, so they can live in an environment of their own
(`python -m venv E && E/bin/pip install netcal probmetrics numba`); they are timed there, in the same run, on the same
rows. They are given probabilities, which is what their interfaces ask for; ours is given logits.

All times are processor seconds on one thread each: what a client pays, whatever else its machine does. Ours are those
of all sums of a fit, fixed-point numbers included, the best of five fits; theirs are of one `fit`, the best of three.

The bar: at least 20 times less than either, with a relative error of at most 1e-6. `error` is the relative one of the
inverse temperature, ours against the root of the penalised derivative in float64 by SciPy, theirs against the root of
the plain one; `loss` is how far the mean loss is above its minimum, relative to it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_softmax, softmax

from fedassay.protocol.vocabulary import NO_NOISE, Batch, Released
from fedassay.tasks.calibration.multiclass import RIDGE, Fit, fit_exact

ROWS = 100_000
CLASSES = (10, 100)
BAR, ERROR = 20, 1e-6

PEERS = """
import sys, time, warnings
import numpy as np
import torch

torch.set_num_threads(1)
warnings.simplefilter("ignore")
data = np.load(sys.argv[1])
if sys.argv[2] == "netcal":
    from netcal.scaling import TemperatureScaling

    def fit():
        model = TemperatureScaling()
        model.fit(data_p, data_y)
        return float(np.ravel(model.temperature)[0])
else:
    from probmetrics.calibrators import TemperatureScalingCalibrator

    def fit():
        model = TemperatureScalingCalibrator()
        model.fit(data_p, data_y)
        return float(model.invtemp_)

data_p, data_y = data["p"], data["y"]
best = float("inf")
for _ in range(3):
    started = time.process_time()
    found = fit()
    best = min(best, time.process_time() - started)
np.savez(sys.argv[3], seconds=best, s=found)
"""

Rows = tuple[np.ndarray, np.ndarray]


def drawn(classes: int) -> Rows:
    """Logits that are 1.6 times too far from each other, with one class that stands out."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(ROWS, classes))
    z[np.arange(ROWS), rng.integers(0, classes, ROWS)] += 4.0
    p = softmax(z, axis=1)
    y = (p.cumsum(axis=1) > rng.random((ROWS, 1))).argmax(axis=1)
    return 1.6 * z, y.astype(np.int64)


class InMemory:
    """Rows of one client."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def batches(self) -> Iterator[Batch]:
        """See `protocol.Rows`."""
        yield {"logits": self.rows[0], "class": self.rows[1]}


def ours(rows: Rows) -> tuple[Fit, float]:
    """The fit, and the seconds that its client needed."""
    flow, client, answer = fit_exact("temperature", rows[0].shape[1]), 0.0, None
    while True:
        try:
            query = flow.send(answer)  # type: ignore[arg-type]
        except StopIteration as finished:
            return finished.value, client
        started = process_time()
        vector, _ = query.of.measure(InMemory(rows), {})
        client += process_time() - started
        answer = Released(value=query.of.read(vector), noise=NO_NOISE, clients=1)


def theirs(interpreter: str, name: str, rows: Rows) -> tuple[float, float] | None:
    """The inverse temperature and the seconds; None if the interpreter does not have this peer."""
    if subprocess.run([interpreter, "-c", f"import {name}"], capture_output=True).returncode:
        return None
    with tempfile.TemporaryDirectory() as folder:
        given, returned = Path(folder) / "rows.npz", Path(folder) / "found.npz"
        np.savez(given, p=softmax(rows[0], axis=1), y=rows[1])
        subprocess.run([interpreter, "-c", PEERS, given, name, returned], check=True, capture_output=True)
        with np.load(returned) as found:
            return float(found["s"]), float(found["seconds"])


def mean_loss(rows: Rows, s: float) -> float:
    return -float(log_softmax(s * rows[0], axis=1)[np.arange(len(rows[1])), rows[1]].mean())


def optimum(rows: Rows, ridge: float) -> float:
    """The root of the derivative, to the last digits."""
    z, true = rows[0], rows[0][np.arange(len(rows[1])), rows[1]]

    def slope(s: float) -> float:
        return float(np.mean(np.sum(softmax(s * z, axis=1) * z, axis=1) - true)) + ridge * (s - 1)

    return float(brentq(slope, 0.3, 1.5, xtol=1e-14, rtol=1e-14))


def show(classes: int, name: str, seconds: float, error: float, loss: float, note: str) -> None:
    print(
        f"{ROWS:>8,} x {classes:<4} {name:12} {1e3 * seconds:9.1f} ms   {error:8.1e}   {loss:8.1e}   {note}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--peers", metavar="PYTHON", default=sys.executable, help="an interpreter that has the peers"
    )
    options = parser.parse_args()
    print(f"{'rows':>15} {'':12} {'client time':>12}   {'error':>8}   {'loss':>8}")
    for classes in CLASSES:
        rows = drawn(classes)
        plain, penalised = optimum(rows, 0.0), optimum(rows, RIDGE)
        least = mean_loss(rows, plain)
        fits = [ours(rows) for _ in range(5)]
        found, seconds = fits[0][0], min(client for _, client in fits)
        s = float(found.map.theta[0])
        error = abs(s / penalised - 1)
        met = "" if error <= ERROR else f", above {ERROR:g}"
        show(classes, "fedassay", seconds, error, mean_loss(rows, s) / least - 1, f"{found.sums} sums{met}")
        for name in ("netcal", "probmetrics"):
            peer = theirs(options.peers, name, rows)
            if peer is None:
                print(f"{name} is skipped: {options.peers} does not have it; give --peers PYTHON.")
                continue
            t, took = peer
            ratio = f"{took / seconds:.0f}x" + ("" if took >= BAR * seconds else f", below {BAR}x")
            show(classes, name, took, abs(t / plain - 1), mean_loss(rows, t) / least - 1, ratio)


if __name__ == "__main__":
    main()
