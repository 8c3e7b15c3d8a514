"""Too little budget for what is asked is said before anything is spent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from fedassay.errors import UnsupportedQuery, UsageError
from fedassay.protocol import LARGEST_EPSILON, Setting, Sum
from fedassay.summaries.values import ValueSummary
from fedassay.tasks.distribution.accuracy import noise_half_width

USELESS = 0.5
"""A band with this half-width from noise alone says nothing."""


def known_rows(setting: Setting, expected_rows: float | None) -> float | None:
    """How many rows to expect: what is said, or that all clients reach their bound; None if nobody knows."""
    if expected_rows is not None:
        return expected_rows
    per_client = setting.protection.rows_per_client
    if per_client is None or setting.clients == 0:
        return None
    return float(setting.clients * per_client)


def check_precision(
    summary: ValueSummary,
    setting: Setting,
    *,
    precision: float | None,
    expected_rows: float | None,
    level: float,
    share: float = 1.0,
) -> None:
    """Refuse a release of which the noise alone would make the band wider than asked for, or useless.

    Parameters
    ----------
    summary : what would be released, for this share of the budget.
    precision : the largest half-width of the simultaneous band that noise may cause; None for any that says
        something.
    expected_rows : how many rows there will be, if known.
    level : of the band.

    Guarantee: what passes with a precision has it, if there are as many rows as expected (`noise_half_width`).
    """
    query = Sum(of=summary, share=share)
    if setting.noise(query).variance == 0:
        return
    if setting.clients == 0 and setting.noise(query) != replace(setting, clients=1000).noise(query):
        return  # how much noise there is depends on the number of clients, which is not known yet
    rows = known_rows(setting, expected_rows)
    if rows is None:
        if precision is not None:
            raise UsageError(
                "precision: how wide the band will be depends on the number of rows, which is not public; give "
                "how many you expect (`expected_rows`)."
            )
        return
    budget = setting.budget
    assert budget is not None

    def half_width(epsilon: float) -> float:
        other = replace(setting, budget=replace(budget, epsilon=epsilon))
        try:
            noise = other.noise(query)
        except (UnsupportedQuery, UsageError):
            return math.inf
        return noise_half_width(summary, noise, rows=rows, level=level)

    reached, wanted = half_width(budget.epsilon), USELESS if precision is None else precision
    if reached < wanted or (precision is not None and reached == wanted):
        return
    enough = sufficient(half_width, wanted, start=budget.epsilon)
    remedy = "no epsilon would do" if enough is None else f"epsilon {enough:.3g} would do"
    expected = (
        f"less than {USELESS:g}, else the band says nothing" if precision is None else f"at most {wanted:.3g}"
    )
    what = "budget" if precision is None else "precision"
    raise UsageError(
        f"{what}: with epsilon {budget.epsilon:.3g} and {rows:,.0f} rows, noise alone makes the band ±{reached:.2g} "
        f"wide, expected {expected}; {remedy}, or ask for fewer points, or of more rows."
    )


def sufficient(half_width: Callable[[float], float], wanted: float, *, start: float) -> float | None:
    """An epsilon above `start` for which the half-width is as wanted, rounded up to two digits; None if none is.

    Examples
    --------
    >>> sufficient(lambda epsilon: 1 / epsilon, 0.03, start=1.0)
    34.0
    """
    low = high = start
    while half_width(high) > wanted:
        if high >= LARGEST_EPSILON:
            return None
        low, high = high, min(2 * high, LARGEST_EPSILON)
    while high / low > 1.002:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if half_width(middle) > wanted else (low, middle)
    unit = 10.0 ** (math.floor(math.log10(high)) - 1)
    return min(LARGEST_EPSILON, float(f"{math.ceil(high / unit * (1 - 1e-9)) * unit:.2g}"))
