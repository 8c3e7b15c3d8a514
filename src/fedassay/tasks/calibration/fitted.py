"""What fitting a calibrator gives, whatever the method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedassay.estimation.evidence import Evidence, Floats
from fedassay.summaries.maps import EPSILON, Map
from fedassay.tasks.calibration.binning import supported_scores


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A map with the name of its method and the numbers that describe it.

    `optimism` is by how much the log-likelihood of the rows it was fitted to is expected to exceed that of as
    many new rows: the number of fitted parameters, each counted as often as noise adds to its variance
    (Akaike 1973; Takeuchi 1976 for models that are only approximately true).
    """

    method: str
    map: Map
    parameters: Mapping[str, Any]
    optimism: float = field(repr=False)

    def log_probabilities(self, evidence: Evidence) -> tuple[Floats, Floats] | None:
        """The logarithms of c and 1 - c per leaf; None if the map says 0 or 1 to rows: some row will contradict it."""
        calibrated = self.map(supported_scores(evidence))
        claimed = calibrated[evidence.counts != 0]
        if claimed.min() <= 0 or claimed.max() >= 1:
            return None
        calibrated = np.clip(calibrated, EPSILON, 1 - EPSILON)
        return np.log(calibrated), np.log1p(-calibrated)
