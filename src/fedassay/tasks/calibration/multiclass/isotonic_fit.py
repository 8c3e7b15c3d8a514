"""Isotonic calibration of each class, shrunk to the temperature where rows are few: all from one round.

The same round collects the histograms of every class's probability, on logit-spaced bins, and the curves that give the
pooled temperature. For each class the share of positives is made non-decreasing in its probability (pool adjacent
violators); a class with n_j rows has weight n_j/(n_j + 50), and the temperature has the rest. Only pooled
sums enter: the distribution of rows over clients has no influence.

Why not a binning with equal widths: most probabilities of a sharp model are next to 0 and 1, where such bins have no
resolution; of all that was compared (docs/experiments/multiclass.md), the spacing of the bins mattered most.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from fedassay.errors import UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Part, Released, Setting, Step, Sum
from fedassay.summaries.multiclass.binned_map import Isotonic
from fedassay.summaries.multiclass.histograms import ClassHistograms
from fedassay.summaries.multiclass.loss_curves import Curves, LossCurves
from fedassay.summaries.multiclass.scaling_maps import Temperature
from fedassay.summaries.score_histogram import LabelledHistogram
from fedassay.tasks.calibration.multiclass.exact import Fit
from fedassay.tasks.calibration.multiclass.one_shot import EXACT_GRID, exact_fit

HEIGHT, REACH = 8, 16.0
"""Height and reach: 256 bins of logits within ±16; fewer for many classes."""

MOST_NUMBERS = 1 << 17

PRIOR_ROWS = 50.0
"""Number of rows with which a class has weight one half."""

FEWEST_ROWS = 1000
"""Number of rows in all below which the temperature alone was at least as good."""


def fit_isotonic(
    classes: int, setting: Setting, *, part: Part = Part.FIT
) -> Generator[Step, tuple[Released[Any], Released[Any]], Fit]:
    """Fit the map, from one round over all clients. Tasks `yield from` it.

    Guarantee: it depends on the pooled rows only. With fewer than 1,000 of them, or none, every weight is zero and the
    map is the pooled temperature.

    Raises `UsageError` under noise: histograms of every class and curves without bounds carry none.
    """
    if setting.trust.private:
        raise UsageError(
            "method: got isotonic under differential privacy, expected temperature, or a binning (bbq, histogram): it "
            "needs exact sums."
        )
    height = min(HEIGHT, (MOST_NUMBERS // (2 * classes)).bit_length() - 1)
    histograms = ClassHistograms(classes=classes, height=height, transform="logit", reach=REACH)
    curves, counts = yield (
        Sum(of=LossCurves(classes=classes, grid=EXACT_GRID), share=0.5, part=part),
        Sum(of=histograms, share=0.5, part=part),
    )
    return isotonic_of(curves, counts.value, classes)


def isotonic_of(curves: Released[Curves], histograms: Sequence[LabelledHistogram], classes: int) -> Fit:
    """Return the map that these exact totals give."""
    scaled = exact_fit(curves, classes)
    assert isinstance(scaled.map, Temperature)
    rows = scaled.rows or 0
    positives = np.array([one.positives.sum() for one in histograms], dtype=np.float64)
    weights = positives / (positives + PRIOR_ROWS) if rows >= FEWEST_ROWS else np.zeros(classes)
    values = [_rising(one) for one in histograms]
    return Fit(
        map=Isotonic(
            inverse_temperature=scaled.map.inverse_temperature,
            values=tuple(tuple(one.tolist()) for one in values),
            weights=tuple(weights.tolist()),
            reach=REACH,
        ),
        rows=rows,
        clients=curves.clients,
        sums=1,
        reason=scaled.reason,
    )


def _rising(histogram: LabelledHistogram) -> Floats:
    """Fit non-decreasing shares of positives, weighted by rows; empty bins copy the bin below."""
    positives = histogram.positives.astype(np.float64)
    rows = positives + histogram.negatives
    seen = np.flatnonzero(rows > 0)
    if not seen.size:
        return np.zeros(len(rows))
    fitted = isotonic_regression(positives[seen] / rows[seen], weights=rows[seen]).x
    # Below the first bin with rows: as in it.
    below = np.maximum(np.searchsorted(seen, np.arange(len(rows)), side="right") - 1, 0)
    return np.asarray(np.clip(fitted, 0.0, 1.0)[below])
