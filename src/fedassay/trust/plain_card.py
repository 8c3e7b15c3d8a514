"""Card of the trust model `plain`."""

from __future__ import annotations

from fedassay.protocol.cards import Named
from fedassay.trust.card import TrustCard

PLAIN = TrustCard(
    name="plain",
    order=10,
    model=Named("fedassay.trust.plain:Plain"),
    server_learns="each exact summary",
    readers_learn="the exact result",
    rests_on="server and readers are trusted with both",
    rounds=1,
    learnt="the server learns every site's histogram",
    trusted="The coordinator sees each client's exact summary, and readers see exact results: all are trusted.",
)
