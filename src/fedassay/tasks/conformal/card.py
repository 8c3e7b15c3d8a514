"""Card of conformal prediction."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.tasks.card import KindCard

CONFORMAL = KindCard(
    name="conformal",
    title="Conformal prediction",
    section="Prediction sets",
    order=40,
    purpose="sets that hold the truth with the wanted probability, of two classes for each",
    task=Named("fedassay.tasks.conformal.conformal:Conformal"),
    parameters=Named("fedassay.tasks.conformal.parameters:ConformalParameters"),
    document=Named("fedassay.tasks.conformal.document:ConformalDocument"),
    results=Named("fedassay.tasks.conformal.results:ConformalResults"),
    forecast=Named("fedassay.tasks.conformal.forecast:ConformalForecast"),
    forecast_of="prediction sets: the ranks to use, what they will cover, and what pooling would give",
    artefact=Named("fedassay.artefacts.conformal:ConformalPredictor.of"),
    rules=Named("fedassay.tasks.conformal.study_rules:ConformalRules"),
    in_first_study=True,
    example={"score_range": [0.0, 1.0]},
    variants={
        **{
            f"--method {method}": {"method": method}
            for method in ("qq", "qq-paper", "average", "pooled", "weighted", "local")
        },
        "--conditional group": {"conditional": "group", "groups": ["a", "b"]},
    },
    always_releases=False,
)
