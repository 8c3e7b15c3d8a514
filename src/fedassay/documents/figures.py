"""Format of numbers for readers: significant digits only, reasons instead of blanks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

OTHER = "other"
"""Group of all rows whose group was not declared."""


def number(value: float | None, *, width: float | None = None) -> str:
    """Format a value to the digits that its interval supports: the second digit of the half-width.

    Examples
    --------
    >>> number(0.791234, width=0.02), number(0.791234, width=0.00002), number(None)
    ('0.791', '0.791234', '-')
    """
    if value is None:
        return "-"
    if width is None or width <= 0 or not math.isfinite(width):
        return f"{value:.4g}"
    digits = min(8, max(2, 1 - math.floor(math.log10(width / 2))))
    return f"{value:.{digits}f}"


def interval(metric: Mapping[str, Any]) -> str:
    """Format the interval of a metric, such as ``0.780 to 0.802``."""
    ends = metric.get("interval")
    if ends is None:
        return ""
    width = ends[1] - ends[0]
    return f"{number(ends[0], width=width)} to {number(ends[1], width=width)}"


def value(metric: Mapping[str, Any]) -> str:
    """Format the value of a metric, with digits that fit its interval."""
    ends = metric.get("interval")
    return number(metric.get("value"), width=None if ends is None else ends[1] - ends[0])


def told(metric: Mapping[str, Any]) -> str:
    """Format a metric in a sentence: the value and its interval, or ``undefined`` and the reason.

    Examples
    --------
    >>> told({"value": 0.7912, "interval": [0.781, 0.802]}), told({"value": None, "reason": "there are no rows"})
    ('0.791 (0.781 to 0.802)', 'undefined (there are no rows)')
    >>> told({"value": 0.7912, "interval": None})
    '0.7912'
    """
    if metric["value"] is None:
        return f"undefined ({metric['reason']})"
    ends = interval(metric)
    return f"{value(metric)} ({ends})" if ends else value(metric)


def with_interval(metric: Mapping[str, Any]) -> str:
    """Format a metric in a verdict, with three decimals.

    Examples
    --------
    >>> with_interval({"value": 0.79123, "interval": [0.7811, 0.8023]})
    '0.791 (0.781 to 0.802)'
    """
    ends = metric.get("interval")
    return f"{metric['value']:.3f}" + ("" if ends is None else f" ({ends[0]:.3f} to {ends[1]:.3f})")


def p_value(p: float | None) -> str:
    """Format a p-value, never rounded to zero.

    Examples
    --------
    >>> p_value(0.0312), p_value(1e-9), p_value(None)
    ('0.031', '< 0.001', '-')
    """
    if p is None:
        return "-"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def error(value: float) -> str:
    """Format an error with two digits.

    Examples
    --------
    >>> error(0.0079321), error(3.2e-05), error(0.0), error(0.43)
    ('0.0079', '3.2e-05', '0', '0.43')
    """
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def left(remaining: float, of: float) -> str:
    """Format the rest of a budget; rounding scales up always leaves a trace, which counts as nothing.

    Examples
    --------
    >>> left(0.25, 1.0), left(1.4e-8, 1.0)
    ('0.25', 'nothing')
    """
    return error(remaining) if remaining > 1e-4 * of else "nothing"


_MOST_DECIMALS = 8


def amount(value: float | None, *, width: float | None = None) -> str:
    """Format a value of any size, with the digits that an interval of this width supports.

    Examples
    --------
    >>> amount(23456.789, width=800.0), amount(23.456789, width=0.5), amount(0.1234567), amount(None)
    ('23,457', '23.46', '0.123457', '-')
    >>> amount(99902.34), amount(1e7), amount(2.5e-12)
    ('99,902.3', '10,000,000', '2.5e-12')
    >>> amount(1.234e-9, width=4e-11)
    '1.234e-09'
    """
    if value is None:
        return "-"
    if width is None or width <= 0 or not math.isfinite(width):
        return f"{float(f'{value:.6g}'):,.12g}"
    digits = max(0, 1 - math.floor(math.log10(width / 2)))
    return f"{value:,.{digits}f}" if digits <= _MOST_DECIMALS else f"{value:.4g}"


def p_equals(p: float | None) -> str:
    """Format a p-value as ``p = 0.031`` or ``p < 0.001``."""
    shown = p_value(p)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def chi_squared(test: Mapping[str, Any]) -> str:
    """Describe a test, such as ``statistic 12.3, p = 0.031, 10 degrees of freedom``."""
    degrees = test["degrees_of_freedom"]
    freedom = "" if degrees is None else f", {counted(degrees, 'degree')} of freedom"
    return f"statistic {test['value']:.1f}, {p_equals(test['p_value'])}{freedom}"


def counted(number: float, what: str) -> str:
    """Format a number of things.

    Examples
    --------
    >>> counted(1, "client"), counted(1200, "row"), counted(0, "row")
    ('1 client', '1,200 rows', '0 rows')
    """
    shown = f"{number:,.0f}"
    return f"{shown} {what}" if shown == "1" else f"{shown} {what}s"
