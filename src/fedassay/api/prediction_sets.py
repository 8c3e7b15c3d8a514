"""Entry point: prediction sets with guaranteed coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from fedassay.api.conformal_simulation import compared, completed, likely, stand_in
from fedassay.api.terms import EntryTerms, declared
from fedassay.data.federation import Federation
from fedassay.data.inventory import reread
from fedassay.data.partition import Partition
from fedassay.errors import ParameterError, UsageError
from fedassay.kernel.run import rehearse
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol.parameters import in_words, made
from fedassay.protocol.result import Result
from fedassay.protocol.vocabulary import Budget, Protection, TrustModel
from fedassay.study.simulation import Simulation
from fedassay.summaries.quantities import QUANTITIES
from fedassay.tasks.card import with_site_names
from fedassay.tasks.conformal import Conformal
from fedassay.tasks.conformal.parameters import Conditional, ConformalMethod, Guarantee, Sets
from fedassay.tasks.conformal.promises import warnings_about


def conformal(
    data: Any,
    *,
    client: str | Partition | None = None,
    conformity: str | None = None,
    target: str | None = None,
    prediction: str | None = None,
    scale: str | None = None,
    lower: str | None = None,
    upper: str | None = None,
    label: str | None = None,
    logits: str | None = None,
    score: str | None = None,
    sets: Sets | None = None,
    score_parameters: float | Sequence[float] = (),
    level: float = 0.9,
    method: ConformalMethod = "auto",
    guarantee: Guarantee = "marginal",
    confidence: float = 0.9,
    score_range: Sequence[float] = (),
    bins: int | None = None,
    conditional: Conditional | None = None,
    by: str | None = None,
    groups: str | Sequence[str] = (),
    holdout: float = 0.0,
    report_level: float = 0.95,
    privacy: TrustModel | str | None = None,
    budget: Budget | None = None,
    protection: Protection | None = None,
    simulation: Simulation | None = None,
) -> Result:
    r"""A threshold that turns any regressor or classifier into one with prediction sets, from one message per client.

    Parameters
    ----------
    data, client, privacy, budget, protection : as in `evaluate`.
    conformity : the column of a user-defined score, large for bad predictions; or
    target, prediction, scale : the columns for \|y - p\|, divided by a positive scale if there is one; or
    target, lower, upper : the columns for conformalised quantile regression; or
    label, score : the label 0 or 1 and the probability of 1 that a binary classifier gives it, for sets of 0 and 1; or
    label, logits, sets, score_parameters : the true class, the logits, and which score (``lac``, ``aps``, ``raps`` with
        its parameters lambda and k_reg).
    level, method, guarantee, confidence, score_range, bins, report_level : as in the task `Conformal`.
    conditional : ``class`` or ``group``, for a threshold and a guarantee for each class, or each group of the column
        `by`; `groups` are those that are declared, by default those that occur, which only a simulation may look up.
        ``none`` for one threshold, with a guarantee over all rows together: a rare class may be covered far less. By
        default ``class`` where there are two classes, and else none.
    holdout : the share of the rows that is kept to measure coverage and the size of the sets, and to compare with
        other methods.

    If the method needs public knowledge that is not given (the range of scores, the number of rows that every client
    uses), a simulation looks it up and reports it.

    Returns
    -------
    A `Result`; ``result["threshold"]``, ``result["guarantee"]``, ``result["coverage_law"]``.
    ``fedassay.ConformalPredictor.of(result)`` makes intervals or sets.

    Examples
    --------
    >>> import numpy as np, fedassay
    >>> rng = np.random.default_rng(0)
    >>> data = {"site": np.repeat(np.arange(10), 100), "y": rng.normal(size=1000), "p": np.zeros(1000)}
    >>> result = fedassay.conformal(
    ...     data, client="site", target="y", prediction="p", privacy="plain"
    ... )
    >>> result["pair"], round(result["guarantee"]["coverage"], 4)
    ([92, 4], 0.9023)
    """
    arguments = declared(Conformal, locals())
    score, roles = _score(sets, {role: column for role, column in locals().items() if role in _COLUMNS})
    if conditional == "group" and by is None:
        raise ParameterError(
            "conditional",
            "got group without a column, expected one that names the group; give `by` with the column.",
        )
    if by is not None and conditional != "group":
        raise ParameterError(
            "by", 'got a column, but nothing that is asked for each group of it; give `conditional="group"`.'
        )
    looked_up = conditional == "group" and not groups
    if score == "binary" and score_parameters:
        raise ParameterError(
            "score_parameters", 'they belong to `sets="raps"`, and `score` has none; leave them out.'
        )
    # Placeholders for values that are looked up later: groups, and the number of classes, which sets the default.
    own = {
        "sets": score,
        "groups": ("any",) if looked_up else groups,
        "classes": 2 if conditional == "class" and QUANTITIES[score].is_softmax else None,
    }
    task = made(Conformal, {**arguments, **own})
    terms, data = EntryTerms.of(privacy, budget, protection, simulation), reread(data)
    if holdout:
        given = terms.simulation
        key = given.key_of_split() if given.seed is not None else SecureRandomness().bytes(32)
        terms = replace(terms, simulation=replace(given, holdout=holdout, split_key=key))
    columns = terms.roles(client, **roles, group=by)
    data = terms.rows(data, columns)
    # Refusals that need no data come before the data are opened.
    rehearse(stand_in(task), likely(terms.setting, client))
    task, terms, federation, warnings = completed(task, terms, data, columns, by=by if looked_up else None)
    result = terms.simulate("conformal", task, federation, columns)
    return _finished(result, task, terms, federation, warnings)


def _finished(
    result: Result, task: Conformal, terms: EntryTerms, federation: Federation, looked_up: tuple[str, ...]
) -> Result:
    """Add to the result the clients' names, warnings, and a comparison with other methods on held-out rows."""
    results = with_site_names(result.results, () if federation.one_row_each else federation.clients)
    if task.holdout and not task.condition:
        results["comparison"] = compared(results, task, terms, federation)
    warnings = (*result.warnings, *looked_up, *warnings_about(results, task))
    return replace(result, results=results, warnings=warnings)


_COLUMNS = frozenset({"label"}.union(*(QUANTITIES[one].columns for one in get_args(Sets))))
"""Names of the arguments that name columns."""


def _score(sets: Sets | None, named: Mapping[str, str | None]) -> tuple[Sets, dict[str, str]]:
    """Return the score that the named columns are for, and the columns by role."""
    roles = {role: column for role, column in named.items() if column is not None}
    called = in_words(roles, last="and") if roles else "none"
    for end, other in (("lower", "upper"), ("upper", "lower")):
        if end in roles and other not in roles and "prediction" not in roles:
            raise ParameterError(end, f"needs `{other}` (CQR); give both.")
    if {"label", "logits"} <= roles.keys():
        roles["class"] = roles.pop("label")
    fitting: list[Sets] = [one for one in get_args(Sets) if roles.keys() == set(QUANTITIES[one].columns)]
    if not fitting:
        raise UsageError(
            f"columns: got {called}, expected one of: conformity; target and prediction (and scale); target, "
            "lower and upper; label and logits; label and score."
        )
    if sets is not None and sets not in fitting:
        raise ParameterError("sets", f"got {sets!r} for the columns {called}, expected {in_words(fitting)}.")
    return sets or fitting[0], roles
