"""What held-out rows will say about a calibrator of logits: how small an improvement can be seen, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedassay.estimation.metric import LEVEL
from fedassay.planning.rehearsed_classes import ClassStudy, Cost, cost_of
from fedassay.planning.typical_classes import held_out_total
from fedassay.protocol import Noise, Query, Released
from fedassay.summaries.multiclass.maps import LOGIT_MAPS
from fedassay.summaries.multiclass.scaling_maps import Temperature
from fedassay.tasks.calibration.multiclass.judged import Judging


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What held-out rows will say about the best temperature, if the model is as assumed.

    Parameters
    ----------
    log_loss, brier_score : their changes, with errors and intervals, as a result would have them.
    accuracy : the change of the accuracy, of a map that can change the order of classes; its interval must exclude a
        fall of 1 %.
    recommended, reason : the verdict.
    releases : how many there will be: 3 if metrics before and after can be seen too, else 1.
    """

    log_loss: Mapping[str, Any]
    brier_score: Mapping[str, Any]
    accuracy: Mapping[str, Any]
    recommended: bool
    reason: str
    noise: Noise
    releases: int
    cost: Cost

    @property
    def visible(self) -> float:
        """The smallest improvement of the log loss that will be seen: half the interval. Infinite if none will be."""
        return half_width(self.log_loss)


def judgement(study: ClassStudy, *, level: float = LEVEL) -> Judgement:
    """Of the best temperature, on so many held-out rows of a typical model."""
    expectation = study.expectation
    s, c = 1 / expectation.temperature, expectation.classes
    scaled = Judging(map=Temperature(inverse_temperature=s, classes=c), level=level)
    # The same map, but one of which nobody knows that it keeps the order.
    other = Judging(map=LOGIT_MAPS["vector"].of(np.array([s] * c + [0.0] * c), c), level=level)
    queries = scaled.queries(study.setting)
    results = scaled.results((_released(queries[0], study),))
    changed = other.results((_released(other.queries(study.setting)[0], study),))["difference"]
    return Judgement(
        log_loss=results["difference"]["log_loss"],
        brier_score=results["difference"]["brier_score"],
        accuracy=changed["accuracy"],
        recommended=results["recommended"],
        reason=results["reason"],
        noise=study.setting.noise(queries[0]),
        releases=len(queries),
        cost=cost_of(queries, study, times=1),
    )


def half_width(metric: Mapping[str, Any]) -> float:
    """Half the interval of a metric in a result; infinite where it has none."""
    ends = metric["interval"]
    return math.inf if ends is None else (ends[1] - ends[0]) / 2


def _released(query: Query[Any], study: ClassStudy) -> Released[Any]:
    total = held_out_total(study.expectation.model, query.of, study.held_out_rows)
    noise = study.setting.noise(query)
    return Released(value=query.of.read(total), noise=noise, clients=study.setting.clients)
