"""Card of the trust model `local-dp`."""

from __future__ import annotations

from fedassay.protocol.cards import Named
from fedassay.trust.card import TrustCard

LOCAL_DP = TrustCard(
    name="local-dp",
    order=40,
    model=Named("fedassay.trust.local_dp:LocalDP"),
    parameters=Named("fedassay.trust.card:LocalParameters"),
    server_learns="noisy messages (ε, δ)",
    readers_learn="the same",
    rests_on="the client's own machine alone",
    rounds=1,
    learnt="server and readers learn noisy messages only",
    trusted="Each client trusts its own machine only: every message is private by itself.",
    overheard=Named("fedassay.audit.world:local_reports"),
)
