"""The server's end of a secure sum: open what must be opened, from shares that match their commitments.

A holder that reveals a false share counts as one that revealed none; it cannot change what is opened. A
dealer whose shares do not open to what it announced makes the run fail, by name: its masks are in the sum
and nobody else can remove them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from double_masking.keys import KEY, SEED, adds, commit, pair_mask, self_mask
from double_masking.masks import Words, add_masks
from double_masking.messages import Dealt, Keys, Revealed
from double_masking.shamir import combine
from fedassay.crypto.keys import KeyPair, Secret
from fedassay.errors import ProtocolError, TooFewClients


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What the server knows when it removes the masks."""

    session: bytes
    threshold: int
    keys: Mapping[str, Keys]
    dealt: Mapping[str, Dealt]
    alive: Mapping[str, Sequence[str]]
    revealed: Mapping[str, Revealed]

    def unmask(self, masked: Mapping[str, Words]) -> Words:
        """The total of the masked vectors without the masks that have not cancelled.

        These are the self masks of the survivors, and the masks between a survivor and a silent client.
        """
        total = np.zeros_like(next(iter(masked.values())))
        for vector in masked.values():
            np.add(total, vector, out=total)
        plus: list[Secret] = []
        minus: list[Secret] = []
        for i, left in self.alive.items():
            if i in masked:
                minus.append(self_mask(self.session, self._seed(i), i))
            elif left:
                pair = self._mask_key(i)
                for j in left:
                    mask = pair_mask(self.session, pair, i, j, self.keys[j].mask)
                    (minus if adds(j, i) else plus).append(mask)
        return add_masks(total, plus=plus, minus=minus)

    def _seed(self, dealer: str) -> Secret:
        seed = self._recover(SEED, dealer)
        if commit(self.session, SEED, dealer, "", seed) != self.dealt[dealer].seed:
            raise _false_dealer(dealer)
        return seed

    def _mask_key(self, dealer: str) -> KeyPair:
        pair = KeyPair.of(self._recover(KEY, dealer))
        if pair.public != self.keys[dealer].mask:
            raise _false_dealer(dealer)
        return pair

    def _recover(self, kind: str, dealer: str) -> Secret:
        """A dealer's secret, from the first t shares that match its commitments."""
        dealt, t = self.dealt[dealer], self.threshold
        place = {holder: x for x, holder in enumerate(sorted(dealt.sealed), start=1)}
        good: dict[int, Secret] = {}
        answered = [j for j in self.alive[dealer] if j in self.revealed]
        for holder in answered:
            share = self.revealed[holder][kind].get(dealer)
            if len(good) < t and share is not None and self._matches(kind, dealer, holder, share):
                good[place[holder]] = share
        if len(answered) < t:
            raise TooFewClients(
                f"secure sum: {len(answered)} neighbours of client {dealer!r} answered the last leg, "
                f"expected at least {t}; the total stays hidden. Run again."
            )
        if len(good) < t:
            raise ProtocolError(
                f"secure sum: client {dealer!r} dealt shares that do not open: {len(good)} of "
                f"{len(answered)} match its commitments, expected at least {t}; leave it out and run again."
            )
        secret = combine(good)
        if secret is None:
            raise _false_dealer(dealer)
        return secret

    def _matches(self, kind: str, dealer: str, holder: str, share: Secret) -> bool:
        return (
            commit(self.session, kind, dealer, holder, share) == self.dealt[dealer].commitments[kind][holder]
        )


def _false_dealer(dealer: str) -> ProtocolError:
    return ProtocolError(
        f"secure sum: client {dealer!r} dealt shares of something else than it announced; "
        "leave it out and run again."
    )
