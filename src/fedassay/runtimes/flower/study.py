"""Content of a study in a deployment, as plain values that fit into Flower's run configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fedassay.errors import UsageError
from fedassay.kernel.agenda import Agenda
from fedassay.protocol.parameters import made
from fedassay.protocol.vocabulary import Budget, Neighbours, Protection, TrustModel, Unit
from fedassay.runtimes.released import Proposal
from fedassay.tasks.card import DEFAULT
from fedassay.trust import TRUST_MODELS
from fedassay.trust.card import DEFAULT_TRUST

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NOT_KNOWN = 0
_EVALUATION, _DEFAULT_MODEL, _EACH_ROW = Agenda.of(DEFAULT, {}), TRUST_MODELS[DEFAULT_TRUST](), Protection()

Config = dict[str, str | int | float]


@dataclass(frozen=True, kw_only=True)
class FlowerStudy(Proposal):
    """One run of one task, or of several. Its name stands for its journal: the same name goes on with the same run.

    Everything is checked when it is made, so that what cannot run is refused before it is sent.

    Examples
    --------
    >>> study = FlowerStudy(name="spring-2026", agenda=Agenda.of("evaluate", {"thresholds": [0.2, 0.5]}))
    >>> FlowerStudy.from_config(study.to_config()) == study
    True
    >>> from fedassay.trust.server_dp import ServerDP
    >>> FlowerStudy(name="spring-2026", trust=ServerDP())
    Traceback (most recent call last):
    fedassay.errors.UsageError: privacy server-dp: it adds noise, so it needs a budget; give an epsilon.
    """

    agenda: Agenda = _EVALUATION
    trust: TrustModel = _DEFAULT_MODEL
    budget: Budget | None = None
    protection: Protection = _EACH_ROW
    timeout: float = 120.0
    wait: float = 60.0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"study: got {self.name!r}, expected up to 64 letters, digits, dots, dashes and underscores."
            )
        if not (0 < self.timeout <= 86_400 and 0 <= self.wait <= 86_400):
            raise UsageError("timeout and wait: expected seconds, at most a day.")
        if self.trust.private and self.budget is None:
            raise UsageError(
                f"privacy {self.trust.name}: it adds noise, so it needs a budget; give an epsilon."
            )
        self.agenda.rehearse(self.setting(_NOT_KNOWN))

    def to_config(self) -> Config:
        """Return the study as a run configuration; an epsilon or a bound of 0 stands for none."""
        return {
            "study": self.name,
            "tasks": json.dumps(self.agenda.to_message()),
            "privacy": self.trust.name,
            "privacy-parameters": json.dumps(asdict(self.trust)),  # type: ignore[call-overload]
            "epsilon": 0.0 if self.budget is None else self.budget.epsilon,
            "delta": 0.0 if self.budget is None else self.budget.delta,
            "unit": str(self.protection.unit),
            "neighbours": str(self.protection.neighbours),
            "rows-per-client": self.protection.rows_per_client or 0,
            "timeout": self.timeout,
            "wait": self.wait,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> FlowerStudy:
        """Read the study that a run configuration asks for."""
        try:
            epsilon, delta = float(config["epsilon"]), float(config["delta"])
            return cls(
                name=str(config["study"]),
                agenda=Agenda.from_message(json.loads(config["tasks"])),
                trust=_trust_model(str(config["privacy"]), json.loads(config["privacy-parameters"])),
                budget=Budget(epsilon=epsilon, delta=delta) if epsilon else None,
                protection=Protection(
                    unit=Unit(config["unit"]),
                    neighbours=Neighbours(config["neighbours"]),
                    rows_per_client=int(config["rows-per-client"]) or None,
                ),
                timeout=float(config["timeout"]),
                wait=float(config["wait"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"run configuration: an entry is missing or of the wrong kind ({error})."
            ) from error


def _trust_model(name: str, given: Mapping[str, Any]) -> TrustModel:
    if name not in TRUST_MODELS:
        raise UsageError(f"privacy: got {name!r}, expected one of {', '.join(TRUST_MODELS)}.")
    return made(TRUST_MODELS[name], given, of=name)
