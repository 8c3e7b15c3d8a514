"""Card of conformal prediction."""

from __future__ import annotations

from fedassay.protocol.cards import Named
from fedassay.tasks.card import KindCard
from fedassay.tasks.command import ARTEFACT_FILE, CommandCard, Input

CONFORMAL = KindCard(
    name="conformal",
    title="Conformal prediction",
    section="Prediction sets",
    order=40,
    purpose="sets that hold the truth with the wanted probability, of two classes for each",
    command=CommandCard(
        sentence="Find the threshold of prediction sets that cover new rows with the wanted probability.",
        order=13,
        entry_point=Named("fedassay.api:conformal"),
        inputs=(
            Input(
                name="conformity",
                sentence="Column with a score of your own, large where the prediction is bad.",
            ),
            Input(name="target", sentence="Column with the true values."),
            Input(name="prediction", sentence="Column with predictions: |target - prediction|."),
            Input(name="scale", sentence="Column to divide that by, above 0."),
            Input(name="lower", sentence="Column with a lower quantile (CQR)."),
            Input(name="upper", sentence="Column with an upper quantile (CQR)."),
            Input(name="label", sentence="Column with the true class, 0, 1, .."),
            Input(name="score", sentence="Column with a binary classifier's probabilities of the label 1."),
            Input(
                name="logits",
                sentence="The model's logits: a list column, a prefix of numbered columns, or an array.",
            ),
            ARTEFACT_FILE,
            Input(name="by", metavar="COLUMN", sentence="Column of groups, for --conditional group."),
        ),
        without=("classes",),
    ),
    task=Named("fedassay.tasks.conformal.conformal:Conformal"),
    parameters=Named("fedassay.tasks.conformal.parameters:ConformalParameters"),
    document=Named("fedassay.tasks.conformal.document:ConformalDocument"),
    results=Named("fedassay.tasks.conformal.results:ConformalResults"),
    forecast=Named("fedassay.tasks.conformal.forecast:ConformalForecast"),
    forecast_of="prediction sets: the ranks to use, what they will cover, and what pooling would give",
    promises=Named("fedassay.tasks.conformal.promises:PROMISES"),
    artefact=Named("fedassay.artefacts.conformal:ConformalPredictor.of"),
    rules=Named("fedassay.tasks.conformal.parameters:ConformalRules"),
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
