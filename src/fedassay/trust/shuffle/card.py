"""Card of the trust model `shuffle`."""

from __future__ import annotations

from fedassay.protocol.cards import Named
from fedassay.trust.card import TrustCard

SHUFFLE = TrustCard(
    name="shuffle",
    order=70,
    model=Named("fedassay.trust.shuffle.model:Shuffle"),
    parameters=Named("fedassay.trust.card:ShuffleParameters"),
    server_learns="messages without sender (ε, δ)",
    readers_learn="the same",
    rests_on="server and shuffler do not collude",
    rounds=1,
    learnt="the server learns noisy messages only, and not whose they are",
    trusted=(
        "The coordinator and the shuffler are trusted not to work together; together they see messages "
        "that are private with the local epsilon of the statement only."
    ),
    overheard=Named("fedassay.audit.world:shuffled_reports"),
)
