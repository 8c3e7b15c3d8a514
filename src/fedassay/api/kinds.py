"""The entry point for kinds of tasks that have none of their own: those of other packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedassay.api.terms import Terms
from fedassay.data.partition import Partition
from fedassay.protocol import Budget, Protection, TrustModel
from fedassay.result import Result
from fedassay.simulation import Simulation
from fedassay.tasks.card import KINDS
from fedassay.tasks.catalogue import task_of


def run_task(
    kind: str,
    data: Any,
    *,
    columns: Mapping[str, str],
    client: str | Partition | None = None,
    privacy: TrustModel | str | None = None,
    budget: Budget | None = None,
    protection: Protection | None = None,
    simulation: Simulation | None = None,
    **parameters: Any,
) -> Result:
    """Run any kind of task that is installed over the rows of simulated clients.

    Parameters
    ----------
    kind : its name, such as ``"evaluate"`` or that of a kind from another package.
    columns : role to column, such as ``{"score": "p", "label": "y"}``.
    data, client, privacy, budget, protection, simulation : as in `evaluate`.
    parameters : of the task, by their names; unknown ones are refused.

    Examples
    --------
    >>> import numpy as np
    >>> score = np.linspace(0.05, 0.95, 400)
    >>> data = {"p": score, "y": (np.arange(400) % 10 < 10 * score).astype(int), "site": np.arange(400) % 4}
    >>> result = run_task("evaluate", data, columns={"score": "p", "label": "y"}, client="site", thresholds=[0.3])
    >>> result["thresholds"][0]["threshold"]
    0.3
    """
    terms = Terms.of(privacy, budget, protection, simulation)
    card = KINDS.named(kind)
    roles = terms.roles(client, **columns)
    return terms.simulate(card.name, task_of(card.name, parameters), terms.rows(data, roles), roles)
