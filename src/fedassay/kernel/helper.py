"""A server that helps clients and coordinator: its answers, and what it keeps on its disk between messages.

Memory of a server between messages, on its disk: a file for each exchange.

Clients keep little and few exchanges; a server of `two-server` keeps the keys of all rows, of every exchange that may
be asked about again. So only the exchange that has changed is written, and only the one that is asked about is read.

====================  ==============================================================================================
``<exchange>.talk``   the exchange: terms, state, replies. Secret: it can hold one half of every row
``<exchange>.doubt``  there if it should be looked into (`fedassay.trust.question`), with the reason; it stays when the
                      exchange is forgotten, until the operator of the server deletes it
``lock``              held by the process that uses the folder
====================  ==============================================================================================

**Retention.** An exchange of which all is answered has no keys left, only its replies. One that can be
asked again (`Points`), or that was broken off, still holds one half of every row. `DAYS_KEPT` days after its last
message any exchange is deleted, whenever the folder is next opened; a question about it is then refused. (That a file
is deleted does not mean that the disk forgets it: use an encrypted one.)
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from fedassay.errors import PolicyRefusal
from fedassay.kernel.endpoint import Conversation, Endpoint, EndpointStore, write_durably
from fedassay.kernel.envelope import Envelope, Summaries, TrustModels
from fedassay.protocol import wire
from fedassay.protocol.files import Lock, sync_folder
from fedassay.protocol.texts import SafeLogger
from fedassay.protocol.vocabulary import Message, PartyKeys, Randomness
from fedassay.summaries import CATALOGUE
from fedassay.trust import TRUST_MODELS
from fedassay.trust.question import DOUBT, MOST_DOUBTS

DAYS_KEPT = 30
"""Days that an exchange is remembered after its last message."""

LARGEST_STORE = 1 << 32
"""Bytes of a store that begins other exchanges: room for sixteen of the largest."""

MARK = ".doubt"
_TALK = ".talk"


class ServerStore(EndpointStore):
    """A store in a folder that only its owner may read; what has changed is on the disk before a reply leaves.

    One process at a time: two that answered from the same state could draw noise twice. The lock lasts as long as this
    object, or until `close`.

    Edge cases: a file that was being written when the machine stopped is not there, as if its message had not come; one
    that cannot be read (a damaged disk) makes every question about its exchange fail, and no other.
    """

    def __init__(self, folder: Path, *, largest: int = LARGEST_STORE) -> None:
        super().__init__()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self.largest = largest
        self._doubted: dict[bytes, object] = {}
        """Entries under `DOUBT` of the exchanges on the disk, of those that were read."""
        self._lock = Lock(folder / "lock")
        for path in folder.glob("*.partial"):  # of a process that stopped while it wrote
            path.unlink()
        forget_old(folder)

    def find(self, exchange: bytes) -> Conversation | None:
        """Return the conversation of an exchange, from the disk if need be."""
        path = self._path(exchange, _TALK)
        if exchange not in self.conversations and path.exists():
            talk = Conversation.from_message(wire.decode(path.read_bytes()))
            self.conversations[exchange] = talk
            self._doubted[exchange] = talk.state.get(DOUBT)
        return self.conversations.get(exchange)

    def begin(self, exchange: bytes, terms: bytes) -> Conversation:
        """Open a conversation, if there is room for it; none is forgotten for it."""
        size = sum(path.stat().st_size for path in self.folder.iterdir())
        if size > self.largest:
            raise PolicyRefusal(
                f"{self.folder}: the store has {size:,} bytes, expected at most {self.largest:,} before another "
                f"exchange begins; delete the oldest files *{_TALK} (what they hold can then not be asked again)."
            )
        self.conversations[exchange] = Conversation(terms=terms)
        return self.conversations[exchange]

    def doubts(self) -> list[str]:
        """Return the reasons why some exchanges should be asked about: those whose mark was not deleted."""
        return [path.read_text(encoding="utf-8") for path in sorted(self.folder.glob(f"*{MARK}"))]

    def save_exchange(self, exchange: bytes) -> None:
        """Write one exchange to the disk; when this returns it is there."""
        talk, mark = self.conversations[exchange], self._path(exchange, MARK)
        doubt, before = talk.state.get(DOUBT), self._doubted.get(exchange)
        # In this order, so that a crash in between leaves a mark too many and never one too few. A deleted mark
        # does not come back for the same reason.
        if doubt is not None and doubt != before:
            write_durably(mark, str(doubt).encode())
        write_durably(self._path(exchange, _TALK), wire.encode(talk.to_message()))
        if doubt is None and before is not None:
            mark.unlink(missing_ok=True)
            sync_folder(self.folder)
        self._doubted[exchange] = doubt

    def save(self) -> None:
        """Write all exchanges that were touched."""
        for exchange in self.conversations:
            self.save_exchange(exchange)

    def close(self) -> None:
        """Let another process go on."""
        self._lock.close()

    def _path(self, exchange: bytes, suffix: str) -> Path:
        return self.folder / (exchange.hex() + suffix)


def forget_old(folder: Path) -> None:
    """Delete all exchanges that have been silent for `DAYS_KEPT` days, and what a crash left half written then.

    Without the lock it harms only a process that has such an exchange in its hands just then.
    """
    oldest = time.time() - DAYS_KEPT * 86_400
    for path in [*folder.glob(f"*{_TALK}"), *folder.glob("*.partial")]:
        if path.stat().st_mtime < oldest:
            path.unlink()
    sync_folder(folder)


# --- a second server (helper) -------------------------------------------------------------------------------

log = SafeLogger("fedassay.kernel.helper")


KEPT_EXCHANGES = 64
"""Number of exchanges kept, above that of a study's tasks: each may go on later from the server's store (`Points`)."""


class Helper(Endpoint):
    """Driver of the helper half of trust models that have one."""

    def __init__(
        self,
        name: str,
        *,
        randomness: Randomness,
        store: EndpointStore | None = None,
        summaries: Summaries = CATALOGUE,
        trust_models: TrustModels = TRUST_MODELS,
        credentials: PartyKeys | None = None,
    ) -> None:
        super().__init__(
            name,
            store=store if store is not None else EndpointStore(kept=KEPT_EXCHANGES),
            credentials=credentials,
            summaries=summaries,
            trust_models=trust_models,
        )
        self._randomness = randomness

    def begins(self, opened: Envelope) -> bool:
        """Return True: whenever the trust model asks it."""
        return True

    def agree(self, opened: Envelope) -> None:
        """Begin nothing new while too many exchanges gave reason to ask what the other server does.

        A helper holds no rows, so it has nothing else to protect but what the trust model gives it.
        """
        doubts = self.store.doubts()
        if not doubts:
            return
        told = f"{len(doubts)} exchanges should be looked into: {'; '.join(doubts)}"
        if len(doubts) >= MOST_DOUBTS:
            raise PolicyRefusal(
                f"{self.name}: {told}. Nothing new is begun until the operator of this server has done so, and has "
                f"deleted the files *{MARK} in its store."
            )
        log.warning("%s: %s.", self.name, told)

    def reply(self, opened: Envelope, state: Message) -> tuple[Message, Message]:
        """Run the trust model's helper half."""
        request = replace(opened.request, credentials=self._credentials)
        return opened.trust.assist(request, state, self._randomness)
