"""A second server (helper): it sees what a trust model routes to it, never rows."""

from __future__ import annotations

import logging
from dataclasses import replace

from fedassay.endpoint import Endpoint, Store
from fedassay.envelope import Envelope, Summaries, TrustModels
from fedassay.errors import PolicyRefusal
from fedassay.protocol import Credentials, Message, Randomness
from fedassay.server_store import MARK
from fedassay.summaries import CATALOGUE
from fedassay.trust import TRUST_MODELS
from fedassay.trust.doubts import MOST_DOUBTS

log = logging.getLogger("fedassay.helper")


KEPT_EXCHANGES = 64
"""More than a study has tasks: each may go on later from what a server keeps (`Points`)."""


class Helper(Endpoint):
    """Drives the helper half of trust models that have one."""

    def __init__(
        self,
        name: str,
        *,
        randomness: Randomness,
        store: Store | None = None,
        summaries: Summaries = CATALOGUE,
        trust_models: TrustModels = TRUST_MODELS,
        credentials: Credentials | None = None,
    ) -> None:
        super().__init__(
            name,
            store=store if store is not None else Store(kept=KEPT_EXCHANGES),
            credentials=credentials,
            summaries=summaries,
            trust_models=trust_models,
        )
        self._randomness = randomness

    def begins(self, opened: Envelope) -> bool:
        """Whenever the trust model asks it."""
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
                f"{self.name}: {told}. Nothing new is begun until whoever runs this server has done so, and has "
                f"deleted the files *{MARK} in its store."
            )
        log.warning("%s: %s.", self.name, told)

    def reply(self, opened: Envelope, state: Message) -> tuple[Message, Message]:
        """The trust model's helper half."""
        request = replace(opened.request, credentials=self._credentials)
        return opened.trust.assist(request, state, self._randomness)
