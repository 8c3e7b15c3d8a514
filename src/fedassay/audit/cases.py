"""Cases of attacks: a mechanism under a trust model, with two neighbouring worlds that an attacker would choose."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from fedassay.audit.bound import Known
from fedassay.audit.world import AttackedFederation, Views, World
from fedassay.data.tables import ArrayRows
from fedassay.errors import UsageError
from fedassay.privacy.accounting import CHOICE, LAPLACE, UNARY
from fedassay.privacy.continual import ContinualCount
from fedassay.privacy.continual_noise import ContinualMechanism
from fedassay.protocol.vocabulary import (
    Budget,
    Neighbours,
    Plan,
    Protection,
    Query,
    Sensitivity,
    Setting,
    Sum,
    Summary,
    TrustModel,
)
from fedassay.trust import ServerDP
from fedassay.trust.card import TRUST_CARDS


@dataclass(frozen=True, kw_only=True)
class Case(ABC):
    """One claim and one attack on it.

    Parameters
    ----------
    name : on the command line.
    mechanism, neighbours : in words, for the table: the query, and the difference of the worlds.
    budget : the claim.
    """

    name: str
    mechanism: str
    neighbours: str
    budget: Budget

    @property
    @abstractmethod
    def trust_model(self) -> str:
        """Name of the trust model; of a mechanism outside of them, where it runs."""

    @property
    def summaries(self) -> tuple[str, ...]:
        """The names of the summaries that are asked for."""
        return ()

    @property
    @abstractmethod
    def laws(self) -> tuple[str, ...]:
        """The noise laws."""

    @abstractmethod
    def runs(self, world: int, count: int, randomness: Any) -> Iterator[Views]:
        """Yield the attacker's views of `count` independent runs in the first (0) or second (1) world, in parts."""

    @property
    @abstractmethod
    def known(self) -> tuple[Known, ...]:
        """Knowledge of the attacker."""

    @property
    @abstractmethod
    def moved(self) -> float:
        """Distance of the worlds, as a part of the sensitivity that the noise is made for.

        Above 1 is a violation, whatever the noise. Below 1 the worlds are not the worst there are, or the sensitivity
        is a bound that no rows reach: the audited epsilon is then smaller by about that factor.
        """


@dataclass(frozen=True, kw_only=True)
class FederatedCase(Case):
    """Queries of a federation.

    Parameters
    ----------
    worlds : the rows of all clients, twice; they differ in one unit, of the first client.
    silent, lost : see `Federation`.
    """

    trust: TrustModel
    protection: Protection
    queries: tuple[Query[Any], ...]
    worlds: tuple[World, World] = field(repr=False)
    silent: int = 0
    lost: int = 0

    def __post_init__(self) -> None:
        if len(self.worlds[0]) != len(self.worlds[1]):
            raise UsageError(f"{self.name}: expected as many clients in both worlds.")

    @property
    def trust_model(self) -> str:
        """The name of the trust model."""
        return self.trust.name

    @property
    def summaries(self) -> tuple[str, ...]:
        """The names of the summaries."""
        return tuple(dict.fromkeys(query.of.name for query in self.queries))

    @property
    def laws(self) -> tuple[str, ...]:
        """Noise laws of the plans."""
        return tuple(dict.fromkeys(plan.noise.law for plan in self.plans))

    @cached_property
    def setting(self) -> Setting:
        """Public setting of the queries."""
        return Setting(
            trust=self.trust, protection=self.protection, budget=self.budget, clients=len(self.worlds[0])
        )

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """Plans of the queries, as the shipped trust model makes them."""
        return tuple(self.trust.plan(query, self.setting) for query in self.queries)

    def federation(self, world: int, randomness: Any) -> AttackedFederation:
        """Return the participants of one world."""
        return AttackedFederation(
            plans=self.plans,
            world=self.worlds[world],
            randomness=randomness,
            silent=self.silent,
            lost=self.lost,
        )

    def runs(self, world: int, count: int, randomness: Any) -> Iterator[Views]:
        """Yield the views of runs through the shipped clients and servers."""
        return self.federation(world, randomness).runs(count)

    @cached_property
    def known(self) -> tuple[Known, ...]:
        """Exact answers and noise, query by query."""
        first, second = (self.federation(world, None).exact() for world in (0, 1))
        return tuple(
            Known(
                first=first[place],
                second=second[place],
                noise=plan.noise,
                spread=spread_of(plan.query.of),
                sampled=plan.sampled,
                counted=TRUST_CARDS[self.trust.name].overheard is None,
            )
            for place, plan in enumerate(self.plans)
        )

    @cached_property
    def moved(self) -> float:
        """Largest distance over all queries."""
        pairs = zip(self.known, self.plans, strict=True)
        return max(moved_part(known, plan.sensitivity) for known, plan in pairs)


@dataclass(frozen=True, kw_only=True)
class StreamCase(Case):
    """The continual release of a count, where one unit has one event more at one step.

    Parameters
    ----------
    stream : how totals get their noise; it has the budget.
    at : the step, from 0, at which the event happens.
    """

    stream: ContinualMechanism
    at: int

    @property
    def trust_model(self) -> str:
        """Name of the place where it runs: a trusted aggregator."""
        return "continual count"

    @property
    def laws(self) -> tuple[str, ...]:
        """Noise law of the draws."""
        return (self.stream.noise.law,)

    def runs(self, world: int, count: int, randomness: Any) -> Iterator[Views]:
        """Yield all totals of a stream, again and again; 64 streams at a time."""
        done = 0
        while done < count:
            some = min(64, count - done)
            yield np.array([[self._totals(world, randomness)] for _ in range(some)])
            done += some

    def _totals(self, world: int, randomness: Any) -> list[float]:
        counting = ContinualCount(self.stream, non_decreasing=False)
        return [
            counting.observe(int(world == 1 and step == self.at), randomness).total
            for step in range(self.stream.horizon)
        ]

    @cached_property
    def known(self) -> tuple[Known, ...]:
        """Knowledge of the attacker: no events, or one."""
        return (
            Known(
                first=np.zeros(self.stream.horizon, dtype=np.int64),
                second=(np.arange(self.stream.horizon) >= self.at).astype(np.int64),
                noise=self.stream.noise,
                spread=self._spread(),
                counted=False,
            ),
        )

    @cached_property
    def moved(self) -> float:
        """Least norm of draws that amount to the event."""
        return moved_part(self.known[0], self.stream.sensitivity)

    def _spread(self) -> NDArray[np.float64]:
        """Compute the matrix from draws to totals, from a stream without events in which one draw is not zero."""
        draws = len(self._drawn(-1)[1])
        return np.array([self._drawn(place)[0] for place in range(draws)]).T

    def _drawn(self, place: int) -> tuple[list[float], list[int]]:
        """Return the totals if the draw in this place is 1 and the others are 0; and all draws."""
        mechanism, used = self.stream, list[int]()

        def draw(size: int) -> list[int]:
            new = [int(len(used) + i == place) for i in range(size)]
            used.extend(new)
            return new

        state, totals = mechanism.start(), []
        for step in range(1, self.stream.horizon + 1):
            total, state = mechanism.advance(step, state, 0, draw)
            totals.append(total)
        return totals, used


def moved_part(known: Known, sensitivity: Sensitivity) -> float:
    """Compute the distance of one query's answers, as a part of the sensitivity in the norm that its noise needs."""
    moved, law = known.moved, known.noise.law
    if law == UNARY:
        return 1.0
    if law == CHOICE:
        return float((moved.max() - moved.min()) / sensitivity.l1)
    if known.spread is not None:
        return least_norm(known.spread, moved, law) / (sensitivity.l1 if law == LAPLACE else sensitivity.l2)
    if law == LAPLACE:
        return float(np.abs(moved).sum() / sensitivity.l1)
    return float(np.linalg.norm(moved) / sensitivity.l2)


def spread_of(summary: Summary[Any]) -> NDArray[np.float64] | None:
    """Return the matrix by which draws of noise become entries; None if each entry has its own."""
    count = summary.draws
    matrix = np.array([summary.spread(unit) for unit in np.eye(count, dtype=np.int64)]).T
    own = matrix.shape == (count, count) and np.array_equal(matrix, np.eye(count))
    return None if own else matrix.astype(np.float64)


def least_norm(spread: NDArray[np.float64], moved: NDArray[np.float64], law: str) -> float:
    """Compute the least norm (L1 by linear programming, or L2) of draws of this move; at most that of whole ones."""
    if law != LAPLACE:
        return float(np.linalg.norm(np.linalg.pinv(spread) @ moved))
    found = linprog(np.ones(2 * spread.shape[1]), A_eq=np.hstack([spread, -spread]), b_eq=moved)
    assert found.fun is not None  # every move is a sum of draws
    return float(found.fun)


# --- rows that an attacker makes up -------------------------------------------------------------------------

CaseColumns = Mapping[str, NDArray[Any]]

PURE = Budget(epsilon=3.0)
"""Budget of pure epsilon. An event that is e^3 times rarer in one world is still seen in some hundred runs."""

MIXED = Budget(epsilon=2.0, delta=0.05)
"""Queries that do not get all of it spend parts of zCDP. At smaller deltas some thousand runs show much less."""

REPLACED = Protection(neighbours=Neighbours.REPLACE_ONE)

_WHOLE: Mapping[str, type[Any]] = {"label": np.int8, "class": np.int64}
"""Columns of whole numbers; others hold floats."""


def rows_with(*names: str) -> Callable[..., CaseColumns]:
    """Make a function of rows that gives them as columns with these names.

    Examples
    --------
    >>> rows_with("score", "label")((0.1, 0), (0.9, 1))["label"]
    array([0, 1], dtype=int8)
    """

    def columns(*rows: Sequence[Any]) -> CaseColumns:
        return {
            name: np.array([row[place] for row in rows], dtype=_WHOLE.get(name, np.float64))
            for place, name in enumerate(names)
        }

    return columns


scored = rows_with("score", "label")


def valued(*values: float) -> CaseColumns:
    """Make columns of a scalar."""
    return {"value": np.array(values, dtype=np.float64)}


def without(columns: CaseColumns) -> CaseColumns:
    """Return the same columns, with no rows."""
    return {name: column[:0] for name, column in columns.items()}


def repeated(columns: CaseColumns, times: int) -> CaseColumns:
    """Return the columns with every row repeated `times` times."""
    return {name: np.repeat(column, times, axis=0) for name, column in columns.items()}


def farthest(
    summary: Summary[Any], candidates: Sequence[CaseColumns], *, l1: bool = False
) -> tuple[CaseColumns, CaseColumns]:
    """Return the two of these clients whose vectors are farthest apart, for an attacker who may replace one.

    With the columns of no rows among the candidates, the second is what the attacker adds to nothing, if that is
    farther.
    """
    vectors = np.array([summary.measure(ArrayRows(columns=one), {})[0] for one in candidates], dtype=float)
    distances = [
        (float(np.linalg.norm(vectors[i] - vectors[j], 1 if l1 else 2)), i, j)
        for i, j in itertools.combinations(range(len(vectors)), 2)
    ]
    _, i, j = max(distances)
    return candidates[i], candidates[j]


def largest(
    summary: Summary[Any], candidates: Sequence[CaseColumns], *, l1: bool = False
) -> tuple[CaseColumns, CaseColumns]:
    """Return the client whose vector is farthest from that of no rows; and no rows."""
    nobody = without(candidates[0])
    zero, *vectors = (summary.measure(ArrayRows(columns=one), {})[0] for one in (nobody, *candidates))
    sizes = [float(np.linalg.norm(vector - zero, 1 if l1 else 2)) for vector in vectors]
    return candidates[int(np.argmax(sizes))], nobody


def twice(summary: Summary[Any]) -> tuple[Query[Any], ...]:
    """Ask the same twice, for half of the budget each: with a delta, each is answered under a part of zCDP."""
    return (Sum(of=summary, share=0.5),) * 2


def attack(
    name: str,
    mechanism: str,
    asked: Summary[Any] | tuple[Query[Any], ...],
    pair: tuple[CaseColumns, CaseColumns],
    *,
    neighbours: str,
    trust: TrustModel | None = None,
    budget: Budget | None = None,
    protection: Protection | None = None,
    clients: int = 1,
    silent: int = 0,
    lost: int = 0,
) -> FederatedCase:
    """Make a case in which the first client has the rows of one of a pair, and all others those of the first.

    Parameters
    ----------
    budget : `MIXED` by default for several queries, `PURE` for one.
    """
    queries = asked if isinstance(asked, tuple) else (Sum(of=asked),)
    return FederatedCase(
        name=name,
        mechanism=mechanism,
        neighbours=neighbours,
        budget=budget or (MIXED if len(queries) > 1 else PURE),
        trust=trust or ServerDP(),
        protection=protection or Protection(),
        queries=queries,
        worlds=((pair[0],) * clients, (pair[1],) + (pair[0],) * (clients - 1)),
        silent=silent,
        lost=lost,
    )
