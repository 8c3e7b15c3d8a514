"""Methods of calibration by name, and the choice among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
from scipy.optimize import isotonic_regression

from fedassay.errors import UsageError
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.metric import Undefined
from fedassay.estimation.ratios import CLEAR
from fedassay.estimation.recalibration import Logistic, require_overlap
from fedassay.protocol.arrays import Floats, Ints
from fedassay.summaries.maps import InterpolatedMap, Sigmoid, Steps
from fedassay.tasks.calibration.bbq import bbq
from fedassay.tasks.calibration.binning import Binning, Fitted, binning_of, finest_number, supported_scores
from fedassay.tasks.calibration.parameters import CalibrationMethod

# --- histogram binning --------------------------------------------------------------------------------------


def histogram_binning(evidence: Evidence, *, bins: int | None = None) -> Fitted:
    """Fit the step function of bucket fractions.

    By default B = M^{1/3} for M rows, which balances the two errors of a bucket, the slope within it and the
    sampling error (Cormode and Markov 2023, Theorem 7). Under noise B is at most the number at which noise
    equals sampling error, and counts are replaced by their posterior means (`posterior_counts`), after
    summing over the bucket.

    Edge cases: without noise a bucket with only one class has the value 0 or 1, as published.
    """
    evidence.require_classes()
    if bins is not None and bins < 1:
        raise UsageError(f"bins: got {bins}, expected at least 1.")
    if bins is None:
        bins = finest_number(evidence, max(1, round(evidence.rows ** (1 / 3))))
    return _fitted_bins(binning_of(evidence, bins))


def _fitted_bins(binning: Binning) -> Fitted:
    m, n = binning.counts
    edges = binning.evidence.edges[binning.edges[1:-1]]
    return Fitted(
        method="histogram",
        map=Steps.merged(edges, m / (m + n)),
        parameters={"buckets": binning.number},
        optimism=float(np.sum(binning.dispersions)),
    )


# --- isotonic regression ------------------------------------------------------------------------------------


def isotonic(evidence: Evidence) -> Fitted:
    """Pool adjacent violators over the leaves, with straight lines between them as in scikit-learn.

    Without noise it equals scikit-learn's ``IsotonicRegression(out_of_bounds="clip")`` on the binned scores;
    its first and last block may have the value 0 or 1. Under noise, leaves are first merged into the number of
    buckets that the noise allows, and each pooled block uses the posterior means of its counts: blocks are
    large, so noise that looks like structure is averaged away.
    """
    evidence.require_classes()
    return _exact(evidence) if evidence.exact else _noisy(evidence)


def _exact(evidence: Evidence) -> Fitted:
    used = np.flatnonzero(evidence.counts)
    values, blocks = _pool(evidence.positives[used] / evidence.counts[used], evidence.counts[used])
    return _fitted(evidence.scores[used], values, blocks, optimism=float(len(blocks) - 1))


def _noisy(evidence: Evidence) -> Fitted:
    binning = binning_of(evidence, finest_number(evidence, evidence.leaves))
    rows = np.maximum(binning.positives + binning.negatives, 1.0)
    _, blocks = _pool(binning.positives / rows, rows)
    pooled = Binning(evidence=evidence, edges=binning.edges[blocks])
    m, n = pooled.counts
    # The posterior means of the counts of blocks are not always ordered like the counts: pool once more.
    ordered, _ = _pool(m / (m + n), m + n)
    values = np.repeat(ordered, np.diff(blocks))
    return _fitted(binning.centres, values, blocks, optimism=float(np.sum(pooled.dispersions)))


def _pool(values: Floats, weights: Floats) -> tuple[Floats, Ints]:
    """Return the nearest non-decreasing values, and the start of each block of equal values (and the end)."""
    pooled = isotonic_regression(values, weights=weights)
    return np.asarray(pooled.x), np.asarray(pooled.blocks, dtype=np.int64)


def _fitted(x: Floats, y: Floats, blocks: Ints, *, optimism: float) -> Fitted:
    """Join the last point of a block and the first of the next by lines; points between are redundant."""
    ends = np.unique(np.concatenate([blocks[:-1], blocks[1:] - 1]))
    x, y = x[ends], y[ends]
    distinct = np.concatenate([[True], np.diff(x) > 0])
    return Fitted(
        method="isotonic",
        map=InterpolatedMap(scores=tuple(x[distinct].tolist()), values=tuple(y[distinct].tolist())),
        parameters={"blocks": len(blocks) - 1},
        optimism=optimism,
    )


# --- platt scaling of the logit -----------------------------------------------------------------------------


def platt(evidence: Evidence) -> Fitted:
    """Regress the label on logit(s): logit P(y=1) = c + a·logit(s).

    Logistic regression by maximum likelihood without penalty, equal to scikit-learn's
    ``LogisticRegression(C=inf)`` on the binned scores. Platt (1999) scales the output of a support vector
    machine, and smooths the labels; for a probability the logit is that output, and from a thousand rows on
    smoothing is not visible.
    """
    s = _usable_scores(evidence)
    fit = _fit(evidence, np.log(s) - np.log1p(-s), identity=(1.0,))
    c, a = (float(one) for one in fit.coefficients)
    return Fitted(
        method="platt",
        map=Sigmoid(a=a, b=a, c=c),
        parameters={"intercept": c, "slope": a},
        optimism=fit.optimism,
    )


def beta(evidence: Evidence) -> Fitted:
    """Fit a logistic regression on ln s and -ln(1 - s) (Kull, Silva Filho and Flach 2017, Section 3).

    logit P(y=1) = c + a ln s - b ln(1 - s). A negative a is set to 0 and the rest fitted again; otherwise a
    negative b. So the map never falls, unless the scores rank the wrong way round.
    """
    s = _usable_scores(evidence)
    rising, falling = np.log(s), -np.log1p(-s)
    fit = _fit(evidence, rising, falling, identity=(1.0, 1.0))
    c, a, b = fit.coefficients
    if a < 0:
        fit = _fit(evidence, falling, identity=(1.0,))
        (c, b), a = fit.coefficients, 0.0
    elif b < 0:
        fit = _fit(evidence, rising, identity=(1.0,))
        (c, a), b = fit.coefficients, 0.0
    return Fitted(
        method="beta",
        map=Sigmoid(a=float(a), b=float(b), c=float(c)),
        parameters={"a": float(a), "b": float(b), "c": float(c)},
        optimism=fit.optimism,
    )


def _usable_scores(evidence: Evidence) -> Floats:
    evidence.require_classes()
    require_overlap(evidence)
    return supported_scores(evidence)


def _fit(evidence: Evidence, *features: Floats, identity: tuple[float, ...]) -> Logistic:
    """Fit the regression with an intercept, if noise is small both where it ends and at the `identity` map.

    Noise can make a fit flat or steep, where it looks precise; the identity is where a usable model would be.
    """
    design = np.stack([np.ones_like(features[0]), *features])
    if not evidence.exact:
        shift = Logistic.fit(evidence, design[:1], np.asarray(identity) @ design[1:])
        start = np.concatenate([shift.coefficients, identity])
        Logistic(evidence=evidence, design=design, coefficients=start).require_little_noise()
    return Logistic.fit(evidence, design).require_little_noise()


# --- the methods by name ------------------------------------------------------------------------------------

AUTO = "auto"

_Fit = Callable[[Evidence], Fitted]

FITS: Mapping[str, _Fit] = MappingProxyType(
    {"histogram": histogram_binning, "bbq": bbq, "isotonic": isotonic, "platt": platt, "beta": beta}
)
METHODS = get_args(CalibrationMethod)

_SIMPLEST_FIRST = ("platt", "beta", "isotonic", "histogram", "bbq")


@dataclass(frozen=True, kw_only=True)
class ChosenCalibrator:
    """Fitted calibrator, or the reason why there is none; for `auto`, also the candidates compared."""

    fitted: Fitted | None
    reason: str | None = None
    candidates: tuple[Mapping[str, Any], ...] = ()


def fit(evidence: Evidence, method: str, *, bins: int | None = None) -> ChosenCalibrator:
    """Fit one method, or with `auto` all of them and keep the best.

    The best has the smallest expected log loss on new rows: the log loss of the rows it was
    fitted to plus its `optimism`. Under noise a simpler method is left only for a gain that noise does not
    explain. Held-out rows are not used.
    """
    if method != AUTO:
        return _one(evidence, method, bins=bins)
    candidates: list[dict[str, Any]] = []
    best: _Contender | None = None
    for name in _SIMPLEST_FIRST:
        choice = _one(evidence, name, bins=bins)
        contender, reason = None, choice.reason
        if choice.fitted is not None:
            logs = choice.fitted.log_probabilities(evidence)
            if logs is None:
                reason = "it gives some rows the probability 0 or 1, which one new row can contradict"
            else:
                contender = _Contender(fitted=choice.fitted, evidence=evidence, log_probabilities=logs)
        loss = None if contender is None else contender.expected_loss
        candidates.append(
            {"method": name, "expected_log_loss": loss, **({"reason": reason} if reason else {})}
        )
        if contender is not None and (best is None or contender.beats(best)):
            best = contender
    if best is None:
        return ChosenCalibrator(fitted=None, reason=candidates[0]["reason"], candidates=tuple(candidates))
    return ChosenCalibrator(fitted=best.fitted, candidates=tuple(candidates))


def _one(evidence: Evidence, method: str, *, bins: int | None) -> ChosenCalibrator:
    try:
        fitted = histogram_binning(evidence, bins=bins) if method == "histogram" else FITS[method](evidence)
    except Undefined as error:
        return ChosenCalibrator(fitted=None, reason=str(error))
    return ChosenCalibrator(fitted=fitted)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Contender:
    """Fitted method with its expected log loss on new rows: that of its own rows plus its optimism."""

    fitted: Fitted
    evidence: Evidence
    log_probabilities: tuple[Floats, Floats]

    @property
    def expected_loss(self) -> float:
        return (self.fitted.optimism - self.evidence.total(*self.log_probabilities)) / self.evidence.rows

    def beats(self, simpler: _Contender) -> bool:
        """Return whether it is better than a simpler method, by more than privacy noise explains."""
        gaps = (
            ours - theirs
            for ours, theirs in zip(self.log_probabilities, simpler.log_probabilities, strict=True)
        )
        noise = math.sqrt(self.evidence.privacy_variance(*gaps)) / self.evidence.rows
        return simpler.expected_loss - self.expected_loss > CLEAR * noise
