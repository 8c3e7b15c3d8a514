"""A study by files: the announcement of its coordinator, and the drop and the state in which it is held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedassay.crypto.identity import Identity
from fedassay.crypto.keys import KeyPair, Secret, is_usable
from fedassay.errors import FedassayError, ProtocolError, UsageError
from fedassay.kernel import envelope
from fedassay.kernel.agenda import Agenda
from fedassay.kernel.endpoint import write_durably
from fedassay.kernel.envelope import Envelope, TrustModels
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import (
    COORDINATOR,
    Budget,
    Message,
    Protection,
    Randomness,
    Setting,
    TrustModel,
)
from fedassay.runtimes.file_drop import letters
from fedassay.runtimes.file_drop.letters import EVERYONE, Letter, LetterKind, check_name, open_letter
from fedassay.runtimes.released import Proposal
from fedassay.trust import TRUST_MODELS

LARGEST_ANNOUNCEMENT = 1 << 20
"""Largest size of an announcement (1 MiB)."""

_FIELDS = (
    *("study", "tasks", "trust", "unit", "neighbours", "rows_per_client", "epsilon", "delta"),
    *("roster", "helpers", "reply_key"),
)


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
        """Parties that are asked, with their public keys."""
        return {**self.roster, **self.helpers}

    @property
    def setting(self) -> Setting:
        """Setting that every query of the study must have."""
        return Setting(
            trust=self.trust, protection=self.protection, budget=self.budget, clients=len(self.roster)
        )

    def encode(self) -> bytes:
        """Return the body of the announcement's letter."""
        return wire.encode(
            {
                "study": self.study,
                "tasks": self.agenda.to_message(),
                "trust": envelope.describe(self.trust),
                **envelope.describe_terms(self.protection, self.budget),
                "roster": dict(self.roster),
                "helpers": dict(self.helpers),
                "reply_key": self.reply_key,
            }
        )

    @classmethod
    def decode(cls, body: bytes, *, where: str, trust_models: TrustModels = TRUST_MODELS) -> Announcement:
        """Read the announcement in a letter, or raise `ProtocolError`."""
        try:
            return _rebuild(wire.decode(body, largest=LARGEST_ANNOUNCEMENT), trust_models)
        except (FedassayError, KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"{where}: the announcement is not valid ({error})") from error

    def check(self, opened: Envelope, *, where: str) -> None:
        """Refuse a request that asks under other terms than were announced."""
        differs, settings = None, [plan.setting for plan in opened.request.plans]
        if opened.study != self.study:
            differs = f"the study {opened.study!r}"
        elif opened.trust != self.trust or any(setting.trust != self.trust for setting in settings):
            differs = f"the trust model {opened.trust.name} or its parameters"
        elif opened.reply_key != self.reply_key:
            differs = "the key for replies"
        elif not set(opened.tasks) <= self.agenda.labels:
            differs = f"the task {', '.join(opened.tasks)}"
        elif opened.request.cohort > len(self.roster) or any(setting != self.setting for setting in settings):
            differs = "the budget, the protected unit or the number of sites"
        if differs is not None:
            raise ProtocolError(f"{where}: {differs} is not what was announced; it is refused.")


def _rebuild(content: Message, trust_models: TrustModels) -> Announcement:
    if set(content) != set(_FIELDS):
        raise ProtocolError("its fields are not those of an announcement.")
    if type(content["study"]) is not str or type(content["reply_key"]) is not bytes:
        raise ProtocolError("the field study or reply_key is of the wrong type.")
    if (content["epsilon"] is None) != (content["delta"] is None):
        raise ProtocolError("the budget is not two numbers.")
    protection, budget = envelope.rebuild_terms(content)
    return Announcement(
        study=content["study"],
        agenda=Agenda.from_message(content["tasks"]),
        trust=envelope.rebuild(trust_models, content["trust"]),
        protection=protection,
        budget=budget,
        roster=_keys(content["roster"]),
        helpers=_keys(content["helpers"]),
        reply_key=content["reply_key"],
    )


def _keys(value: Any) -> dict[str, bytes]:
    if not isinstance(value, dict) or not all(type(k) is bytes and len(k) == 32 for k in value.values()):
        raise ProtocolError("a roster is not a list of public keys of 32 bytes.")
    return value


def read_announcement(
    drop: Path, *, believed: Mapping[str, bytes], trust_models: TrustModels
) -> tuple[Announcement, bytes] | None:
    """Read the study announced in a drop, and its file, if the coordinator signed it; None if there is none.

    `believed` are public keys by name, as in `open_letter`.
    """
    path = drop / letters.ANNOUNCEMENT
    data = letters.read(path, largest=LARGEST_ANNOUNCEMENT)
    if data is None:
        return None
    letter = open_letter(
        data,
        where=str(path),
        sender=COORDINATOR,
        believed=believed,
        recipient=EVERYONE,
        kinds=(LetterKind.ANNOUNCEMENT,),
        number=0,
        study=None,
    )
    announcement = Announcement.decode(letter.body, where=str(path), trust_models=trust_models)
    if announcement.study != letter.study:
        raise ProtocolError(f"{path}: the announcement and its envelope name different studies.")
    return announcement, data


# --- a study as its coordinator holds it --------------------------------------------------------------------

_CARDS = "cards"
_DROP = "drop"
"""File in the coordinator's own folder that records where the study was announced."""


@dataclass(frozen=True, kw_only=True)
class FileDropStudy:
    """An announced study: where its files are, and the keys to read the replies.

    `home` is the study's own folder in the coordinator's state: its journal, the record of its passes, the
    replies that were accepted, and the key that opens them.
    """

    drop: Path
    home: Path
    identity: Identity = field(repr=False)
    announcement: Announcement
    reply_pair: KeyPair = field(repr=False)

    @classmethod
    def begin(
        cls,
        drop: Path,
        *,
        state: Path,
        identity: Identity,
        proposal: Proposal,
        roster: dict[str, bytes],
        helpers: dict[str, bytes] | None = None,
        cards: Mapping[str, bytes] | None = None,
        randomness: Randomness,
    ) -> FileDropStudy:
        """Announce a new study in a folder that holds none.

        Trust models that need prekeys begin with those of the `cards`, of which each site has one; None looks for none.
        """
        if randomness.simulated:
            raise UsageError("seed: this is a release, whose noise must stay secret; leave the seed out.")
        check_name(proposal.name, what="study")
        reply_pair = KeyPair.draw(randomness)
        announcement = Announcement(
            study=f"{proposal.name[:40]}-{randomness.bytes(8).hex()}",
            agenda=proposal.agenda,
            trust=proposal.trust,
            protection=proposal.protection,
            budget=proposal.budget,
            roster=roster,
            helpers=helpers or {},
            reply_key=reply_pair.public,
        )
        without = [] if cards is None else sorted(roster.keys() - cards.keys())
        if proposal.trust.member_leg is not None and without:
            raise UsageError(
                f"roster: there is no prekey of {', '.join(without)}; expected the whole card of each site, as "
                f"`fedassay keys` prints it ({proposal.trust.name} begins with the prekeys on it)."
            )
        home = state / announcement.study
        study = cls(drop=drop, home=home, identity=identity, announcement=announcement, reply_pair=reply_pair)
        data = study._signed(EVERYONE, LetterKind.ANNOUNCEMENT, 0, announcement.encode())
        letters.put(home / "reply.key", reply_pair.private.data, private=True)
        letters.put(home / _DROP, str(drop.resolve()).encode(), private=True)
        letters.put(home / letters.ANNOUNCEMENT, data, private=True)
        letters.put(drop / letters.ANNOUNCEMENT, data)
        study.keep_cards(cards or {})
        return study

    def keep_cards(self, cards: Mapping[str, bytes]) -> None:
        """Keep the prekeys of the sites' roster cards, in the place of older ones."""
        kept = self.cards()
        if cards and {**kept, **cards} != kept:
            write_durably(self.home / _CARDS, wire.encode({**kept, **cards}))

    def cards(self) -> dict[str, bytes]:
        """Return the prekeys of the sites' roster cards, by name."""
        data = letters.read(self.home / _CARDS)
        return {} if data is None else wire.decode(data)

    @classmethod
    def resume(
        cls, drop: Path, *, state: Path, identity: Identity, trust_models: TrustModels = TRUST_MODELS
    ) -> FileDropStudy | None:
        """Return the study that this coordinator announced in this folder, or None if it holds none."""
        believed = {COORDINATOR: identity.public}
        found = read_announcement(drop, believed=believed, trust_models=trust_models)
        if found is None:
            return None
        announcement, data = found
        home = state / announcement.study
        private = letters.read(home / "reply.key")
        if private is None or letters.read(home / letters.ANNOUNCEMENT) != data:
            raise UsageError(
                f"{home}: does not hold the state of the study {announcement.study}; expected the folder "
                "that was used when the study began (--state)."
            )
        # A party that can write to the folder could put the announcement of an older, finished study there.
        begun_in = (letters.read(home / _DROP) or b"").decode()
        if begun_in != str(drop.resolve()):
            raise ProtocolError(
                f"{drop / letters.ANNOUNCEMENT}: announces the study {announcement.study}, which began in {begun_in}; "
                "it was copied here, or the folder was moved. Give that folder, or remove the file."
            )
        reply_pair = KeyPair.of(Secret(private))
        if reply_pair.public != announcement.reply_key:
            raise ProtocolError(f"{home / 'reply.key'}: is not the key of this study; restore it.")
        return cls(drop=drop, home=home, identity=identity, announcement=announcement, reply_pair=reply_pair)

    def write(self, recipient: str, kind: LetterKind, number: int, body: bytes) -> int:
        """Put a letter into the drop; its size."""
        data = self._signed(recipient, kind, number, body)
        letters.put(letters.request_path(self.drop, recipient, number), data)
        return len(data)

    def _signed(self, recipient: str, kind: LetterKind, number: int, body: bytes) -> bytes:
        letter = Letter(
            study=self.announcement.study,
            sender=COORDINATOR,
            recipient=recipient,
            kind=kind,
            number=number,
            body=body,
        )
        return letter.signed(self.identity)
