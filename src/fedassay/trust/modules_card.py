"""Cards of the trust models that are one module each."""

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

SERVER_DP = TrustCard(
    name="server-dp",
    order=50,
    model=Named("fedassay.trust.server_dp:ServerDP"),
    server_learns="each exact summary",
    readers_learn="noisy totals (ε, δ)",
    rests_on="the server is trusted with exact numbers and adds the noise",
    rounds=1,
    learnt="the server learns every site's histogram, readers a noisy total",
    trusted=(
        "The coordinator is trusted with each client's exact summary and with drawing the noise. Readers "
        "of the results are not trusted."
    ),
)
