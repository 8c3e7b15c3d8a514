"""The coordinator's side: each call writes the open requests, takes the replies, and stops where it must wait.

A run is not kept alive between passes. `ask` raises `Waiting` while replies are missing, and the whole run is
called again later with the same journal; it repeats what was decided and goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from fedassay.crypto.identity import Credentials, key_to_text
from fedassay.errors import FedassayError, ProtocolError, UsageError
from fedassay.kernel import envelope
from fedassay.kernel.envelope import Refusal
from fedassay.kernel.journal import FileJournal
from fedassay.kernel.run import Errand
from fedassay.protocol import wire
from fedassay.protocol.vocabulary import COORDINATOR, Party, Released
from fedassay.runtimes.file_drop import letters
from fedassay.runtimes.file_drop.letters import LetterKind, open_letter
from fedassay.runtimes.file_drop.study import FileDropStudy
from fedassay.runtimes.messaging import MessagingRuntime


class Waiting(FedassayError):
    """Some replies are missing. Nothing failed: call again when they are there."""

    exit_code: ClassVar[int] = 0

    def __init__(self, *, number: int, answered: Sequence[str], missing: Sequence[str]) -> None:
        super().__init__(f"pass {number}: waiting for {', '.join(missing)}.")
        self.number = number
        self.answered = tuple(answered)
        self.missing = tuple(missing)


class FileDropRuntime(MessagingRuntime):
    """Runtime that carries messages as signed files.

    Guarantee: a reply counts only if its site signed it for this study and this pass; the first such reply is
    kept and no later one replaces it. A pass is over when all parties that were asked have replied, or when `close`
    requires it; what was decided is recorded before the next request is written, and repeated by every later call.

    Parameters
    ----------
    close : end the pass that is open now with the replies that are there. If they are too few, the pass stays
        open.
    """

    name = "file-drop"
    mode = "files"
    simulated = False

    def __init__(self, study: FileDropStudy, *, close: bool = False) -> None:
        self._believed = {**study.announcement.parties, COORDINATOR: study.identity.public}
        super().__init__(
            reply_pair=study.reply_pair,
            credentials=Credentials(identity=study.identity, roster=self._believed),
            asker=key_to_text(study.identity.public),
        )
        self.study = study
        self.clients = list(study.announcement.roster)
        self.notes: list[str] = []
        """Files that were refused, in words."""
        self._close = close
        self._passes = FileJournal(study.home / "passes")
        self._exchange = b""
        self._number = 0
        self._arrived: list[str] = []
        self._left_out: list[str] = []
        """Sites that were asked in the pass that was closed last, and have not answered properly."""

    @property
    def rounds(self) -> int:
        """Number of passes that are over, in the whole study."""
        return len(self._passes.entries("closed"))

    @property
    def bytes_in_all(self) -> int:
        """The size of all requests and replies of the passes that are over."""
        return sum(entry["bytes"] for entry in self._passes.entries("asked", "closed"))

    def close(self) -> None:
        """Let another process go on with this study."""
        self._passes.close()

    def carry(self, errand: Errand) -> tuple[Released[Any], ...]:
        """Carry one exchange out, or raise `Waiting`."""
        self._exchange = errand.exchange.id
        return super().carry(errand)

    def keep(self, name: str, prekeys: Sequence[bytes]) -> None:
        """Keep prekeys for the passes to come; the same ones come again whenever a pass is read again."""
        known = {statement for entry in self._passes.entries("offered") for statement in entry["prekeys"]}
        new = [statement for statement in prekeys if statement not in known]
        if new:
            self._passes.append({"kind": "offered", "name": name, "prekeys": new})

    def prekeys(self, names: Sequence[str]) -> Mapping[str, bytes]:
        """Return each site's newest prekey that was never named; else that on its card, which may be named again."""
        named = {statement for entry in self._passes.entries("named") for statement in entry["prekeys"]}
        self._stock = {name: [card] for name, card in self.study.cards().items()}
        for entry in self._passes.entries("offered"):
            super().keep(entry["name"], [one for one in entry["prekeys"] if one not in named])
        found = super().prekeys(names)
        missing = [name for name in names if name not in found]
        if missing and not self._close:
            raise UsageError(
                f"roster: there is no valid prekey of {', '.join(missing)}, expected one of each site; put the cards "
                "that `fedassay keys` prints there now into the roster file and give it again (--roster), or go on "
                "without these sites (--close)."
            )
        if found:
            self._passes.append({"kind": "named", "prekeys": list(found.values())})
        return found

    def ask(self, to: Party, requests: Mapping[str, bytes], leg: int) -> Iterable[tuple[str, bytes]]:
        """Write the requests and read the replies; raise `Waiting` if some are missing."""
        left_out, self._left_out = self._left_out, []
        number = self._number = self._pass_of(leg, list(requests))
        closed = self._passes.find("closed", number=number)
        if closed is not None:
            self._arrived = closed["from"]
            return ((name, self._kept(name, number)) for name in closed["from"])
        was_open = self._passes.find("asked", number=number) is not None
        close, self._close = self._close and was_open, False  # only the pass that was open before this call
        self._write(number, requests, left_out)
        replies, refused = self._collect(number, list(requests))
        self.notes += refused
        missing = [name for name in self.study.announcement.parties if name in requests.keys() - replies]
        if missing and not close:
            if refused:
                raise ProtocolError(" ".join(refused))
            self._note_refusals(requests, replies)
            raise Waiting(number=number, answered=list(replies), missing=missing)
        self._arrived = list(replies)
        return replies.items()

    def _note_refusals(self, requests: Mapping[str, bytes], replies: Mapping[str, bytes]) -> None:
        """Name those who declined while others are still missing."""
        for name, data in replies.items():
            with suppress(ProtocolError, ValueError):
                inner = envelope.opened(
                    data, self.reply_pair, request=requests[name], sender=name, credentials=self.credentials
                )
                self.refusals[name] = Refusal(str(wire.decode(inner).get("refusal")))

    def finish(self) -> None:
        """Tell every site that the study is over."""
        numbers = [entry["number"] for entry in self._passes.entries("asked")]
        body = wire.encode({"reason": "finished"})
        for name in self.study.announcement.parties:
            self.study.write(name, LetterKind.OVER, max(numbers, default=0) + 1, body)

    # --- passes -----------------------------------------------------------------------------------------

    def _pass_of(self, leg: int, names: list[str]) -> int:
        """Return the number of the pass that carries this leg of this exchange: the next one, if it is new."""
        known = self._passes.find("pass", exchange=self._exchange, leg=leg)
        if known is None:
            number = 1 + len(self._passes.entries("pass"))
            known = {"kind": "pass", "exchange": self._exchange, "leg": leg, "number": number, "of": names}
            self._passes.append(known)
        number = known["number"]
        assert isinstance(number, int)
        return number

    def _write(self, number: int, requests: Mapping[str, bytes], left_out: Sequence[str]) -> None:
        written = sum(
            self.study.write(name, LetterKind.REQUEST, number, data) for name, data in requests.items()
        )
        for name in left_out:
            if name not in requests:
                self.study.write(name, LetterKind.OVER, number, wire.encode({"reason": "left out"}))
        if self._passes.find("asked", number=number) is None:
            self._passes.append({"kind": "asked", "number": number, "bytes": written})

    def closed(self, errand: Errand, leg: int, heard: Sequence[str]) -> None:
        """Record the pass as closed, and who was heard in it."""
        number = self._number
        if self._passes.find("closed", number=number) is None:
            size = sum(len(letters.read(self._place(name, number)) or b"") for name in self._arrived)
            self._passes.append({"kind": "closed", "number": number, "from": self._arrived, "bytes": size})
        super().closed(errand, leg, heard)
        asked = self._passes.find("pass", number=number)
        assert asked is not None
        self._left_out = [name for name in asked["of"] if name not in heard]

    # --- replies ----------------------------------------------------------------------------------------

    def _place(self, name: str, number: int) -> Path:
        return letters.reply_path(self.study.home, name, number)

    def _kept(self, name: str, number: int) -> bytes:
        data = letters.read(self._place(name, number))
        if data is None:
            raise ProtocolError(f"{self._place(name, number)}: is missing from the state; restore it.")
        return self._opened(data, name, number, where=str(self._place(name, number)))

    def _collect(self, number: int, names: Sequence[str]) -> tuple[dict[str, bytes], list[str]]:
        """Return the replies that are there, kept from now on, and a sentence for each file that is refused."""
        replies, refused = {}, []
        for name in names:
            try:
                kept = self._place(name, number)
                path, data = kept, letters.read(kept)
                if data is None:
                    path = letters.reply_path(self.study.drop, name, number)
                    data = letters.read(path)
                if data is None:
                    continue
                body = self._opened(data, name, number, where=str(path))
                if path != kept:
                    letters.put(kept, data, private=True)
                replies[name] = body
            except ProtocolError as error:
                refused.append(str(error))
        return replies, refused

    def _opened(self, data: bytes, name: str, number: int, *, where: str) -> bytes:
        letter = open_letter(
            data,
            where=where,
            sender=name,
            believed=self._believed,
            recipient=COORDINATOR,
            kinds=(LetterKind.REPLY,),
            number=number,
            study=self.study.announcement.study,
        )
        return letter.body
