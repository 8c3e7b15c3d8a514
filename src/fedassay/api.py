"""The Python entry points: one function per task, from data to a `Result`.

>>> import numpy as np, fedassay
>>> rng = np.random.default_rng(0)
>>> score = rng.random(3000)
>>> data = {"site": rng.integers(0, 5, 3000), "p": score, "y": rng.random(3000) < score}
>>> result = fedassay.evaluate(data, client="site", score="p", label="y")
>>> low, high = result["roc_auc"]["interval"]
>>> bool(low < 5 / 6 < high)  # the true AUC of this model
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedassay.protocol import Budget, Protection, TrustModel
from fedassay.result import Result
from fedassay.simulation import Simulation, simulate
from fedassay.tasks.evaluation import Evaluate
from fedassay.trust.secure_sum import SecureSum


def evaluate(
    data: Any,
    *,
    score: str,
    label: str,
    client: str | None = None,
    trust: TrustModel | None = None,
    budget: Budget | None = None,
    protection: Protection | None = None,
    thresholds: Sequence[float] = (0.5,),
    height: int | None = None,
    buckets: int = 10,
    transform: str = "auto",
    level: float = 0.95,
    simulation: Simulation | None = None,
) -> Result:
    """Every standard metric of a binary classifier over many clients, with intervals, from one release.

    Parameters
    ----------
    data : arrays or a data frame, a `.parquet`, `.csv` or `.npz` file, or a folder with one file per site.
    score, label, client : the names of the columns. Scores are probabilities in [0, 1], labels are 0 or 1.
        Without `client`, every row is its own client (every file of a folder, for a folder).
    trust : how sums become known; a secure sum by default.
    budget : epsilon and delta, for the trust models that add noise.
    protection : the protected unit and its neighbours; one example, added or removed, by default.
    thresholds : become edges of the histogram, so that metrics at them are exact. Others can be asked later.

    Returns
    -------
    A `Result`; ``result["roc_auc"]`` is ``{"value", "interval", "level", "error"}``.
    """
    task = Evaluate(
        thresholds=tuple(thresholds), height=height, buckets=buckets, transform=transform, level=level
    )
    parameters = {
        "client": client,
        "score": score,
        "label": label,
        "thresholds": list(task.thresholds),
        "height": height,
        "buckets": buckets,
        "transform": transform,
        "level": level,
    }
    return simulate(
        "evaluate",
        task,
        data,
        columns={"score": score, "label": label},
        client=client,
        trust=trust if trust is not None else SecureSum(),
        budget=budget,
        protection=protection if protection is not None else Protection(),
        parameters=parameters,
        simulation=simulation if simulation is not None else Simulation(),
    )
