"""A site's side: the checked request to it in a drop, and its one answer.

The order: announcement, roster, request, its agreement with the announcement. Only then does any party that
could answer get to see the request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedassay.crypto.identity import Credentials, fingerprint, key_to_text
from fedassay.errors import FedassayError, ProtocolError, UsageError
from fedassay.kernel import envelope
from fedassay.kernel.endpoint import Endpoint
from fedassay.kernel.envelope import Envelope, Summaries, TrustModels
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import COORDINATOR
from fedassay.runtimes.file_drop import letters
from fedassay.runtimes.file_drop.letters import Letter, LetterKind, check_name, open_letter
from fedassay.runtimes.file_drop.study import Announcement, read_announcement
from fedassay.summaries import CATALOGUE
from fedassay.trust import TRUST_MODELS


@dataclass(frozen=True, kw_only=True)
class CheckedRequest:
    """A request to this site that has passed every check, and the reply if it has been answered already."""

    announcement: Announcement
    number: int
    data: bytes = field(repr=False)
    """The request as an endpoint takes it."""
    files: tuple[bytes, bytes] = field(repr=False)
    """The announcement and the request as they were in the drop, signatures included."""
    opened: Envelope = field(repr=False)
    answered: bytes | None = field(default=None, repr=False)
    """The signed reply, if there is one."""


@dataclass(frozen=True, kw_only=True)
class Over:
    """The coordinator's last word to this site: ``finished`` or ``left out``."""

    announcement: Announcement
    reason: str


@dataclass(frozen=True, kw_only=True)
class Participant:
    """A site (or helper) in a drop.

    Guarantee: it answers only the latest request of an announced study, signed by the pinned coordinator, under
    exactly the announced terms, in a study whose sites are all pinned with the announced keys. A request is
    answered once: the signed reply is kept in `state` before it is put into the drop, and is what every later
    call puts there.
    """

    drop: Path
    name: str
    credentials: Credentials = field(repr=False)
    state: Path
    summaries: Summaries = field(default_factory=lambda: CATALOGUE, repr=False)
    trust_models: TrustModels = field(default_factory=lambda: TRUST_MODELS, repr=False)

    def __post_init__(self) -> None:
        check_name(self.name, what="name of this site")
        roster = self.credentials.roster
        for name in (COORDINATOR, self.name):
            if name not in roster:
                raise UsageError(
                    f"roster: got no public key of {name}, expected one; add it to the site's file."
                )
        if roster[self.name] != self.credentials.identity.public:
            raise UsageError(
                f"roster: the public key of {self.name} does not belong to this site's private key; print "
                "the right one with `fedassay keys`."
            )

    def asked(self) -> CheckedRequest | Over | None:
        """Return what the drop asks of this site now, or None if it asks nothing."""
        found, number = self._announced(), letters.latest(self.drop, self.name)
        if found is None or number is None:
            return None
        announcement, announced = found
        path = letters.request_path(self.drop, self.name, number)
        data = letters.read(path)
        if data is None:
            return None
        letter = open_letter(
            data,
            where=str(path),
            sender=COORDINATOR,
            believed=self.credentials.roster,
            recipient=self.name,
            kinds=(LetterKind.REQUEST, LetterKind.OVER),
            number=number,
            study=announcement.study,
        )
        if letter.kind is LetterKind.OVER:
            return Over(announcement=announcement, reason=_reason(letter.body, where=str(path)))
        known = letters.read(self._place(announcement, f"{number}.request"))
        if known is not None and known != data:
            raise ProtocolError(
                f"{path}: is another request than the one that this site has answered as number {number}; it "
                "is refused."
            )
        return CheckedRequest(
            announcement=announcement,
            number=number,
            data=letter.body,
            files=(announced, data),
            opened=self._opened(letter.body, announcement, where=str(path), is_first=number == 1),
            answered=letters.read(self._place(announcement, f"{number}.reply")),
        )

    def _announced(self) -> tuple[Announcement, bytes] | None:
        """Return the study announced in the drop, checked against what this site believes, and its file."""
        roster, path = self.credentials.roster, self.drop / letters.ANNOUNCEMENT
        found = read_announcement(self.drop, believed=roster, trust_models=self.trust_models)
        if found is None:
            return None
        announcement, data = found
        if self.name not in announcement.parties:
            raise ProtocolError(f"{path}: this study does not include {self.name}; nothing is asked of it.")
        _check_roster(announcement.parties, roster, where=str(path))
        pinned = letters.read(self._place(announcement, letters.ANNOUNCEMENT))
        if pinned is not None and pinned != data:
            raise ProtocolError(
                f"{path}: the announcement of {announcement.study} has changed; it is refused."
            )
        return found

    def answer(self, asked: CheckedRequest, endpoint: Endpoint) -> bytes:
        """Return the endpoint's reply or refusal. Nothing is written to the drop."""
        if endpoint.name != self.name:
            raise UsageError(f"endpoint: got {endpoint.name!r}, expected {self.name!r}.")
        return endpoint.answer(
            asked.data, asker=key_to_text(self.credentials.roster[COORDINATOR]), read=asked.opened
        )

    def send(self, asked: CheckedRequest, reply: bytes) -> Path:
        """Sign the reply, keep it, and put it into the drop; a request that has a reply keeps that one."""
        announcement, number = asked.announcement, asked.number
        signed = letters.read(self._place(announcement, f"{number}.reply"))
        if signed is None:
            signed = Letter(
                study=announcement.study,
                sender=self.name,
                recipient=COORDINATOR,
                kind=LetterKind.REPLY,
                number=number,
                body=reply,
            ).signed(self.credentials.identity)
            names = (letters.ANNOUNCEMENT, f"{number}.request", f"{number}.reply")
            for name, data in zip(names, (*asked.files, signed), strict=True):
                letters.put(self._place(announcement, name), data, private=True)
        path = letters.reply_path(self.drop, self.name, number)
        letters.put(path, signed)
        return path

    def _place(self, announcement: Announcement, name: str) -> Path:
        return self.state / "file-drop" / announcement.study / name

    def _opened(self, data: bytes, announcement: Announcement, *, where: str, is_first: bool) -> Envelope:
        try:
            opened = envelope.open_request(data, summaries=self.summaries, trust_models=self.trust_models)
        except FedassayError as error:
            raise type(error)(f"{where}: {error}") from error
        except (
            Exception
        ) as error:  # fields of strange types; the coordinator signed them, but is not believed
            raise ProtocolError(f"{where}: the request is malformed.") from error
        announcement.check(opened, where=where)
        if opened.request.recipient != self.name:
            raise ProtocolError(f"{where}: the request inside is for {opened.request.recipient!r}.")
        if not is_first:
            return opened
        try:
            return replace(opened, announced=announcement.agenda.first_questions(announcement.setting))
        except FedassayError as error:
            raise ProtocolError(f"{where}: what is announced cannot be asked: {error}") from error


def announcement_fingerprint(announcement: Announcement) -> str:
    """Return the text that two people compare to be sure that they see the same announcement."""
    return fingerprint(hashlib.sha256(announcement.encode()).digest())


def _check_roster(announced: Mapping[str, bytes], pinned: Mapping[str, bytes], *, where: str) -> None:
    for name, key in announced.items():
        if name not in pinned:
            raise ProtocolError(
                f"{where}: the study includes {name}, whose public key is not in this site's roster; ask "
                f"{name} for it (fingerprint {fingerprint(key)} is announced) and add it to the site's file."
            )
        if pinned[name] != key:
            raise ProtocolError(
                f"{where}: the announced key of {name} has the fingerprint {fingerprint(key)}, expected "
                f"{fingerprint(pinned[name])} from this site's roster; ask {name} which one is right."
            )


def _reason(body: bytes, *, where: str) -> str:
    try:
        reason = wire.decode(body, largest=1000).get("reason")
    except ProtocolError:
        reason = None
    if reason not in ("finished", "left out"):
        raise ProtocolError(f"{where}: says that something is over, but not what.")
    return str(reason)
