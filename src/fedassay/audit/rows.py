"""Rows that an attacker makes up, and cases made of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.audit.cases import FederatedCase
from fedassay.protocol import Batch, Budget, Protection, Query, Sum, Summary, TrustModel
from fedassay.summaries.group_names import fingerprints
from fedassay.trust import ServerDP

Columns = Mapping[str, NDArray[Any]]

PURE = Budget(epsilon=3.0)
"""Pure epsilon. An event that is e^3 times rarer in one world is still seen in some hundred runs."""

MIXED = Budget(epsilon=2.0, delta=0.05)
"""Queries that do not get all of it spend parts of zCDP. At smaller deltas some thousand runs show much less."""


def scored(*rows: tuple[float, int]) -> Columns:
    """Scores and labels."""
    return {
        "score": np.array([score for score, _ in rows], dtype=np.float64),
        "label": np.array([label for _, label in rows], dtype=np.int8),
    }


def versus(*rows: tuple[float, float, int]) -> Columns:
    """Scores of two models, and labels."""
    return {
        **scored(*((score, label) for score, _, label in rows)),
        "versus": np.array([other for _, other, _ in rows], dtype=np.float64),
    }


def grouped(*rows: tuple[float, int, str]) -> Columns:
    """Scores, labels and groups."""
    return {
        **scored(*((score, label) for score, label, _ in rows)),
        "group": fingerprints([group for _, _, group in rows]),
    }


def valued(*values: float) -> Columns:
    """A scalar."""
    return {"value": np.array(values, dtype=np.float64)}


def classed(*rows: tuple[Sequence[float], int]) -> Columns:
    """Logits and classes; at least one row."""
    return {
        "logits": np.array([logits for logits, _ in rows], dtype=np.float64),
        "class": np.array([label for _, label in rows], dtype=np.int64),
    }


def regressed(*rows: tuple[Sequence[float], float]) -> Columns:
    """Features and a target; at least one row."""
    return {
        "features": np.array([features for features, _ in rows], dtype=np.float64),
        "target": np.array([target for _, target in rows], dtype=np.float64),
    }


def without(columns: Columns) -> Columns:
    """The same columns, with no rows."""
    return {name: column[:0] for name, column in columns.items()}


def repeated(columns: Columns, times: int) -> Columns:
    """Every row so many times."""
    return {name: np.repeat(column, times, axis=0) for name, column in columns.items()}


def joined(*parts: Columns) -> Columns:
    """The rows of all of them."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclass(frozen=True)
class _Rows:
    columns: Columns

    def batches(self) -> Iterator[Batch]:
        yield self.columns


def farthest(
    summary: Summary[Any], candidates: Sequence[Columns], *, l1: bool = False
) -> tuple[Columns, Columns]:
    """Of these clients, the two whose vectors are farthest apart: what an attacker compares who may replace one.

    With the columns of no rows among the candidates, the second is what the attacker adds to nothing, if that is
    farther.
    """
    vectors = np.array([summary.measure(_Rows(one), {})[0] for one in candidates], dtype=np.float64)
    distances = [
        (float(np.linalg.norm(vectors[i] - vectors[j], 1 if l1 else 2)), i, j)
        for i, j in itertools.combinations(range(len(vectors)), 2)
    ]
    _, i, j = max(distances)
    return candidates[i], candidates[j]


def largest(
    summary: Summary[Any], candidates: Sequence[Columns], *, l1: bool = False
) -> tuple[Columns, Columns]:
    """Of these clients, the one whose vector is farthest from that of no rows; and no rows."""
    nobody = without(candidates[0])
    zero = summary.measure(_Rows(nobody), {})[0]

    def distance(one: Columns) -> float:
        return float(np.linalg.norm(summary.measure(_Rows(one), {})[0] - zero, 1 if l1 else 2))

    return max(candidates, key=distance), nobody


def attack(
    name: str,
    mechanism: str,
    asked: Summary[Any] | tuple[Query[Any], ...],
    pair: tuple[Columns, Columns],
    *,
    neighbours: str,
    trust: TrustModel | None = None,
    budget: Budget = PURE,
    protection: Protection | None = None,
    clients: int = 1,
    silent: int = 0,
    lost: int = 0,
) -> FederatedCase:
    """A case in which the first client has the rows of one of a pair, and all others those of the first."""
    return FederatedCase(
        name=name,
        mechanism=mechanism,
        neighbours=neighbours,
        budget=budget,
        trust=ServerDP() if trust is None else trust,
        protection=Protection() if protection is None else protection,
        queries=asked if isinstance(asked, tuple) else (Sum(of=asked),),
        worlds=((pair[0],) * clients, (pair[1],) + (pair[0],) * (clients - 1)),
        silent=silent,
        lost=lost,
    )
