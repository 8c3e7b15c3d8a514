"""A study as its coordinator holds it: the drop that everybody sees and the state that nobody else may see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedassay.crypto.identity import Identity
from fedassay.crypto.keys import KeyPair, Secret
from fedassay.errors import ProtocolError, UsageError
from fedassay.kernel.agenda import Agenda
from fedassay.kernel.endpoint import write_durably
from fedassay.kernel.envelope import TrustModels
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import COORDINATOR, Budget, Protection, Randomness, TrustModel
from fedassay.runtimes.file_drop import letters
from fedassay.runtimes.file_drop.announcement import LARGEST_ANNOUNCEMENT, Announcement
from fedassay.runtimes.file_drop.letters import EVERYONE, Letter, LetterKind, check_name, open_letter
from fedassay.trust import TRUST_MODELS

_CARDS = "cards"
_DROP = "drop"
"""In the coordinator's own folder: where the study was announced."""


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
        name: str,
        agenda: Agenda,
        trust: TrustModel,
        protection: Protection,
        budget: Budget | None,
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
        check_name(name, what="study")
        reply_pair = KeyPair.draw(randomness)
        announcement = Announcement(
            study=f"{name[:40]}-{randomness.bytes(8).hex()}",
            agenda=agenda,
            trust=trust,
            protection=protection,
            budget=budget,
            roster=roster,
            helpers=helpers or {},
            reply_key=reply_pair.public,
        )
        without = [] if cards is None else sorted(roster.keys() - cards.keys())
        if trust.member_leg is not None and without:
            raise UsageError(
                f"roster: there is no prekey of {', '.join(without)}; expected the whole card of each site, as "
                f"`fedassay keys` prints it ({trust.name} begins with the prekeys on it)."
            )
        letter = Letter(
            study=announcement.study,
            sender=COORDINATOR,
            recipient=EVERYONE,
            kind=LetterKind.ANNOUNCEMENT,
            number=0,
            body=announcement.encode(),
        )
        home = state / announcement.study
        data = letter.signed(identity)
        letters.put(home / "reply.key", reply_pair.private.data, private=True)
        letters.put(home / _DROP, str(drop.resolve()).encode(), private=True)
        letters.put(home / letters.ANNOUNCEMENT, data, private=True)
        letters.put(drop / letters.ANNOUNCEMENT, data)
        study = cls(drop=drop, home=home, identity=identity, announcement=announcement, reply_pair=reply_pair)
        study.keep_cards(cards or {})
        return study

    def keep_cards(self, cards: Mapping[str, bytes]) -> None:
        """Keep the prekeys of the sites' roster cards, in the place of older ones."""
        kept = self.cards()
        if cards and {**kept, **cards} != kept:
            write_durably(self.home / _CARDS, wire.encode({**kept, **cards}))

    def cards(self) -> dict[str, bytes]:
        """The prekeys of the sites' roster cards, by name."""
        data = letters.read(self.home / _CARDS)
        return {} if data is None else wire.decode(data)

    @classmethod
    def resume(
        cls, drop: Path, *, state: Path, identity: Identity, trust_models: TrustModels = TRUST_MODELS
    ) -> FileDropStudy | None:
        """The study that this coordinator announced in this folder, or None if it holds none."""
        where = str(drop / letters.ANNOUNCEMENT)
        data = letters.read(drop / letters.ANNOUNCEMENT, largest=LARGEST_ANNOUNCEMENT)
        if data is None:
            return None
        letter = open_letter(
            data,
            where=where,
            sender=COORDINATOR,
            believed={COORDINATOR: identity.public},
            recipient=EVERYONE,
            kinds=(LetterKind.ANNOUNCEMENT,),
            number=0,
            study=None,
        )
        announcement = Announcement.decode(letter.body, where=where, trust_models=trust_models)
        home = state / announcement.study
        private = letters.read(home / "reply.key")
        if private is None or letters.read(home / letters.ANNOUNCEMENT) != data:
            raise UsageError(
                f"{home}: does not hold the state of the study {announcement.study}; expected the folder "
                "that was used when the study began (--state)."
            )
        # Whoever can write to the folder could put the announcement of an older, finished study there.
        begun_in = (letters.read(home / _DROP) or b"").decode()
        if begun_in != str(drop.resolve()):
            raise ProtocolError(
                f"{where}: announces the study {announcement.study}, which began in {begun_in}; it was copied "
                "here, or the folder was moved. Give that folder, or remove the file."
            )
        reply_pair = KeyPair.of(Secret(private))
        if reply_pair.public != announcement.reply_key:
            raise ProtocolError(f"{home / 'reply.key'}: is not the key of this study; restore it.")
        return cls(drop=drop, home=home, identity=identity, announcement=announcement, reply_pair=reply_pair)

    def write(self, recipient: str, kind: LetterKind, number: int, body: bytes) -> int:
        """Put a letter into the drop; its size."""
        letter = Letter(
            study=self.announcement.study,
            sender=COORDINATOR,
            recipient=recipient,
            kind=kind,
            number=number,
            body=body,
        )
        data = letter.signed(self.identity)
        letters.put(letters.request_path(self.drop, recipient, number), data)
        return len(data)
