"""Card of the trust model `two-server`."""

from __future__ import annotations

from fedassay.protocol.cards import Named
from fedassay.trust.card import TrustCard

TWO_SERVER = TrustCard(
    name="two-server",
    order=60,
    model=Named("fedassay.trust.two_server.model:TwoServer"),
    server_learns="noisy totals (ε, δ)",
    readers_learn="the same",
    rests_on="two servers do not collude",
    rounds=1,
    learnt="each of two servers that do not collude learns a noisy total only",
    trusted=(
        "Two servers are trusted not to work together and to follow the protocol; each of them alone, and "
        "readers of the results, are not trusted with rows."
    ),
)
