"""Entry point: prediction sets with guaranteed coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedassay.api import conformal_lookup
from fedassay.api.conformal_baselines import compared
from fedassay.api.terms import Roles, Terms
from fedassay.data.findings import listed
from fedassay.data.groups import client_names, reread
from fedassay.data.partition import Partition
from fedassay.errors import UsageError
from fedassay.privacy.randomness import SecureRandomness
from fedassay.protocol import Budget, Protection, TrustModel
from fedassay.result import Result
from fedassay.run import rehearse
from fedassay.simulation import Simulation
from fedassay.summaries.group_names import OTHER
from fedassay.tasks.conformal import Conformal
from fedassay.tasks.evaluation import with_site_names

SETS = ("lac", "aps", "raps")


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
    sets: str | None = None,
    parameters: Sequence[float] = (),
    level: float = 0.9,
    method: str = "auto",
    guarantee: str = "marginal",
    confidence: float = 0.9,
    score_range: Sequence[float] = (),
    bins: int | None = None,
    conditional: str = "",
    by: str | None = None,
    groups: Sequence[str] = (),
    holdout: float = 0.0,
    trust: TrustModel | None = None,
    budget: Budget | None = None,
    protection: Protection | None = None,
    simulation: Simulation | None = None,
) -> Result:
    r"""A threshold that turns any regressor or classifier into one with prediction sets, from one message per client.

    Parameters
    ----------
    data, client, trust, budget, protection : as in `evaluate`.
    conformity : the column of a score of your own, large where the prediction is bad; or
    target, prediction, scale : the columns for \|y - p\|, divided by a positive scale if there is one; or
    target, lower, upper : the columns for conformalised quantile regression; or
    label, score : the label 0 or 1 and the probability of 1 that a binary classifier gives it, for sets of 0 and 1; or
    label, logits, sets, parameters : the true class, the logits, and which score (``lac``, ``aps``, ``raps`` with its
        parameters lambda and k_reg).
    level, method, guarantee, confidence, score_range, bins : as in the task `Conformal`.
    conditional : ``class`` or ``group``, for a threshold and a guarantee for each class, or each group of the column
        `by`; `groups` are those that are declared, by default those that occur, which only a simulation may look up.
    holdout : the share of the rows that is kept to measure coverage and the size of the sets, and to compare with
        other methods.

    Where the method needs public knowledge that is not given (the range of scores, how many rows every client uses), a
    simulation looks it up and says so.

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
    ...     data, client="site", target="y", prediction="p", trust=fedassay.Plain()
    ... )
    >>> result["pair"], round(result["guarantee"]["coverage"], 4)
    ([92, 4], 0.9023)
    """
    quantity, roles = _score(
        conformity=conformity,
        target=target,
        prediction=prediction,
        scale=scale,
        lower=lower,
        upper=upper,
        label=label,
        logits=logits,
        score=score,
        sets=sets,
    )
    if conditional == "group" and by is None:
        raise UsageError(
            "conditional group: got no column, expected one that names the group; give --by COLUMN."
        )
    if by is not None and conditional != "group":
        raise UsageError(
            "by: got a column, but nothing that is asked for each group of it; give --conditional group."
        )
    if not 0 <= holdout < 1:
        raise UsageError(f"holdout: got {holdout:g}, expected a number from 0 to below 1.")
    given = simulation or Simulation()
    if holdout:
        key = given.key_of_split() if given.seed is not None else SecureRandomness().bytes(32)
        given = replace(given, held_out=holdout, split_key=key)
    terms, data = Terms.of(trust, budget, protection, given), reread(data)
    columns = terms.roles(client, **roles, group=by)
    task = Conformal(
        method=method,
        quantity=quantity,
        parameters=tuple(parameters),
        level=level,
        guarantee=guarantee,
        confidence=confidence,
        score_range=tuple(score_range),
        bins=bins,
        by=conditional,
        groups=_declared(conditional, groups),
        held_out=holdout > 0,
    )
    # What can be refused without the data is refused before they are opened.
    rehearse(conformal_lookup.stand_in(task, terms.setting), conformal_lookup.likely(terms.setting, client))
    task, terms, looked_up = conformal_lookup.completed(
        task, terms, data, columns, by=by, groups=groups, holdout=holdout
    )
    result = terms.simulate("conformal", task, data, columns, {"holdout": holdout})
    return _finished(result, task, terms, data, columns, looked_up)


def _finished(
    result: Result, task: Conformal, terms: Terms, data: Any, columns: Roles, looked_up: tuple[str, ...]
) -> Result:
    """The result with the clients' names, warnings, and a comparison with other methods on held-out rows."""
    results = dict(result.results)
    names = client_names(data, columns.client)
    results = with_site_names(results, names)
    if isinstance(results.get("held_out"), dict) and results["held_out"].get("sites") is not None:
        results["held_out"] = with_site_names(results["held_out"], names)
    if task.held_out and not task.by:
        results["comparison"] = compared(results, task, terms, data, columns)
    warnings = (*result.warnings, *looked_up, *warnings_about(results, task))
    return replace(result, results=results, warnings=warnings)


def warnings_about(results: Mapping[str, Any], task: Conformal) -> tuple[str, ...]:
    """What whoever uses these sets should know."""
    found = []
    needed = conformal_lookup.rows_alone(task)
    alone = results["method"] == "local"
    small = [
        f"{one['site']} ({one['rows']:,})"
        for one in results.get("sites") or ()
        if 0 < one["rows"] < (needed if alone else one["rank"])
    ]
    if small:
        found.append(
            f"Too few rows for a quantile of their own at this level: {', '.join(small[:10])}"
            f"{' and others' if len(small) > 10 else ''}; {needed} would be enough. "
            + (
                "They are left out of the mean."
                if results["method"] == "average"
                else "They count as infinite."
            )
        )
    differences = results.get("heterogeneity")
    if differences is not None and differences["alarming"]:
        found.append(differences["text"])
    if results["infinite"]:
        found.append(f"The set holds everything: {results['reason']}.")
    parts = results.get("groups") or {}
    empty = [name for name, one in parts.items() if one["rows"] == 0 and name != OTHER]
    if empty:
        found.append(
            f"No row is in the {task.by} {listed(empty, most=5)}, of which nothing can be said"
            + ("; rows with other names count as other." if task.by == "group" else ".")
        )
    full = [name for name, one in parts.items() if one["infinite"] and one["rows"]]
    if full:
        found.append(
            f"The sets of the {task.by} {listed(full, most=5)} hold everything: {parts[full[0]]['reason']}."
        )
    return tuple(found)


def _declared(conditional: str, groups: Sequence[str]) -> tuple[str, ...]:
    """Groups that stand in for those that are looked up later."""
    if conditional == "class":
        return ("0", "1")
    return (tuple(groups) or ("any",)) if conditional == "group" else tuple(groups)


def _score(**given: str | None) -> tuple[str, dict[str, str | None]]:
    """Which score the named columns mean, and the columns by role."""
    named = {role for role, column in given.items() if column is not None and role != "sets"}
    kinds = {
        "conformity": {"conformity"},
        "absolute": {"target", "prediction"},
        "normalised": {"target", "prediction", "scale"},
        "cqr": {"target", "lower", "upper"},
        "classes": {"label", "logits"},
        "binary": {"label", "score"},
    }
    matching = [kind for kind, roles in kinds.items() if roles == named]
    if not matching:
        raise UsageError(
            f"score: got the columns {', '.join(sorted(named)) or 'none'}, expected one of: conformity; target and "
            "prediction (and scale); target, lower and upper; label and logits; label and score."
        )
    sets = given["sets"]
    if matching[0] != "classes":
        if sets is not None:
            raise UsageError(
                f"sets: got {sets!r} without logits, expected it only with --label and --logits."
            )
        return matching[0], {role: given[role] for role in kinds[matching[0]]}
    if sets is not None and sets not in SETS:
        raise UsageError(f"sets: got {sets!r}, expected one of {', '.join(SETS)}.")
    return sets or "lac", {"class": given["label"], "logits": given["logits"]}
