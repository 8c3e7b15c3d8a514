"""Platt scaling of the logit, and beta calibration: logistic regressions on logarithms of the score."""

from __future__ import annotations

import numpy as np

from fedassay.estimation.evidence import Evidence, Floats
from fedassay.summaries.maps import Sigmoid
from fedassay.tasks.calibration.binning import supported_scores
from fedassay.tasks.calibration.fitted import Fitted
from fedassay.tasks.calibration.logistic import Logistic, require_overlap


def platt(evidence: Evidence) -> Fitted:
    """Logistic regression of the label on logit(s): logit P(y=1) = c + a·logit(s).

    Maximum likelihood without penalty, equal to scikit-learn's ``LogisticRegression(C=inf)`` on the binned
    scores. Platt (1999) scales the output of a support vector machine, and smooths the labels; for a
    probability the logit is that output, and from a thousand rows on smoothing is not visible.
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
    """Logistic regression on ln s and -ln(1 - s) (Kull, Silva Filho and Flach 2017, Section 3).

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
    """The regression with an intercept, if noise is small, both where it ends and at the `identity` map.

    Noise can make a fit flat or steep, where it looks precise; the identity is where a usable model would be.
    """
    design = np.stack([np.ones_like(features[0]), *features])
    if not evidence.exact:
        shift = Logistic.fit(evidence, design[:1], np.asarray(identity) @ design[1:])
        start = np.concatenate([shift.coefficients, identity])
        Logistic(
            evidence=evidence, design=design, offset=np.zeros_like(features[0]), coefficients=start
        ).require_little_noise()
    return Logistic.fit(evidence, design).require_little_noise()
