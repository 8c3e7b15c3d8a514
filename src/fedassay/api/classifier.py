"""Entry points about the scores of a binary classifier, and the logits of a multiclass model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.api.terms import EntryTerms, Roles, declared, parameters_of
from fedassay.data.federation import Federation, load
from fedassay.data.findings import raise_first
from fedassay.data.inventory import client_names, group_names, reread
from fedassay.data.partition import Partition
from fedassay.data.schema import CLASS, LOGITS
from fedassay.data.wide import looks_like_probabilities, probabilities_error
from fedassay.errors import ParameterError, UsageError
from fedassay.kernel.run import rehearse
from fedassay.protocol.parameters import made
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import Budget, Protection, TrustModel
from fedassay.study.simulation import Simulation
from fedassay.tasks.calibration import Calibrate
from fedassay.tasks.calibration.multiclass.calibrate import CalibrateMulticlass
from fedassay.tasks.calibration.parameters import (
    Averaging,
    CalibrationMethod,
    ClassMethod,
    Clipping,
    MixtureWeighting,
    Solver,
)
from fedassay.tasks.card import with_site_names
from fedassay.tasks.distribution.hosmer_lemeshow import HosmerLemeshow
from fedassay.tasks.distribution.parameters import Degrees
from fedassay.tasks.distribution.parameters import GroupTestMethod as Test
from fedassay.tasks.evaluation import Evaluate
from fedassay.tasks.evaluation.multiclass import EvaluateMulticlass
from fedassay.tasks.shared_parameters import HOLDOUT, Transform

# --- models with several classes ----------------------------------------------------------------------------

MOST_LISTED = 20

TaskOfLogits = EvaluateMulticlass | CalibrateMulticlass


def run_classes(name: str, task: TaskOfLogits, terms: EntryTerms, data: Any, columns: Roles) -> Result:
    """Return the result of a task about logits; the number of classes is taken from the data.

    In a release it is declared: the width of a model's output is public.
    """
    # Refusals that need no data come before the data are opened.
    rehearse(replace(task, classes=2), terms.setting)
    found = look_up(terms.rows(data, columns), columns)
    result = terms.simulate(name, replace(task, classes=found.classes), found.federation, columns)
    return replace(
        result, warnings=(*result.warnings, *found.warnings(terms.trust), *result.results["notes"])
    )


@dataclass(frozen=True, kw_only=True)
class ClassesFound:
    """Number of rows of each class, over all rows of a simulation, and the loaded rows."""

    federation: Federation
    rows: NDArray[np.int64] = field(repr=False)

    @property
    def classes(self) -> int:
        """Number of classes, with or without rows."""
        return len(self.rows)

    def warnings(self, trust: TrustModel) -> tuple[str, ...]:
        """Return warnings about classes without rows.

        There are none under trust models that add noise: that no row is of a class is an exact count, and their results
        show only what a release would show. The noisy counts of each class are in the results.
        """
        without = np.flatnonzero(self.rows == 0)
        if trust.private or not len(without):
            return ()
        named = ", ".join(str(one) for one in without[:MOST_LISTED]) + ", .." * (len(without) > MOST_LISTED)
        which = (
            f"class {named}" if len(without) == 1 else f"{len(without)} of {self.classes} classes ({named})"
        )
        return (
            f"No row is of {which}: what is said about {'it' if len(without) == 1 else 'them'} rests on no rows.",
        )


def look_up(data: Any, columns: Roles) -> ClassesFound:
    """Count the logits of a row, if they are logits, and the rows of each class.

    Raises
    ------
    DataError
        If a value does not fit its role, there are no rows, or the logits look like probabilities.

    Examples
    --------
    >>> data = {"y": [0, 2], "z": [[1.0, -1.0, 0.5], [0.0, 2.0, 0.5]]}
    >>> look_up(data, Roles(names={"class": "y", "logits": "z"})).rows.tolist()
    [1, 0, 1]
    """
    federation = load(data, client=columns.client, columns=columns.names)
    rows, probabilities = np.zeros(0, dtype=np.int64), True
    for batch in federation.pooled().batches():
        classes = batch[LOGITS].shape[1]
        rows = np.bincount(batch[CLASS], minlength=classes) + (rows if len(rows) else 0)
        probabilities = probabilities and looks_like_probabilities(batch[LOGITS])
    if probabilities:
        raise_first([probabilities_error(federation.label, columns.names[LOGITS])])
    return ClassesFound(federation=federation, rows=rows)


# --- entry points about the scores of a binary classifier ---------------------------------------------------


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
    logits : for a model with several classes, in the place of `score`: the column with the logits of each row, or the
        beginning of the names of numbered columns. Labels then are whole numbers from 0. `height`, `buckets` (15 by
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
    arguments = {**_without_buckets(locals()), "versus": versus is not None}
    terms = EntryTerms.of(privacy, budget, protection, simulation)
    if logits is not None:
        _refuse_with_logits(score=score, by=by, versus=versus)
        given = parameters_of(EvaluateMulticlass, Evaluate, arguments, instead=_WITH_LOGITS)
        roles = terms.roles(client, **{"class": label, "logits": logits})
        return run_classes("evaluate", made(EvaluateMulticlass, given), terms, data, roles)
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
    scores = made(Evaluate, {**declared(Evaluate, arguments), "groups": ("any",) if looked_up else groups})
    if by is not None and looked_up:
        # Refusals that need no data come before the data are opened, here too.
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
    method: CalibrationMethod | ClassMethod = "auto",
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
    weighting: MixtureWeighting | None = None,
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
    arguments = _without_buckets(locals())
    terms = EntryTerms.of(privacy, budget, protection, simulation)
    terms = replace(terms, simulation=replace(terms.simulation, holdout=holdout))
    if logits is not None:
        _refuse_with_logits(score=score)
        given = parameters_of(CalibrateMulticlass, Calibrate, arguments, instead=_WITH_LOGITS)
        roles = terms.roles(client, **{"class": label, "logits": logits})
        return run_classes("calibrate", made(CalibrateMulticlass, given), terms, data, roles)
    if score is None:
        raise UsageError(_NEITHER)
    del arguments["holdout"]
    given = parameters_of(
        Calibrate, CalibrateMulticlass, arguments, instead="only calibrators of logits have it"
    )
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
    task = made(HosmerLemeshow, declared(HosmerLemeshow, locals()))
    terms = EntryTerms.of(privacy, budget, protection, simulation)
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


def _without_buckets(arguments: dict[str, Any]) -> dict[str, Any]:
    """Remove `buckets` from the arguments if it is None: its default depends on the kind of task."""
    return {name: value for name, value in arguments.items() if name != "buckets" or value is not None}


def _refuse_with_logits(**columns: str | None) -> None:
    """Refuse columns that are only for scores of a binary classifier."""
    for name, column in columns.items():
        if column is not None:
            raise ParameterError(name, f"{_WITH_LOGITS}; leave out `{name}`.")


def _check_sites(data: Any, client: str | Partition | None) -> None:
    """Refuse a comparison of sites if the sites are not named."""
    folder = isinstance(data, str | os.PathLike) and Path(data).is_dir()
    if client is None and not folder:
        raise ParameterError(
            "per_site",
            "got no client column, so that every row would be a site of its own; give `client` with the column that "
            "names the site.",
        )
