"""A conformal threshold and what it promises, as an artefact carries them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from fedassay.artefacts.stored import entries, number, truth, words
from fedassay.errors import DataError, UsageError

GUARANTEES = ("marginal", "training-conditional", "none")
_KEYS = ("threshold", "infinite", "reason", "guarantee")


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What is promised about new rows.

    Parameters
    ----------
    kind : ``marginal``, ``training-conditional`` or ``none``.
    level : the coverage that was asked for.
    confidence : of a training-conditional guarantee.
    coverage : the marginal coverage as computed; None if nothing is known.
    probability : that the coverage, given the calibration rows, is at least the level; None if it is not known.
    assumption : under which it holds.
    text : all of it in plain English.
    """

    kind: str
    level: float
    confidence: float | None = None
    coverage: float | None = None
    probability: float | None = None
    assumption: str | None = None
    text: str

    def __post_init__(self) -> None:
        if self.kind not in GUARANTEES:
            raise UsageError(f"guarantee: got {self.kind!r}, expected one of {', '.join(GUARANTEES)}.")
        object.__setattr__(self, "level", number(self.level, "level"))
        for field in ("confidence", "coverage", "probability"):
            value = getattr(self, field)
            object.__setattr__(self, field, None if value is None else number(value, field))
        if self.assumption is not None:
            words(self.assumption, "assumption")
        words(self.text, "text")

    @classmethod
    def of(cls, guarantee: Mapping[str, Any]) -> Guarantee:
        """The guarantee in the results of a run, which may say more."""
        return cls(**{field.name: guarantee[field.name] for field in fields(cls)})

    @classmethod
    def from_json(cls, content: object) -> Guarantee:
        """What `asdict` was called on; anything else is refused."""
        return cls(**entries(content, tuple(field.name for field in fields(cls)), "guarantee"))


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """The largest score of what is in a set, and what that promises.

    `value` is infinite if sets hold everything; `reason` then says why, or why nothing is promised.
    """

    value: float
    guarantee: Guarantee
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.value != math.inf:
            object.__setattr__(self, "value", number(self.value, "threshold"))
        if self.reason is not None:
            words(self.reason, "reason")

    @property
    def infinite(self) -> bool:
        """Whether sets hold everything."""
        return self.value == math.inf

    @classmethod
    def of(cls, found: Mapping[str, Any], guarantee: Mapping[str, Any] | None = None) -> Threshold:
        """The threshold in the results of a run, or in one of their groups or sites.

        Raises `DataError` with the reason if there is none.
        """
        value = math.inf if found["infinite"] else found["threshold"]
        if value is None:
            raise DataError(f"result: it has no threshold: {found.get('reason', 'it does not say why')}.")
        return cls(
            value=value,
            guarantee=Guarantee.of(found["guarantee"] if guarantee is None else guarantee),
            reason=found.get("reason"),
        )

    def to_json(self) -> dict[str, Any]:
        """As plain values; JSON knows no infinite numbers."""
        return {
            "threshold": None if self.infinite else self.value,
            "infinite": self.infinite,
            "reason": self.reason,
            "guarantee": asdict(self.guarantee),
        }

    @classmethod
    def from_json(cls, content: object) -> Threshold:
        """What `to_json` was called on; anything else is refused."""
        given = entries(content, _KEYS, "thresholds")
        infinite = truth(given["infinite"], "infinite")
        if infinite and given["threshold"] is not None:
            raise UsageError(
                "the entry 'threshold' holds a number and is said to be infinite, expected one of these."
            )
        return cls(
            value=math.inf if infinite else number(given["threshold"], "threshold"),
            guarantee=Guarantee.from_json(given["guarantee"]),
            reason=given["reason"],
        )
