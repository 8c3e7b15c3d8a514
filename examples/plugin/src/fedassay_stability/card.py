"""The card of the population stability index."""

from __future__ import annotations

from fedassay.protocol.cards import Named
from fedassay.tasks.card import KindCard

STABILITY = KindCard(
    name="stability",
    title="Population stability between two periods",
    section="Population stability",
    order=25,
    columns=("score", "label"),
    purpose="have the model's scores changed since the base period?",
    task=Named("fedassay_stability.task:Stability"),
    document=Named("fedassay_stability.document:StabilityDocument"),
    forecast=Named("fedassay_stability.forecast:StabilityForecast"),
)
