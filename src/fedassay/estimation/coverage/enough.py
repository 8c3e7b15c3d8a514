"""Where no choice is valid: how many rows, or which ε, would be enough."""

from __future__ import annotations

import math
from collections.abc import Callable


def enough_rows(possible: Callable[[int], bool], rows: int) -> int:
    """The fewest rows that are enough, if `rows` are not; more must not be worse.

    Examples
    --------
    >>> enough_rows(lambda n: n >= 137, 100)
    137
    """
    low, high = rows, 2 * rows
    while not possible(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if possible(middle) else (middle, high)
    return high


def enough_epsilon(possible: Callable[[float], bool], epsilon: float) -> float | None:
    """An ε of three digits that is enough, if `epsilon` is not; None if none is.

    Examples
    --------
    >>> enough_epsilon(lambda value: value >= math.pi, 1.0), enough_epsilon(lambda value: False, 1.0)
    (3.15, None)
    """
    if not possible(math.inf):
        return None
    low, high = epsilon, 2 * epsilon
    while not possible(high):
        low, high = high, 2 * high
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if possible(middle) else (middle, high)
    unit = 10.0 ** (math.floor(math.log10(high)) - 2)
    rounded = round(math.ceil(high / unit) * unit, 12)
    return rounded if possible(rounded) else rounded + unit


def would_do(rows: int, epsilon: float | None) -> str:
    """In words.

    Examples
    --------
    >>> would_do(137, 3.15)
    'expected at least 137 rows each at this ε, or ε = 3.15 with these rows'
    """
    either = f"expected at least {rows} rows each at this ε"
    return either if epsilon is None else f"{either}, or ε = {epsilon:.3g} with these rows"
