"""Card of regression."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.tasks.card import KindCard

INFER = KindCard(
    name="infer",
    title="Regression",
    section="Coefficients",
    order=50,
    purpose="coefficients of a regression, with intervals",
    task=Named("fedassay.tasks.inference.infer:Infer"),
    parameters=Named("fedassay.tasks.inference.parameters:InferParameters"),
    document=Named("fedassay.tasks.inference.document:RegressionDocument"),
    results=Named("fedassay.tasks.inference.results:RegressionResults"),
    forecast=Named("fedassay.tasks.inference.forecast:InferenceForecast"),
    forecast_of="a regression: errors and intervals of a coefficient, and the smallest effect that will be seen",
    columns=("features", "target"),
    rules=Named("fedassay.tasks.inference.study_rules:RegressionRules"),
    in_first_study=True,
)
