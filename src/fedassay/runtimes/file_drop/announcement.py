"""What a coordinator announces before anything is asked, and what every request must agree with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedassay.crypto.keys import is_usable
from fedassay.errors import FedassayError, ProtocolError, UsageError
from fedassay.kernel import envelope
from fedassay.kernel.agenda import Agenda
from fedassay.kernel.envelope import Envelope, TrustModels
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import (
    COORDINATOR,
    Budget,
    Message,
    Neighbours,
    Protection,
    Setting,
    TrustModel,
    Unit,
)
from fedassay.runtimes.file_drop.letters import EVERYONE, check_name
from fedassay.trust import TRUST_MODELS

LARGEST_ANNOUNCEMENT = 1 << 20
"""No announcement may be longer (1 MiB)."""


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """The terms of a study. All of it is public.

    Parameters
    ----------
    study : unique: a name and random digits, so that no file fits two studies.
    agenda : the tasks that will ask, in the coordinator's words; the requests themselves are judged one by one.
    roster : the sites and their public keys; each site compares them with those it has pinned.
    helpers : second servers, for trust models that have one, and their public keys.
    reply_key : X25519; replies are sealed for it, so that only the coordinator reads them.
    """

    study: str
    agenda: Agenda
    trust: TrustModel
    protection: Protection
    budget: Budget | None
    roster: Mapping[str, bytes] = field(repr=False)
    helpers: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    reply_key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        check_name(self.study, what="study")
        names = [*self.roster, *self.helpers]
        for name in names:
            check_name(name, what="roster: a name")
        if COORDINATOR in names or EVERYONE in names or not self.roster:
            raise UsageError(f"roster: expected at least one site, none of them called {COORDINATOR}.")
        if len({name.casefold() for name in names}) != len(names):
            raise UsageError(
                "roster: two names differ in nothing or only in upper case; folders would clash."
            )
        if len(set(self.parties.values())) != len(names):
            raise UsageError("roster: two parties have the same public key; each needs its own.")
        if not is_usable(self.reply_key):
            raise UsageError("announcement: the key for replies is not usable.")

    @property
    def parties(self) -> dict[str, bytes]:
        """Everybody who is asked, with their public keys."""
        return {**self.roster, **self.helpers}

    @property
    def setting(self) -> Setting:
        """The setting that every query of the study must have."""
        return Setting(
            trust=self.trust, protection=self.protection, budget=self.budget, clients=len(self.roster)
        )

    def encode(self) -> bytes:
        """The body of the announcement's letter."""
        return wire.encode(
            {
                "study": self.study,
                "tasks": self.agenda.to_message(),
                "trust": envelope.describe(self.trust),
                "unit": str(self.protection.unit),
                "neighbours": str(self.protection.neighbours),
                "rows_per_client": self.protection.rows_per_client,
                "epsilon": None if self.budget is None else self.budget.epsilon,
                "delta": None if self.budget is None else self.budget.delta,
                "roster": dict(self.roster),
                "helpers": dict(self.helpers),
                "reply_key": self.reply_key,
            }
        )

    @classmethod
    def decode(cls, body: bytes, *, where: str, trust_models: TrustModels = TRUST_MODELS) -> Announcement:
        """The announcement in a letter, or `ProtocolError`."""
        try:
            return _rebuild(wire.decode(body, largest=LARGEST_ANNOUNCEMENT), trust_models)
        except (FedassayError, KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"{where}: the announcement is not valid ({error})") from error

    def check(self, opened: Envelope, *, where: str) -> None:
        """Refuse a request that asks under other terms than were announced."""
        differs = None
        if opened.study != self.study:
            differs = f"the study {opened.study!r}"
        elif opened.trust != self.trust or any(
            plan.setting.trust != self.trust for plan in opened.request.plans
        ):
            differs = f"the trust model {opened.trust.name} or its parameters"
        elif opened.reply_key != self.reply_key:
            differs = "the key for replies"
        elif not set(opened.tasks) <= self.agenda.labels:
            differs = f"the task {', '.join(opened.tasks)}"
        elif opened.request.cohort > len(self.roster) or any(
            plan.setting != self.setting for plan in opened.request.plans
        ):
            differs = "the budget, the protected unit or the number of sites"
        if differs is not None:
            raise ProtocolError(f"{where}: {differs} is not what was announced; it is refused.")


def _rebuild(content: Message, trust_models: TrustModels) -> Announcement:
    wanted = {
        *(
            "study",
            "tasks",
            "trust",
            "unit",
            "neighbours",
            "rows_per_client",
            "epsilon",
            "delta",
        ),
        *("roster", "helpers", "reply_key"),
    }
    if set(content) != wanted:
        raise ProtocolError("its fields are not those of an announcement.")
    kinds: dict[str, type] = {
        "study": str,
        "trust": dict,
        "reply_key": bytes,
    }
    for name, kind in kinds.items():
        if type(content[name]) is not kind:
            raise ProtocolError(f"the field {name} is of the wrong type.")
    if type(content["trust"].get("name")) is not str:
        raise ProtocolError("the trust model has no name.")
    rows = content["rows_per_client"]
    if rows is not None and type(rows) is not int:
        raise ProtocolError("the rows per client are not a whole number.")
    return Announcement(
        study=content["study"],
        agenda=Agenda.from_message(content["tasks"]),
        trust=envelope.rebuild(trust_models, content["trust"]),
        protection=Protection(
            unit=Unit(content["unit"]), neighbours=Neighbours(content["neighbours"]), rows_per_client=rows
        ),
        budget=_budget(content["epsilon"], content["delta"]),
        roster=_keys(content["roster"]),
        helpers=_keys(content["helpers"]),
        reply_key=content["reply_key"],
    )


def _budget(epsilon: Any, delta: Any) -> Budget | None:
    if epsilon is None and delta is None:
        return None
    if type(epsilon) is not float or type(delta) is not float:
        raise ProtocolError("the budget is not two numbers.")
    return Budget(epsilon=epsilon, delta=delta)


def _keys(value: Any) -> dict[str, bytes]:
    if not isinstance(value, dict) or not all(type(k) is bytes and len(k) == 32 for k in value.values()):
        raise ProtocolError("a roster is not a list of public keys of 32 bytes.")
    return value
