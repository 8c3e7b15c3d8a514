"""What a kind of task promises about its results, so that an audit can count how often it is true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Data = dict[str, Any]
_Draw = Callable[[np.random.Generator], Data]
Holds = Callable[[Mapping[str, Any], np.random.Generator], bool]

ROWS, CLIENTS = 1_000, 10


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A statement that is true in a known share of runs.

    Parameters
    ----------
    name : what tells it from other promises, beginning with the name of the kind.
    statement : in words.
    level : the share of runs in which it is promised to be true.
    parameters, columns : what is asked, as a study file would.
    draw : rows of a federation with a column ``client``.
    holds : whether the statement is true of a result; it may draw new rows.
    noisy : whether it is counted under noise (epsilon 1).
    """

    name: str
    statement: str
    level: float
    parameters: Mapping[str, Any]
    columns: Mapping[str, str]
    draw: _Draw = field(repr=False)
    holds: Holds = field(repr=False)
    noisy: bool = True


def clients() -> Any:
    """The client of each row."""
    return np.arange(ROWS) % CLIENTS


def uniform(rng: np.random.Generator) -> Data:
    """Values between 0 and 1."""
    return {"client": clients(), "x": rng.random(ROWS)}


def within(interval: Any, truth: float) -> bool:
    """Whether an interval holds the truth."""
    return bool(interval[0] <= truth <= interval[1])
