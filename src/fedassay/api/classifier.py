"""Entry points about the scores of a binary classifier, and the logits of a multiclass model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedassay.api.classes import calibrate_classes, evaluate_classes
from fedassay.api.terms import Terms, parameters_of
from fedassay.data.groups import client_names, group_names, reread
from fedassay.data.partition import Partition
from fedassay.errors import ParameterError, UsageError
from fedassay.parameters import made
from fedassay.protocol import Budget, Protection, TrustModel
from fedassay.result import Result
from fedassay.run import rehearse
from fedassay.simulation import Simulation
from fedassay.tasks.calibration import Calibrate
from fedassay.tasks.calibration.multiclass.calibrate import CalibrateMulticlass
from fedassay.tasks.calibration.parameters import (
    Averaging,
    ClassMethod,
    Clipping,
    Method,
    Solver,
    Weighting,
)
from fedassay.tasks.distribution.hosmer_lemeshow import HosmerLemeshow
from fedassay.tasks.distribution.parameters import Degrees
from fedassay.tasks.distribution.parameters import Method as Test
from fedassay.tasks.evaluation import Evaluate, with_site_names
from fedassay.tasks.evaluation.multiclass import EvaluateMulticlass
from fedassay.tasks.shared_parameters import HOLDOUT, Transform


def evaluate(
    data: Any,
    *,
    label: str,
    score: str | None = None,
    logits: str | None = None,
    client: str | Partition | None = None,
    privacy: TrustModel | str | None = None,
    budget: Budget | None = None,
    protection: Protection | None = None,
    thresholds: float | Sequence[float] = (0.5,),
    height: int | None = None,
    buckets: int | None = None,
    transform: Transform = "auto",
    level: float = 0.95,
    by: str | None = None,
    groups: str | Sequence[str] = (),
    versus: str | None = None,
    per_site: bool = False,
    simulation: Simulation | None = None,
) -> Result:
    """Every standard metric of a classifier over many clients, with intervals, from one release.

    Parameters
    ----------
    data : arrays or a data frame, a `.parquet`, `.csv` or `.npz` file, or a folder with one file per site.
    score, label, client : the names of the columns. Scores are probabilities in [0, 1], labels are 0 or 1.
        Without `client`, every row is its own client (every file of a folder, for a folder). A
        `Partition` in its place deals the rows to simulated clients.
    logits : for a model with several classes, in the place of `score`: the column with the logits of each row, or what
        the names of numbered columns begin with. Labels then are whole numbers from 0. `height`, `buckets` (15 by
        default) and `level` go with it, other options do not.
    privacy : how sums become known: a trust model or its name; a secure sum by default.
    budget : epsilon and delta, for the trust models that add noise.
    protection : the protected unit and its neighbours; one example, added or removed, by default.
    thresholds : become edges of the histogram, so that metrics at them are exact. Others can be asked later.
    by : a column that divides the rows into groups, each with its metrics in ``result["groups"]``.
    groups : the names of the groups; rows with other values form the group ``other``. By default those that
        occur, which only a simulation may look up: in a release the names must be declared.
    versus : the column of a second model's scores, for ``result["versus"]`` and the paired
        ``result["difference"]`` (first minus second) of AUC and Brier score.
    per_site : whether to compare the clients: ``result["heterogeneity"]`` and, where single clients may be seen,
        ``result["sites"]``.

    Returns
    -------
    A `Result`; ``result["roc_auc"]`` is ``{"value", "interval", "level", "error"}``.
    """
    given: dict[str, Any] = {
        "thresholds": thresholds,
        "height": height,
        "transform": transform,
        "level": level,
        "groups": groups,
        "per_site": per_site,
        **({} if buckets is None else {"buckets": buckets}),
    }
    terms = Terms.of(privacy, budget, protection, simulation)
    if logits is not None:
        _refuse_with_logits(score=score, by=by, versus=versus)
        given = parameters_of(EvaluateMulticlass, Evaluate, given, instead=_WITH_LOGITS)
        classes = made(EvaluateMulticlass, given)
        roles = terms.roles(client, **{"class": label, "logits": logits})
        return evaluate_classes(classes, terms, terms.rows(data, roles), roles)
    if score is None:
        raise UsageError(_NEITHER)
    if by is None and groups:
        raise ParameterError(
            "groups", "got names without a column, expected both; give `by` with the column."
        )
    if versus is not None and versus == score:
        raise ParameterError(
            "versus",
            f"got {versus!r}, which is the score itself, expected the column of another model's scores.",
        )
    if per_site:
        _check_sites(data, client)
    columns = terms.roles(client, score=score, label=label, versus=versus, group=by)
    looked_up = by is not None and not groups
    data = terms.rows(reread(data) if looked_up or per_site else data, columns)
    scores = made(
        Evaluate, {**given, "groups": ("any",) if looked_up else groups, "versus": versus is not None}
    )
    if by is not None and looked_up:
        # What can be refused without the data is refused before they are opened, here too.
        rehearse(scores, terms.setting)
        scores = replace(scores, groups=group_names(data, by))
    result = terms.simulate("evaluate", scores, data, columns, {"by": by, "versus": versus})
    if looked_up:
        result = replace(result, warnings=(*result.warnings, _LOOKED_UP))
    if result.results.get("sites") is not None:
        result = replace(result, results=with_site_names(result.results, client_names(data, client)))
    return result


def calibrate(
    data: Any,
    *,
    label: str,
    score: str | None = None,
    logits: str | None = None,
    client: str | Partition | None = None,
    method: Method | ClassMethod = "auto",
    privacy: TrustModel | str | None = None,
    budget: Budget | None = None,
    protection: Protection | None = None,
    holdout: float = HOLDOUT,
    bins: int | None = None,
    height: int | None = None,
    buckets: int | None = None,
    transform: Transform = "auto",
    level: float = 0.95,
    solver: Solver = "auto",
    rounds: int | None = None,
    participation: float = 1.0,
    clip: float | None = None,
    negative_clip: float | None = None,
    clipping: Clipping = "joint",
    weighting: Weighting | None = None,
    averaging: Averaging = "clients",
    simulation: Simulation | None = None,
) -> Result:
    """A calibrator for a classifier over many clients, judged on held-out rows.

    Parameters
    ----------
    data, score, label, client, privacy, budget, protection, transform, level : as in `evaluate`.
    logits : for a model with several classes, in the place of `score`.
    method : for scores ``histogram``, ``bbq``, ``isotonic``, ``platt``, ``beta``, or ``auto`` for the best of them,
        judged by the fit rows alone. For logits ``temperature``, ``vector``, ``matrix``, ``order-preserving``,
        ``fedcal``, ``histogram``, ``bbq``, ``isotonic``, or ``auto``: isotonic without noise; under noise a
        temperature, for whole clients also shifts of the classes, as far as they exceed it.
    holdout : the share of the units (rows, or clients for the unit client) that is kept to judge it.
    bins : for scores, buckets of histogram binning; by default M^{1/3} for M rows, fewer under noise.
    height : 2^height bins of scores, or of binnings of logits (7).
    buckets : of reliability curves and calibration errors; 10, or 15 for logits.
    solver, rounds, participation, clip, negative_clip, clipping, weighting, averaging : for logits, as in the task
        `CalibrateMulticlass`.

    Fit rows and held-out rows are different units, so each part may spend the whole budget.

    Returns
    -------
    A `Result`: ``result["before"]`` and ``result["after"]`` hold metrics on held-out rows,
    ``result["difference"]`` the paired changes, ``result["recommended"]`` and ``result["reason"]`` the verdict.
    ``fedassay.Calibrator.of(result)``, for logits ``fedassay.ClassCalibrator.of(result)``, is the calibrator itself.

    Examples
    --------
    >>> import numpy as np, fedassay
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(20000)
    >>> data = {"site": rng.integers(0, 5, 20000), "p": score, "y": rng.random(20000) < score**2}
    >>> simulation = fedassay.Simulation(seed=1)
    >>> result = fedassay.calibrate(data, client="site", score="p", label="y", simulation=simulation)
    >>> result["recommended"]
    True
    >>> bool(abs(fedassay.Calibrator.of(result).predict([0.5])[0] - 0.25) < 0.02)  # the truth is 0.25
    True
    """
    terms = Terms.of(privacy, budget, protection, simulation)
    terms = replace(terms, simulation=replace(terms.simulation, holdout=holdout))
    given: dict[str, Any] = {
        "method": method,
        "bins": bins,
        "height": height,
        "transform": transform,
        "level": level,
        "holdout": holdout,
        "solver": solver,
        "rounds": rounds,
        "participation": participation,
        "clip": clip,
        "negative_clip": negative_clip,
        "clipping": clipping,
        "weighting": weighting,
        "averaging": averaging,
        **({} if buckets is None else {"buckets": buckets}),
    }
    if logits is not None:
        _refuse_with_logits(score=score)
        given = parameters_of(CalibrateMulticlass, Calibrate, given, instead=_WITH_LOGITS)
        classes = made(CalibrateMulticlass, given)
        roles = terms.roles(client, **{"class": label, "logits": logits})
        return calibrate_classes(classes, terms, terms.rows(data, roles), roles)
    if score is None:
        raise UsageError(_NEITHER)
    del given["holdout"]
    given = parameters_of(Calibrate, CalibrateMulticlass, given, instead="only calibrators of logits have it")
    task = made(Calibrate, given)
    columns = terms.roles(client, score=score, label=label)
    return terms.simulate("calibrate", task, terms.rows(data, columns), columns, {"holdout": holdout})


def hosmer_lemeshow(
    data: Any,
    *,
    score: str,
    label: str,
    client: str | Partition | None = None,
    method: Test = "free",
    groups: int = 10,
    degrees: Degrees = "Q",
    points: int = 1024,
    curve_share: float = 0.1,
    height: int | None = None,
    transform: Transform = "auto",
    level: float = 0.95,
    privacy: TrustModel | str | None = None,
    budget: Budget | None = None,
    protection: Protection | None = None,
    simulation: Simulation | None = None,
) -> Result:
    """The Hosmer-Lemeshow test that a model's probabilities are right, with the noise in its p-value.

    Parameters
    ----------
    data, score, label, client, privacy, budget, protection, height, transform, level : as in `evaluate`.
    method, groups, degrees, points, curve_share : as in the task `HosmerLemeshow`.

    Returns
    -------
    A `Result`; ``result["hosmer_lemeshow"]`` has ``value``, ``p_value``, ``degrees_of_freedom`` and the ``groups``.
    """
    task = HosmerLemeshow(
        method=method,
        groups=groups,
        degrees=degrees,
        points=points,
        curve_share=curve_share,
        height=height,
        transform=transform,
        level=level,
    )
    terms = Terms.of(privacy, budget, protection, simulation)
    columns = terms.roles(client, score=score, label=label)
    return terms.simulate("hosmer-lemeshow", task, terms.rows(data, columns), columns)


_NEITHER = (
    "score: got no column, expected one; give `score` (probabilities of a binary classifier) or `logits` (of a model "
    "with several classes)."
)
_WITH_LOGITS = "got it together with `logits`, which have no use for it"

_LOOKED_UP = (
    "The groups were taken from the data. In a release they must be declared (--group), because that a group exists "
    "is information about the rows."
)


def _refuse_with_logits(**columns: str | None) -> None:
    """Refuse columns that only go with scores of a binary classifier."""
    for name, column in columns.items():
        if column is not None:
            raise ParameterError(name, f"{_WITH_LOGITS}; leave out `{name}`.")


def _check_sites(data: Any, client: str | Partition | None) -> None:
    """Refuse a comparison of sites where nothing says which they are."""
    folder = isinstance(data, str | os.PathLike) and Path(data).is_dir()
    if client is None and not folder:
        raise ParameterError(
            "per_site",
            "got no client column, so that every row would be a site of its own; give `client` with the column that "
            "names the site.",
        )
