"""What is asked in a deployment, as plain values that fit into Flower's run configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from fedassay.errors import UsageError
from fedassay.kernel.agenda import Agenda
from fedassay.protocol.vocabulary import Budget, Neighbours, Protection, Setting, TrustModel, Unit
from fedassay.tasks.card import DEFAULT
from fedassay.trust import TRUST_MODELS
from fedassay.trust.card import DEFAULT_TRUST

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NOT_KNOWN = 0
_EVALUATION = Agenda.of(DEFAULT, {})

Config = dict[str, str | int | float]


@dataclass(frozen=True, kw_only=True)
class FlowerStudy:
    """One run of one task, or of several. Its name stands for its journal: the same name goes on with the same run.

    Everything is checked when it is made, so that what cannot run is refused before it is sent.

    Examples
    --------
    >>> study = FlowerStudy(name="spring-2026", agenda=Agenda.of("evaluate", {"thresholds": [0.2, 0.5]}))
    >>> FlowerStudy.from_config(study.to_config()) == study
    True
    >>> FlowerStudy(name="spring-2026", privacy="server-dp")
    Traceback (most recent call last):
    fedassay.errors.UsageError: privacy server-dp: it adds noise, so it needs a budget; give an epsilon.
    """

    name: str
    agenda: Agenda = _EVALUATION
    privacy: str = DEFAULT_TRUST
    privacy_parameters: Mapping[str, Any] = field(default_factory=dict)
    epsilon: float | None = None
    delta: float = 0.0
    unit: Unit = Unit.EXAMPLE
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    rows_per_client: int | None = None
    timeout: float = 120.0
    wait: float = 60.0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"study: got {self.name!r}, expected up to 64 letters, digits, dots, dashes and underscores."
            )
        if not (0 < self.timeout <= 86_400 and 0 <= self.wait <= 86_400):
            raise UsageError("timeout and wait: expected seconds, at most a day.")
        self.agenda.rehearse(self.setting(clients=_NOT_KNOWN))

    @classmethod
    def under(
        cls, name: str, agenda: Agenda, setting: Setting, *, timeout: float, wait: float
    ) -> FlowerStudy:
        """What is asked, under the terms of a setting."""
        budget, protection = setting.budget, setting.protection
        return cls(
            name=name,
            agenda=agenda,
            privacy=setting.trust.name,
            privacy_parameters=asdict(setting.trust),  # type: ignore[call-overload]
            epsilon=None if budget is None else budget.epsilon,
            delta=0.0 if budget is None else budget.delta,
            unit=protection.unit,
            neighbours=protection.neighbours,
            rows_per_client=protection.rows_per_client,
            timeout=timeout,
            wait=wait,
        )

    def setting(self, *, clients: int) -> Setting:
        """What its tasks may know."""
        if self.privacy not in TRUST_MODELS:
            raise UsageError(f"privacy: got {self.privacy!r}, expected one of {', '.join(TRUST_MODELS)}.")
        trust: TrustModel = _made(TRUST_MODELS[self.privacy], self.privacy_parameters, what=self.privacy)
        if trust.private and self.epsilon is None:
            raise UsageError(f"privacy {self.privacy}: it adds noise, so it needs a budget; give an epsilon.")
        return Setting(
            trust=trust,
            protection=Protection(
                unit=self.unit, neighbours=self.neighbours, rows_per_client=self.rows_per_client
            ),
            budget=None if self.epsilon is None else Budget(epsilon=self.epsilon, delta=self.delta),
            clients=clients,
        )

    def to_config(self) -> Config:
        """The study as a run configuration; an epsilon or a bound of 0 stands for none."""
        return {
            "study": self.name,
            "tasks": json.dumps(self.agenda.to_message()),
            "privacy": self.privacy,
            "privacy-parameters": json.dumps(dict(self.privacy_parameters)),
            "epsilon": self.epsilon or 0.0,
            "delta": self.delta,
            "unit": str(self.unit),
            "neighbours": str(self.neighbours),
            "rows-per-client": self.rows_per_client or 0,
            "timeout": self.timeout,
            "wait": self.wait,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> FlowerStudy:
        """The study that a run configuration asks for."""
        try:
            return cls(
                name=str(config["study"]),
                agenda=Agenda.from_message(json.loads(config["tasks"])),
                privacy=str(config["privacy"]),
                privacy_parameters=_object(config["privacy-parameters"]),
                epsilon=float(config["epsilon"]) or None,
                delta=float(config["delta"]),
                unit=Unit(config["unit"]),
                neighbours=Neighbours(config["neighbours"]),
                rows_per_client=int(config["rows-per-client"]) or None,
                timeout=float(config["timeout"]),
                wait=float(config["wait"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"run configuration: an entry is missing or of the wrong kind ({error})."
            ) from error


def _object(text: Any) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value


def _made(kind: type[Any], given: Mapping[str, Any], *, what: str) -> Any:
    """An object of a catalogue from JSON values; lists become tuples."""
    known = {entry.name for entry in fields(kind)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise UsageError(f"{what}: unknown parameter {unknown[0]!r}; expected {', '.join(sorted(known))}.")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{what}: a parameter is of the wrong kind ({error}).") from error
