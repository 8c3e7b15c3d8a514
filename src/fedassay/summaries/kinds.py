"""An object of one of several kinds, from the JSON object that describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from fedassay.errors import UsageError

M = TypeVar("M")


def one_of(kinds: Mapping[str, type[M]], content: object) -> M:
    """The map of one of these kinds that a JSON object describes."""
    if not isinstance(content, Mapping) or content.get("kind") not in tuple(kinds):
        raise UsageError(f"map: expected an object whose kind is one of {', '.join(kinds)}.")
    fields = {name: value for name, value in content.items() if name != "kind"}
    kind = kinds[content["kind"]]
    try:
        return kind(**fields)
    except TypeError:
        expected = ", ".join(kind.__dataclass_fields__)  # type: ignore[attr-defined]
        raise UsageError(
            f"map of kind {content['kind']}: got {', '.join(map(str, fields)) or 'nothing'}, expected {expected}."
        ) from None
