"""A second server (helper): it sees what a trust model routes to it, never rows."""

from __future__ import annotations

from fedassay.endpoint import Endpoint, Store
from fedassay.envelope import Envelope, Summaries, TrustModels
from fedassay.protocol import Message, Randomness
from fedassay.summaries import CATALOGUE
from fedassay.trust import TRUST_MODELS


class Helper(Endpoint):
    """Drives the helper half of trust models that have one."""

    begins_at_leg_0 = False

    def __init__(
        self,
        name: str,
        *,
        randomness: Randomness,
        store: Store | None = None,
        summaries: Summaries = CATALOGUE,
        trust_models: TrustModels = TRUST_MODELS,
    ) -> None:
        super().__init__(
            name,
            store=store if store is not None else Store(),
            summaries=summaries,
            trust_models=trust_models,
        )
        self._randomness = randomness

    def agree(self, opened: Envelope) -> None:
        """A helper holds no rows, so it has nothing to protect but what the trust model gives it."""

    def reply(self, opened: Envelope, state: Message) -> tuple[Message, Message]:
        """The trust model's helper half."""
        return opened.trust.assist(opened.request, state, self._randomness)
