"""Four ways to a threshold: local quantiles, votes, pooled scores, and one threshold for each client.

For each way: what it asks, and when to take it.

Each way is one question to the clients: for a quantile of each (`from_each`), for a vote of each, of which only the sum
is known (`from_votes`), for a private choice of each (`from_choices`), or for the distribution of all their scores
(`from_distribution`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from fedassay.errors import ParameterError, UnsupportedQuery, UsageError
from fedassay.protocol.vocabulary import Collect, Query, Released, Select, Setting, Step, Sum
from fedassay.summaries.distribution.tree import Distribution, ValueTree
from fedassay.summaries.local_quantiles import (
    MOST_CLIENTS,
    LocalQuantile,
    LocalScores,
    QuantileLosses,
    QuantileVotes,
    Votes,
)
from fedassay.summaries.quantities import public_range
from fedassay.summaries.scored import EVERYONE
from fedassay.tasks.conformal import local_thresholds, pooled
from fedassay.tasks.conformal.local_thresholds import quantile_of_quantiles
from fedassay.tasks.conformal.parameters import ConformalMethod
from fedassay.tasks.conformal.pooled import MOST_REPORTED_POINTS
from fedassay.tasks.conformal.threshold import CoverageRequest, Found
from fedassay.tasks.distribution.mechanisms import chosen
from fedassay.tasks.distribution.stored import Release

if TYPE_CHECKING:
    from fedassay.tasks.conformal.conformal import Conformal


def found_from(request: CoverageRequest, summary: QuantileVotes, votes: Votes) -> Found:
    """Return the point of the k-th smallest vote; a client counts as a client with the rows of its rung."""
    rows = np.repeat(votes.rungs, np.asarray(votes.rows, dtype=np.int64)).tolist()
    scores = np.repeat(votes.edges, np.asarray(votes.votes, dtype=np.int64))
    found = quantile_of_quantiles(
        request, rows, [summary.rank(n) for n in rows], scores.tolist(), rule="spread", exact=False
    )
    step = float(votes.edges[1] - votes.edges[0])
    return replace(found, details={**found.details, "step": step})


# --- the four ways to a threshold ---------------------------------------------------------------------------

AUTO = "auto"
METHODS = get_args(ConformalMethod)

_Answer = tuple[dict[str, Found], list[dict[str, Any]] | None]
"""Threshold of each part of the rows, and the answers of single clients, if they may be seen."""

Way = Callable[["Conformal", str, Setting], Generator[Step, Any, _Answer]]
"""Function that asks, and computes a threshold from the answer, by the method of this name."""


def way_of(task: Conformal, setting: Setting) -> tuple[str, Way]:
    """Return the method, and how it is carried out under this trust model; raise `UnsupportedQuery` if it cannot be."""
    single = _collects(task, setting)
    if task.method == AUTO:
        one_row = setting.protection.rows_per_client == 1
        if single or (not one_row and not task.condition and _selects(task, setting)):
            return "qq", from_each if single else from_choices
        return "pooled", from_distribution
    if task.method == "weighted" and setting.protection.rows_per_client == 1:
        raise UnsupportedQuery(
            "weighted: with one row per client nothing can be learnt about the distribution of each, expected several; "
            'use `method="pooled"`.'
        )
    if task.method in ("pooled", "weighted"):
        return task.method, from_distribution
    if single:
        return task.method, from_each
    return task.method, _way_without_single_clients(task, setting)


def _way_without_single_clients(task: Conformal, setting: Setting) -> Way:
    method, trust = task.method, setting.trust
    if method in ("average", "local"):
        raise UnsupportedQuery(
            f"{method}: it needs the quantile of each client, and here no single one is shown; use "
            '`privacy="plain"`, or `method="pooled"`.'
        )
    if _selects(task, setting):
        if task.condition:
            raise UnsupportedQuery(
                f"{method} by {task.condition}: a client would choose once for each of them, and how many rows it "
                'has of each is a secret; use `method="pooled"`, or `conditional="none"`.'
            )
        return from_choices
    if trust.private:
        raise UnsupportedQuery(
            f"{method}: noise would be added to votes of clients, which one row can move as far as "
            'they go; use `method="pooled"`.'
        )
    if method == "qq-paper":
        raise UnsupportedQuery(
            'qq-paper: here only sums of votes are known, which go with ranks of our own; use `method="qq"`, or '
            '`privacy="plain"`.'
        )
    return from_votes


# --- the ways -------------------------------------------------------------------------------------------


def from_each(task: Conformal, method: str, setting: Setting) -> Generator[Step, Any, _Answer]:
    """Ask each client for a quantile of its own scores, in the clear."""
    released: Released[tuple[dict[str, LocalScores], ...]] = yield Collect(
        of=_quantile(task, method, setting), part=task.part
    )
    found = {
        name: local_thresholds.found_from(task.request, method, [client[name] for client in released.value])
        for name in task.names
    }
    if task.condition:
        return found, None
    return found, local_thresholds.sites_of(
        task.request, method, [client[EVERYONE] for client in released.value]
    )


def from_votes(task: Conformal, method: str, setting: Setting) -> Generator[Step, Any, _Answer]:
    """Ask each client to vote for the public point above its quantile; the server sees the number of votes by point."""
    votes = QuantileVotes(
        **task.scored,
        **_grid(task, pooled.exact_points(len(task.names))),
        level=task.level,
        clients=_clients(setting),
        confidence=task.request.confidence,
    )
    released: Released[dict[str, Votes]] = yield Sum(of=votes, part=task.part)
    return {name: found_from(task.request, votes, one) for name, one in released.value.items()}, None


def from_choices(task: Conformal, method: str, setting: Setting) -> Generator[Step, Any, _Answer]:
    """Ask each client to choose a public point near its quantile, with differential privacy."""
    lower, upper = known_range(task)
    candidates = local_thresholds.CANDIDATES if task.bins is None else task.bins
    private = local_thresholds.PrivateQuantile(
        request=task.request, method=method, setting=setting, candidates=candidates
    )
    target = private.target()
    if isinstance(target, Found):
        return {EVERYONE: target}, None
    losses = QuantileLosses(
        quantity=task.sets,
        parameters=task.score_parameters,
        lower=lower,
        upper=upper,
        **private.losses(target),
    )
    released: Released[tuple[float, ...]] = yield Select(of=losses, part=task.part)
    return {EVERYONE: private.found(target, released.value, released.noise)}, None


def from_distribution(task: Conformal, method: str, setting: Setting) -> Generator[Step, Any, _Answer]:
    """Release the distribution of all scores, as for an ecdf."""
    leaves = ValueTree(**task.scored, **_grid(task, pooled.NOISY_POINTS))
    noise = setting.noise(Sum(of=leaves, part=task.part))
    if noise.variance == 0:
        leaves = ValueTree(**task.scored, **_grid(task, pooled.exact_points(len(task.names))))
    if noise.reporting:
        leaves = ValueTree(**task.scored, **_grid(task, pooled.REPORTED_POINTS))
        _check_reported(method, leaves.points)
    released: Released[Distribution] = yield Sum(of=chosen(leaves, setting, mechanism="auto"), part=task.part)
    release = Release.of(released.value, released.noise)
    reading = pooled.Pooled(
        request=task.request,
        test_points=released.clients if method == "weighted" else 1,
        clients=released.clients,
    )
    return {name: reading.found(release, place) for place, name in enumerate(task.names)}, None


# --- what is asked --------------------------------------------------------------------------------------


def known_range(task: Conformal) -> tuple[float, float]:
    """Return the range of the scores: given, or known to everyone."""
    if task.score_range:
        return task.score_range[0], task.score_range[1]
    lower, upper = public_range(task.sets, task.score_parameters, classes=task.classes)
    if lower is None or upper is None:
        raise ParameterError(
            "score_range",
            "got none, expected one, public and not read from the data: the method only knows public points between "
            f"which {task.sets} scores lie; give `score_range`.",
        )
    return lower, upper


def _grid(task: Conformal, points: int) -> dict[str, Any]:
    """Return the fields of the public points: as many as requested, or this number."""
    return pooled.grid_fields(*known_range(task), points if task.bins is None else task.bins)


def _check_reported(method: str, points: int) -> None:
    """Raise if the method or the number of points does not suit reports on one level, and on one row."""
    if method == "weighted":
        raise UnsupportedQuery(
            "weighted: clients that report on one of their rows say nothing about their own distribution; use "
            '`method="pooled"`, or the encoding noise.'
        )
    if points > MOST_REPORTED_POINTS:
        raise ParameterError(
            "bins",
            f"got {points:,}, expected at most {MOST_REPORTED_POINTS:,} where each client reports on one level.",
        )


def _quantile(task: Conformal, method: str, setting: Setting) -> LocalQuantile:
    return LocalQuantile(
        **task.scored,
        level=task.level,
        rules=local_thresholds.rules_of(method, task.request),
        clients=1 if method == "local" else _clients(setting),
        confidence=task.request.confidence,
    )


def _clients(setting: Setting) -> int:
    """Return the number of clients, 1 if it is not known yet; raise if there are too many."""
    if setting.clients > MOST_CLIENTS:
        raise UsageError(
            f"clients: got {setting.clients:,}, expected at most {MOST_CLIENTS:,} for a quantile of quantiles; use "
            '`method="pooled"`.'
        )
    return max(1, setting.clients)


def _collects(task: Conformal, setting: Setting) -> bool:
    if setting.clients > MOST_CLIENTS:
        return False
    return answers_to(Collect(of=_quantile(task, "local", setting), part=task.part), setting)


def _selects(task: Conformal, setting: Setting) -> bool:
    """Return whether clients choose in private; a choice that is not private would be a worse quantile."""
    if not setting.trust.private:
        return False
    return answers_to(replace(local_thresholds.probe(rows=1, candidates=2), part=task.part), setting)


def answers_to(query: Query[Any], setting: Setting) -> bool:
    """Return whether the trust model answers such queries; other problems are reported when the query is asked."""
    try:
        setting.plan(query)
    except UnsupportedQuery:
        return False
    except UsageError:
        return True
    return True
