"""Card of the trust model `server-dp`."""

from __future__ import annotations

from fedassay.protocol.cards import Named
from fedassay.trust.card import TrustCard

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
