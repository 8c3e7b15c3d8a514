"""The methods by name, and the choice among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, get_args

from fedassay.estimation.evidence import Evidence, Floats
from fedassay.estimation.metric import Undefined
from fedassay.estimation.ratios import CLEAR
from fedassay.tasks.calibration.bbq import bbq
from fedassay.tasks.calibration.fitted import Fitted
from fedassay.tasks.calibration.histogram import histogram_binning
from fedassay.tasks.calibration.isotonic import isotonic
from fedassay.tasks.calibration.parameters import Method
from fedassay.tasks.calibration.sigmoids import beta, platt

AUTO = "auto"

Fit = Callable[[Evidence], Fitted]

FITS: Mapping[str, Fit] = MappingProxyType(
    {"histogram": histogram_binning, "bbq": bbq, "isotonic": isotonic, "platt": platt, "beta": beta}
)
METHODS = get_args(Method)

_SIMPLEST_FIRST = ("platt", "beta", "isotonic", "histogram", "bbq")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The calibrator that was fitted, or the reason why there is none; for `auto`, what was compared."""

    fitted: Fitted | None
    reason: str | None = None
    candidates: tuple[Mapping[str, Any], ...] = ()


def fit(evidence: Evidence, method: str, *, bins: int | None = None) -> Choice:
    """Fit one method, or with `auto` all of them and keep the best.

    The best is the one with the smallest log loss to expect on new rows: the log loss of the rows it was
    fitted to plus its `optimism`. Under noise a simpler method is left only for a gain that noise does not
    explain. Held-out rows are not looked at.
    """
    if method == AUTO:
        return _best({name: _one(evidence, name, bins=bins) for name in FITS}, evidence)
    return _one(evidence, method, bins=bins)


def _one(evidence: Evidence, method: str, *, bins: int | None) -> Choice:
    try:
        fitted = histogram_binning(evidence, bins=bins) if method == "histogram" else FITS[method](evidence)
    except Undefined as error:
        return Choice(fitted=None, reason=str(error))
    return Choice(fitted=fitted)


def _best(choices: Mapping[str, Choice], evidence: Evidence) -> Choice:
    candidates: list[dict[str, Any]] = []
    best: _Contender | None = None
    for name in _SIMPLEST_FIRST:
        contender, reason = _contender(choices[name], evidence)
        loss = None if contender is None else contender.expected_loss
        candidates.append(
            {"method": name, "expected_log_loss": loss, **({"reason": reason} if reason else {})}
        )
        if contender is not None and (best is None or contender.beats(best)):
            best = contender
    if best is None:
        return Choice(fitted=None, reason=candidates[0]["reason"], candidates=tuple(candidates))
    return Choice(fitted=best.fitted, candidates=tuple(candidates))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Contender:
    """A fitted method with the log loss to expect of it on new rows: that of its own rows plus its optimism."""

    fitted: Fitted
    evidence: Evidence
    log_probabilities: tuple[Floats, Floats]

    @property
    def expected_loss(self) -> float:
        return (self.fitted.optimism - self.evidence.total(*self.log_probabilities)) / self.evidence.rows

    def beats(self, simpler: _Contender) -> bool:
        """Whether it is better than a simpler one, by more than privacy noise explains."""
        gaps = (
            ours - theirs
            for ours, theirs in zip(self.log_probabilities, simpler.log_probabilities, strict=True)
        )
        noise = math.sqrt(self.evidence.privacy_variance(*gaps)) / self.evidence.rows
        return simpler.expected_loss - self.expected_loss > CLEAR * noise


def _contender(choice: Choice, evidence: Evidence) -> tuple[_Contender | None, str | None]:
    if choice.fitted is None:
        return None, choice.reason
    logs = choice.fitted.log_probabilities(evidence)
    if logs is None:
        return None, "it gives some rows the probability 0 or 1, which one new row can contradict"
    return _Contender(fitted=choice.fitted, evidence=evidence, log_probabilities=logs), None
