"""Cards of distribution functions, of quantiles by search, and of the test that is built on them."""

from __future__ import annotations

from fedassay.cards import Named
from fedassay.tasks.card import KindCard

ECDF = KindCard(
    name="ecdf",
    title="Distribution function",
    section="Distribution",
    order=60,
    purpose="the distribution of the values",
    task=Named("fedassay.tasks.distribution.ecdf:Ecdf"),
    parameters=Named("fedassay.tasks.distribution.parameters:EcdfParameters"),
    document=Named("fedassay.tasks.distribution.document:DistributionDocument"),
    results=Named("fedassay.tasks.distribution.results:DistributionResults"),
    forecast=Named("fedassay.tasks.distribution.forecast:DistributionForecast"),
    forecast_of="a distribution function: noise, band and quantile errors of each mechanism",
    columns=("value",),
    rules=Named("fedassay.tasks.distribution.study_rules:DistributionRules"),
    in_first_study=True,
    variants={"--label": {"labelled": True}},
)

QUANTILES = KindCard(
    name="quantiles",
    title="Quantiles",
    section="Quantiles",
    order=70,
    purpose="quantiles of the values, by search",
    task=Named("fedassay.tasks.distribution.search:SearchQuantiles"),
    parameters=Named("fedassay.tasks.distribution.parameters:SearchQuantilesParameters"),
    document=Named("fedassay.tasks.distribution.document:QuantilesDocument"),
    results=Named("fedassay.tasks.distribution.results:QuantilesResults"),
    forecast=Named("fedassay.tasks.distribution.forecast:QuantilesForecast"),
    forecast_of="quantiles by search: the widest of their intervals",
    columns=("value",),
    rules=Named("fedassay.tasks.distribution.study_rules:DistributionRules"),
)

HOSMER_LEMESHOW = KindCard(
    name="hosmer-lemeshow",
    title="Hosmer-Lemeshow test of a binary classifier",
    section="Hosmer-Lemeshow test",
    order=20,
    purpose="are the probabilities right, group by group?",
    task=Named("fedassay.tasks.distribution.hosmer_lemeshow:HosmerLemeshow"),
    parameters=Named("fedassay.tasks.distribution.parameters:HosmerLemeshowParameters"),
    document=Named("fedassay.tasks.distribution.hosmer_lemeshow_document:HosmerLemeshowDocument"),
    results=Named("fedassay.tasks.distribution.results:HosmerLemeshowResults"),
    forecast=Named("fedassay.tasks.distribution.forecast:GroupTestForecast"),
    forecast_of="a Hosmer-Lemeshow test: the gap in a group that can be told from none",
    columns=("score", "label"),
    variants={f"--method {method}": {"method": method} for method in ("corrected", "published")},
)
