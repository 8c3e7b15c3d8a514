"""Entry points about the distribution of a scalar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from fedassay.api.terms import EntryTerms, declared
from fedassay.data.federation import load
from fedassay.data.inventory import reread
from fedassay.data.partition import Partition
from fedassay.errors import UnsupportedQuery
from fedassay.protocol.parameters import made, parameter
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import Budget, Protection, TrustModel
from fedassay.study.simulation import Simulation
from fedassay.tasks.distribution.ecdf import Ecdf
from fedassay.tasks.distribution.parameters import (
    Mechanism,
    SearchSpacing,
    Smoothing,
    Spacing,
    check_range,
)
from fedassay.tasks.distribution.search import SearchQuantiles
from fedassay.trust.two_server.model import TwoServer

# --- number of values outside a range -----------------------------------------------------------------------


def count_outside(data: Any, column: str, *, lower: float, upper: float) -> tuple[int, int]:
    """Count the values below the lower or above the upper end, and all values. Read the column once.

    Examples
    --------
    >>> count_outside({"age": [-1, 30, 200, 80]}, "age", lower=0, upper=120)
    (2, 4)
    """
    outside = rows = 0
    for batch in load(data, columns={"value": column}).pooled().batches():
        values = batch["value"]
        outside += int(np.count_nonzero((values < lower) | (values > upper)))
        rows += len(values)
    return outside, rows


# --- entry points about the distribution of a scalar --------------------------------------------------------


def ecdf(
    data: Any,
    *,
    value: str,
    label: str | None = None,
    client: str | Partition | None = None,
    lower: float | None = None,
    upper: float | None = None,
    points: int = 1024,
    grid: Spacing | Sequence[float] = "uniform",
    quantiles: float | Sequence[float] = (),
    mechanism: Mechanism = "auto",
    smoothing: Smoothing = "isotonic",
    smoothed_points: int | None = None,
    public_labels: bool = False,
    precision: float | None = None,
    expected_rows: float | None = None,
    level: float = 0.95,
    privacy: TrustModel | str | None = None,
    budget: Budget | None = None,
    protection: Protection | None = None,
    simulation: Simulation | None = None,
) -> Result:
    """The distribution function of a scalar over many clients, with its band, and any quantile of it.

    Parameters
    ----------
    data, client, privacy, budget, protection : as in `evaluate`.
    value : the column of numbers; a missing or infinite one is an error.
    label : a column of 0 and 1: then positives and negatives are released together, with ROC curve and AUC.
    lower, upper : the range, which must be public. Values outside it are counted at its ends.
    grid : the spacing of the points, or the points themselves, in the place of range and number.
    points, mechanism, smoothing, smoothed_points, public_labels, precision, expected_rows, level : as in
        the task `Ecdf`.
    quantiles : to be listed in ``result["quantiles"]``. Others can be computed later, at no cost (`quantile_at`).

    Returns
    -------
    A `Result`: ``result["points"]``, ``result["values"]`` with the band ``result["lower"]``, ``result["upper"]``.

    Examples
    --------
    >>> import numpy as np, fedassay
    >>> rng = np.random.default_rng(0)
    >>> data = {"site": rng.integers(0, 5, 5000), "age": rng.normal(60, 12, 5000)}
    >>> result = fedassay.ecdf(data, client="site", value="age", lower=0, upper=128, quantiles=[0.5])
    >>> result["quantiles"][0]["value"]  # rounded up to a point
    60.0
    """
    given = {**declared(Ecdf, locals()), **_range(lower, upper, grid), "labelled": label is not None}
    task = made(Ecdf, given)
    terms = EntryTerms.of(privacy, budget, protection, simulation)
    columns = terms.roles(client, value=value, label=label)
    data = terms.rows(reread(data), columns)
    result = terms.simulate("ecdf", task, data, columns)
    return (
        result if isinstance(task.grid, tuple) else _with_outside(result, data, value, task.lower, task.upper)
    )


def quantiles(
    data: Any,
    *,
    value: str,
    quantiles: float | Sequence[float] = (0.5,),
    lower: float | None = None,
    upper: float | None = None,
    client: str | Partition | None = None,
    points: int = 4096,
    grid: SearchSpacing = "uniform",
    level: float = 0.95,
    privacy: TrustModel | str | None = None,
    budget: Budget | None = None,
    protection: Protection | None = None,
    simulation: Simulation | None = None,
) -> Result:
    """Quantiles of a scalar by search: single points of a distribution function that nobody sees as a whole.

    Only servers that keep what clients have sent can answer: `TwoServer`, the default here. Clients are asked once,
    and their rows are checked at every point, which takes long for many points. `ecdf` gives quantiles under every
    trust model. The parameters are those of `ecdf`.
    """
    arguments = declared(SearchQuantiles, locals())
    terms = EntryTerms.of(TwoServer() if privacy is None else privacy, budget, protection, simulation)
    if not terms.trust.helpers_needed:
        raise UnsupportedQuery(
            f"quantiles: {terms.trust.name} keeps nothing of what clients send, so that points cannot be searched; use "
            '`privacy="two-server"`, or ecdf, which lists quantiles under every trust model.'
        )
    task = made(SearchQuantiles, {**arguments, **_range(lower, upper, grid)})
    columns = terms.roles(client, value=value)
    data = terms.rows(reread(data), columns)
    result = terms.simulate("quantiles", task, data, columns)
    return _with_outside(result, data, value, task.lower, task.upper)


def _range(lower: float | None, upper: float | None, grid: object) -> dict[str, float]:
    """Return the range of a distribution: as stated, or that of the points."""
    check_range({"lower": lower, "upper": upper, "grid": grid})
    if isinstance(grid, str):
        return {"lower": cast(float, lower), "upper": cast(float, upper)}
    points = parameter(Ecdf, "grid").check(grid)
    return {"lower": min(points), "upper": max(points)} if points else {}


def _with_outside(result: Result, data: Any, value: str, lower: float, upper: float) -> Result:
    """Add a warning about values outside the range, if there are any. Sites would not reveal their number."""
    outside, rows = count_outside(data, value, lower=lower, upper=upper)
    if outside == 0:
        return result
    lie = "value lies outside the range and is" if outside == 1 else "values lie outside the range and are"
    warning = (
        f"{outside:,} of {rows:,} {lie} counted at its ends, {lower:g} and {upper:g}. Only a simulation can say so: in "
        "a release no site tells."
    )
    return replace(result, warnings=(*result.warnings, warning))
