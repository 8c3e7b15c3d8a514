"""What the planner predicts of the population stability index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from fedassay.estimation.evidence import Evidence
from fedassay.estimation.least_squares import least_squares
from fedassay.protocol.vocabulary import Sum
from fedassay.tasks.expectation import PlannedStudy
from fedassay.tasks.forecast import Forecast, Prediction
from fedassay_stability.index import stability_index
from fedassay_stability.task import Stability


@dataclass(frozen=True, kw_only=True)
class StabilityForecast(Forecast[Stability]):
    """Half the width of the interval where nothing has changed, for scores that are spread evenly over the bins."""

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType({"stability_index": 0.05})
    main: ClassVar[tuple[str, ...]] = ("stability_index",)
    expects: ClassVar[tuple[str, ...]] = ("prevalence",)

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Prediction]:
        """See `Forecast`. The share of rows in the current period is the expected prevalence, or a half."""
        histogram = self.task.histogram
        noise = study.setting.noise(Sum(of=histogram))
        share = study.expectation.prevalence or 0.5
        ones = np.ones(1 << self.task.height) / (1 << self.task.height)
        evidence = Evidence(
            edges=histogram.grid.edges,
            positives=share * study.rows * ones,
            negatives=(1 - share) * study.rows * ones,
            fit=least_squares(histogram.tree, histogram.multipliers, noise),
            noise=noise,
        )
        index, _ = stability_index(evidence, level=self.task.level)
        return dict.fromkeys(
            names, replace(Prediction.of(index), value=0.0)
        )  # counts as expected have no excess
