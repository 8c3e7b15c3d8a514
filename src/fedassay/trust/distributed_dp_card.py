"""Card of the trust model `distributed-dp`."""

from __future__ import annotations

from fedassay.protocol.cards import Named
from fedassay.trust.card import TrustCard

DISTRIBUTED_DP = TrustCard(
    name="distributed-dp",
    order=30,
    model=Named("fedassay.trust.distributed_dp:DistributedDP"),
    parameters=Named("fedassay.trust.card:OneShotParameters"),
    server_learns="noisy totals (ε, δ)",
    readers_learn="the same",
    rests_on="enough clients are honest and add their share of the noise",
    rounds=2,
    learnt="server and readers learn a noisy total only",
    trusted=(
        "Nobody is trusted with exact numbers: the coordinator sees noisy totals only, also if it tells "
        "clients different things, as long as no more sites help it than the statement says and members "
        "delete the keys with which they opened a total. The other clients add their shares of the noise."
    ),
)
