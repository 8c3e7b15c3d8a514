"""Promises of a kind of task about its results; an audit counts how often they are true."""

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
    name : unique name of the promise, beginning with the name of the kind.
    statement : the promise in words.
    level : the share of runs in which it is promised to be true.
    parameters, columns : the query, as in a study file.
    draw : function that draws rows of a federation with a column ``client``.
    holds : function that decides if the statement is true of a result; it may draw new rows.
    noisy : True if it is counted under noise (epsilon 1).
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
    """Return the client of each row."""
    return np.arange(ROWS) % CLIENTS


def uniform(rng: np.random.Generator) -> Data:
    """Draw values between 0 and 1."""
    return {"client": clients(), "x": rng.random(ROWS)}


def within(interval: Any, truth: float) -> bool:
    """Return whether an interval holds the truth."""
    return bool(interval[0] <= truth <= interval[1])
