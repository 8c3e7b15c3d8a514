"""A second server (helper): it sees what a trust model routes to it, never rows."""

from __future__ import annotations

from dataclasses import replace

from fedassay.endpoint import Endpoint, Store
from fedassay.envelope import Envelope, Summaries, TrustModels
from fedassay.protocol import Credentials, Message, Randomness
from fedassay.summaries import CATALOGUE
from fedassay.trust import TRUST_MODELS


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
            store=store if store is not None else Store(),
            summaries=summaries,
            trust_models=trust_models,
        )
        self._randomness = randomness
        self._credentials = credentials

    def begins(self, opened: Envelope) -> bool:
        """Whenever the trust model asks it."""
        return True

    def agree(self, opened: Envelope) -> None:
        """A helper holds no rows, so it has nothing to protect but what the trust model gives it."""

    def reply(self, opened: Envelope, state: Message) -> tuple[Message, Message]:
        """The trust model's helper half."""
        request = replace(opened.request, credentials=self._credentials)
        return opened.trust.assist(request, state, self._randomness)
