"""The estimator: the population stability index without the bias of sampling and privacy noise."""

from __future__ import annotations

import numpy as np

from fedassay.estimation.evidence import Evidence
from fedassay.estimation.intervals import Estimate, unbounded
from fedassay.estimation.metric import Metric, Undefined, undefined
from fedassay.protocol.arrays import Floats

ENOUGH_ROWS = 5.0
"""Fewest rows of each period in a bin."""

ENOUGH_DEVIATIONS = 5.0
"""Fewest standard deviations of its noise that a count must have."""


def stability_index(evidence: Evidence, *, level: float) -> tuple[Metric, list[dict[str, float]]]:
    """The index of the positives against the negatives, and the merged bins with the shares of both.

    Undefined where fewer than two bins hold enough rows of both periods.
    """
    try:
        current, base = evidence.require_classes()
        members = merged(evidence)
    except Undefined as problem:
        return undefined(str(problem), level=level), []
    p, q = members @ evidence.positives / current, members @ evidence.negatives / base
    edges = [float(evidence.edges[int(np.argmax(row))]) for row in members] + [float(evidence.edges[-1])]
    bins = [
        {"lower": low, "upper": high, "current": float(a), "base": float(b)}
        for low, high, a, b in zip(edges[:-1], edges[1:], p, q, strict=True)
    ]
    gradient, curvature = _derivatives(p, q)
    sampling = _block((np.diag(p) - np.outer(p, p)) / current, (np.diag(q) - np.outer(q, q)) / base)
    nothing = np.zeros_like(members)
    noise = (
        np.zeros_like(sampling)
        if evidence.exact
        else evidence.noise_covariance(
            np.concatenate([(members - p[:, None]) / current, nothing]),
            np.concatenate([nothing, (members - q[:, None]) / base]),
        )
    )
    excess = np.trace(curvature @ (sampling + noise)) / 2
    both, alone = (_variance(gradient, curvature, covariance) for covariance in (sampling + noise, sampling))
    estimate = Estimate(
        value=float(np.sum((p - q) * np.log(p / q)) - excess),
        sampling_variance=alone,
        privacy_variance=both - alone,
    )
    return unbounded(estimate, level=level), bins


def merged(evidence: Evidence) -> Floats:
    """Bins as rows of ones over their leaves: neighbours are joined until each has enough rows of both periods."""
    rows: list[Floats] = []
    begun = np.zeros(evidence.leaves)
    for leaf in range(evidence.leaves):
        begun[leaf] = 1.0
        if _is_enough(evidence, begun):
            rows.append(begun)
            begun = np.zeros(evidence.leaves)
    if rows:
        rows[-1] = rows[-1] + begun
    if len(rows) < 2:
        raise Undefined("not enough evidence: fewer than two bins hold enough rows of both periods")
    return np.stack(rows)


def _is_enough(evidence: Evidence, members: Floats) -> bool:
    nothing = np.zeros_like(members)
    for counts, by in ((evidence.positives, (members, nothing)), (evidence.negatives, (nothing, members))):
        deviation = 0.0 if evidence.exact else evidence.privacy_variance(*by) ** 0.5
        if float(members @ counts) < max(ENOUGH_ROWS, ENOUGH_DEVIATIONS * deviation):
            return False
    return True


def _derivatives(p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Gradient and second derivative of the index by (p, q)."""
    ratio = np.log(p / q)
    gradient = np.concatenate([ratio + 1 - q / p, -ratio + 1 - p / q])
    across = np.diag(-1 / p - 1 / q)
    curvature = np.block([[np.diag(1 / p + q / p**2), across], [across, np.diag(1 / q + p / q**2)]])
    return gradient, curvature


def _variance(gradient: Floats, curvature: Floats, covariance: Floats) -> float:
    """Of a quadratic function of normal errors with this covariance, from an estimated gradient.

    With the true gradient g it is g'Sg + tr(HSHS)/2. The error of an estimated gradient adds tr(HSHS) to the first term
    on average: that covers the second one.
    """
    turned = curvature @ covariance
    return max(float(gradient @ covariance @ gradient), float(np.trace(turned @ turned)) / 2)


def _block(first: Floats, second: Floats) -> Floats:
    nothing = np.zeros_like(first)
    return np.block([[first, nothing], [nothing, second]])
