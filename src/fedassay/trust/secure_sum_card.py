"""Card of the trust model `secure-sum`."""

from __future__ import annotations

from fedassay.protocol.cards import Named
from fedassay.trust.card import TrustCard

SECURE_SUM = TrustCard(
    name="secure-sum",
    order=20,
    model=Named("fedassay.trust.secure_sum:SecureSum"),
    parameters=Named("fedassay.trust.card:OneShotParameters"),
    server_learns="exact totals over clients",
    readers_learn="the exact result",
    rests_on="enough clients are honest; totals are not noisy, and no promise is made about them",
    rounds=2,
    learnt="the server learns the exact total only",
    trusted=(
        "The coordinator sees one exact total over the clients that took part, and not the summary of one "
        "client, also if it tells clients different things, as long as no more sites help it than the "
        "statement says and members delete the keys with which they opened a total. Readers of the results are "
        "trusted with exact totals."
    ),
)
