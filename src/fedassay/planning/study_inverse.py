"""What would be enough for one target of a study: an epsilon, rows at the planned clients, or clients like them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fedassay.planning.inverse import Answer, fewest_clients, fewest_rows_there, smallest_epsilon
from fedassay.planning.study_expectation import PlannedStudy
from fedassay.planning.study_forecast import Forecast


@dataclass(frozen=True, kw_only=True)
class StudyInverse:
    """What would be enough for one target, each alone and all else as planned, shares too.

    Parameters
    ----------
    epsilon : of the whole study.
    rows : in all, at the planned clients.
    clients : of the planned size.
    """

    task: str
    metric: str
    target: float
    epsilon: Answer
    rows: Answer
    clients: Answer

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        answers = {name: getattr(self, name).to_dict() for name in ("epsilon", "rows", "clients")}
        return {"metric": f"{self.task}.{self.metric}", "target": self.target, **answers}


def inverse_of(forecast: Forecast[Any], study: PlannedStudy, name: str, target: float) -> StudyInverse:
    """Answered by predictions for other epsilons, rows and clients; `study` has the share of this task."""

    def width(other: PlannedStudy) -> float:
        found = forecast.at(other, (name,))
        return found[name].width if name in found else math.inf

    def beside_noise(other: PlannedStudy) -> str:
        rest = width(other)
        return "there is no value even then" if math.isinf(rest) else f"with the largest one it is {rest:.2g}"

    clients, rows_each = forecast.most_tried(study)
    return StudyInverse(
        task=forecast.name,
        metric=name,
        target=target,
        epsilon=smallest_epsilon(study, width, target, beside_noise),
        rows=fewest_rows_there(study, width, target, most=rows_each),
        clients=fewest_clients(study, width, target, most=clients),
    )
