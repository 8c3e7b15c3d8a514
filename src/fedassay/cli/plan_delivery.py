"""What all plans share: targets as options give them, and where a plan goes."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console

from fedassay.cli import output
from fedassay.errors import UsageError


def targets(
    given: Sequence[str] | None, *, such_as: str = "NAME=WIDTH, such as roc_auc=0.01"
) -> dict[str, float]:
    """Options of the form NAME=WIDTH, by name.

    Examples
    --------
    >>> targets(["roc_auc=0.01"])
    {'roc_auc': 0.01}
    """
    found = {}
    for text in given or ():
        name, _, width = text.partition("=")
        try:
            found[name] = float(width)
        except ValueError:
            raise UsageError(f"--target: got {text!r}, expected {such_as}.") from None
    return found


def deliver(
    document: dict[str, Any],
    render: Callable[[dict[str, Any], Console], None],
    *,
    json: str | None,
    quiet: bool,
) -> None:
    """Print a plan, and write it as JSON if that was asked for; ``-`` is standard output."""
    text = json_module.dumps(document, indent=2, allow_nan=False) + "\n"
    output.write(text, json)
    console = Console(stderr=json == "-", quiet=quiet)
    render(document, console)
    if json not in (None, "-"):
        console.print(f"Written: {json}", highlight=False, soft_wrap=True)
