"""Threshold of prediction sets: the requested coverage, and what is known about the threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedassay.estimation.coverage.law import CoverageOfThreshold


@dataclass(frozen=True, kw_only=True)
class CoverageRequest:
    """Requested coverage, and the confidence over the calibration rows (None: on average over them)."""

    level: float
    confidence: float | None = None


# --- a threshold --------------------------------------------------------------------------------------------

CURVE_POINTS = 101
SHOWN_QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)

IDENTICAL = (
    "rows of all clients, and the rows to be predicted, come independently from one distribution; the model was not "
    "trained on these rows"
)
EVERYTHING = "The set holds everything, and so covers every new row."
PARTIAL = (
    "rows are exchangeable within each client, and a new row comes from client j with probability (n_j+1)/(N+K), for "
    "n_j of all N rows and K clients"
)


@dataclass(frozen=True, kw_only=True)
class Found:
    """One threshold of a method.

    Parameters
    ----------
    threshold : infinite if the set holds everything; None if there is not one for all.
    law : of the coverage; None if it is not known.
    promised : the marginal coverage that is guaranteed, if it is not the mean of the law; without either, nothing is.
    reached : the probability over the calibration rows that the level is reached, if it is not the law's.
    exact : whether `law` is that of continuous scores itself; otherwise it is a lower bound.
    pair : (ℓ, k), if all clients have the same ℓ.
    rows, clients : numbers of each that it was computed from; rows are estimated under noise.
    assumption : under which the law holds.
    reason : why there is no finite threshold, or no promise.
    details : further results of the method, as JSON.
    notes : sentences for the user.
    """

    threshold: float | None
    law: CoverageOfThreshold | None = None
    promised: float | None = None
    reached: float | None = None
    exact: bool = True
    pair: tuple[int, int] | None = None
    rows: float | None = None
    clients: int | None = None
    assumption: str = IDENTICAL
    reason: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def everything(cls, reason: str, *, clients: int | None = None, notes: tuple[str, ...] = ()) -> Found:
        """Return the answer where there is no finite threshold: the set holds everything, and covers everything."""
        return cls(
            threshold=math.inf,
            promised=1.0,
            reached=1.0,
            exact=False,
            clients=clients,
            reason=reason.removesuffix("."),
            notes=notes,
        )

    @property
    def infinite(self) -> bool:
        """True if the set holds everything."""
        return self.threshold == math.inf

    def to_json(
        self, *, level: float, confidence: float | None, over_classes: bool = False
    ) -> dict[str, Any]:
        """Return threshold, guarantee, pair and law as JSON; `over_classes`: the guarantee is not for each class."""
        return {
            "threshold": None if self.infinite else self.threshold,
            "infinite": self.infinite,
            **({} if self.reason is None else {"reason": self.reason}),
            "guarantee": self._guarantee(level, confidence, over_classes=over_classes),
            "pair": None if self.pair is None else list(self.pair),
            "coverage_law": None if self.law is None else law_to_json(self.law, exact=self.exact),
            "rows": None if self.rows is None else max(0.0, self.rows),
            "clients": self.clients,
            **self.details,
        }

    def _guarantee(self, level: float, confidence: float | None, *, over_classes: bool) -> dict[str, Any]:
        mean, reached = self.promised, self.reached
        if self.law is not None:
            mean = self.law.mean if mean is None else mean
            reached = self.law.probability_at_least(level) if reached is None else reached
        everything = self.infinite and self.law is None
        kind = "marginal" if confidence is None else "training-conditional"
        if mean is None:
            kind, text = "none", f"No coverage is guaranteed: {self.reason}."
        elif everything:
            text = EVERYTHING
        else:
            text = self._words(level, confidence, mean, reached)
            if over_classes:
                text = f"Over all classes together, and not for each: a{text[1:]}"
        return {
            "kind": kind,
            "level": level,
            "confidence": None if mean is None else confidence,
            "coverage": mean,
            "probability": reached,
            "assumption": None if mean is None or everything else self.assumption,
            "text": text,
        }

    def _words(self, level: float, confidence: float | None, mean: float, reached: float | None) -> str:
        sign, noise = ("is", "") if self.exact else ("is at least", ", whatever noise there is,")
        text = (
            f"A new row is covered with probability at least {level:g}, over the calibration rows{noise} and the new "
            f"one. For continuous scores the probability {sign} {_down(mean)}; ties only make it larger."
        )
        if confidence is not None:
            text += (
                f" With probability at least {confidence:g} over the calibration rows, the set that was found covers "
                f"a share of at least {level:g} of all new rows (computed: {_down(reached)})."
            )
        return f"{text} Assumed: {self.assumption}."


def _down(number: float | None) -> str:
    """Format a number with four digits, rounded down."""
    return "unknown" if number is None else f"{math.floor(number * 1e4 + 1e-9) / 1e4:.4f}"


def law_to_json(law: CoverageOfThreshold, *, exact: bool) -> dict[str, Any]:
    """Return mean, spread, quantiles and the distribution function where it rises."""
    low, high = law.quantile(1e-4), law.quantile(1 - 1e-4)
    coverage = np.unique(np.linspace(low, high, CURVE_POINTS)).tolist()
    return {
        "mean": law.mean,
        "standard_deviation": law.standard_deviation,
        "exact": exact,
        "quantiles": [{"probability": p, "coverage": law.quantile(p)} for p in SHOWN_QUANTILES],
        "curve": {"coverage": coverage, "cdf": [min(1.0, max(0.0, law.cdf(t))) for t in coverage]},
    }
