"""Card of regression."""

from __future__ import annotations

from fedassay.protocol.cards import Named
from fedassay.tasks.card import KindCard
from fedassay.tasks.command import CommandCard, Input, StateFile

INFER = KindCard(
    name="infer",
    title="Regression",
    section="Coefficients",
    order=50,
    purpose="coefficients of a regression, with intervals",
    command=CommandCard(
        sentence="Fit a linear or logistic regression, with a confidence interval for every coefficient.",
        order=24,
        entry_point=Named("fedassay.api:infer"),
        inputs=(
            Input(
                name="target",
                sentence="Column with the target: a number, or 0 and 1 for logistic.",
                required=True,
            ),
            Input(
                name="features",
                metavar="A,B,..",
                sentence="Columns of the features; or one name: a column of lists, or how numbered columns begin.",
                required=True,
            ),
            Input(
                name="offset",
                metavar="COLUMN",
                sentence="Column with a known part of the linear predictor.",
            ),
            StateFile(
                name="state",
                metavar="FILE",
                sentence="Go on from what this file holds, if it is there, with the (new) rows of DATA; written "
                "afterwards.",
                content="regression state",
            ),
        ),
        check=Named("fedassay.tasks.inference.parameters:check_state"),
        in_rounds=True,
    ),
    task=Named("fedassay.tasks.inference.infer:Infer"),
    parameters=Named("fedassay.tasks.inference.parameters:InferParameters"),
    document=Named("fedassay.tasks.inference.document:RegressionDocument"),
    results=Named("fedassay.tasks.inference.results:RegressionResults"),
    forecast=Named("fedassay.tasks.inference.forecast:InferenceForecast"),
    forecast_of="a regression: errors and intervals of a coefficient, and the smallest effect that will be seen",
    promises=Named("fedassay.tasks.inference.results:PROMISES"),
    columns=("features", "target"),
    rules=Named("fedassay.tasks.inference.parameters:RegressionRules"),
    in_first_study=True,
)
