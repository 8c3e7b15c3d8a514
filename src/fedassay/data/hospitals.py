"""Forty simulated hospitals and a model that is good at ranking and bad at probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit


def hospitals(*, clients: int = 40, patients: int = 200_000, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Columns `hospital`, `risk` (the model's probability) and `outcome` (0 or 1).

    Hospitals differ in size (log-normal) and in prevalence (around a quarter). The true log-odds are known to
    the simulation; the model sees them with noise, and is overconfident and too high: its calibration slope
    is below 1 and its intercept below 0.

    Examples
    --------
    >>> data = hospitals(clients=3, patients=1000)
    >>> sorted(data), len(data["risk"]) == 1000
    (['hospital', 'outcome', 'risk'], True)
    """
    rng = np.random.default_rng(seed)
    weights = rng.lognormal(0.0, 0.7, clients)
    sizes = rng.multinomial(patients, weights / weights.sum())
    site = np.repeat(np.arange(clients), sizes)
    local_level = rng.normal(logit(0.2), 0.5, clients)
    severity = rng.normal(0.0, 1.5, patients)
    true_logit = local_level[site] + severity
    outcome = (rng.random(patients) < expit(true_logit)).astype(np.int8)
    seen = true_logit + rng.normal(0.0, 0.5, patients)
    risk = expit(0.5 + 1.4 * seen)
    return {
        "hospital": np.array([f"hospital-{i + 1:02d}" for i in range(clients)])[site],
        "risk": risk,
        "outcome": outcome,
    }
