"""What docstrings say about parameters, for the JSON Schema and the reference."""

from __future__ import annotations

import inspect
import re
from typing import Any

_NAMES = re.compile(r"(?P<names>\w+(?:, \w+)*) : (?P<text>.*)")


def parameter_texts(kind: type[Any]) -> dict[str, str]:
    """What the section Parameters of a docstring says about each name.

    Examples
    --------
    >>> class Shape:
    ...     '''A shape.
    ...
    ...     Parameters
    ...     ----------
    ...     width, height : in metres,
    ...         above 0.
    ...     '''
    >>> parameter_texts(Shape)
    {'width': 'in metres, above 0.', 'height': 'in metres, above 0.'}
    """
    _, _, section = inspect.cleandoc(kind.__doc__ or "").partition("Parameters\n----------\n")
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        match = _NAMES.fullmatch(line)
        if match:
            names = match["names"].split(", ")
            texts |= dict.fromkeys(names, match["text"])
        elif line.startswith("    ") and names:
            texts |= dict.fromkeys(names, f"{texts[names[0]]} {line.strip()}")
        else:
            break
    return {name: text.replace("``", "`") for name, text in texts.items()}


def summary_of(kind: type[Any]) -> str:
    """The first sentence of a docstring."""
    return inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ").replace("``", "`")
