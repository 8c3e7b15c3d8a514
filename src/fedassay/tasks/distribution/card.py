"""Cards of distribution functions, of quantiles by search, and of the test that is built on them."""

from __future__ import annotations

from fedassay.protocol.cards import Named
from fedassay.tasks.card import KindCard
from fedassay.tasks.command import CommandCard, Input

_VALUE = Input(name="value", sentence="Column with the numbers.", required=True)

ECDF = KindCard(
    name="ecdf",
    title="Distribution function",
    section="Distribution",
    order=60,
    purpose="the distribution of the values",
    command=CommandCard(
        sentence="Release the distribution function of a scalar: a curve with its band, and any quantile.",
        order=21,
        entry_point=Named("fedassay.api:ecdf"),
        inputs=(
            _VALUE,
            Input(
                name="label",
                sentence="Column with labels, 0 or 1: both distributions, ROC curve and AUC in one release.",
            ),
        ),
        without=("labelled",),
        check=Named("fedassay.tasks.distribution.parameters:check_ecdf"),
    ),
    task=Named("fedassay.tasks.distribution.ecdf:Ecdf"),
    parameters=Named("fedassay.tasks.distribution.parameters:EcdfParameters"),
    document=Named("fedassay.tasks.distribution.document:DistributionDocument"),
    results=Named("fedassay.tasks.distribution.results:DistributionResults"),
    forecast=Named("fedassay.tasks.distribution.forecast:DistributionForecast"),
    forecast_of="a distribution function: noise, band and quantile errors of each mechanism",
    promises=Named("fedassay.tasks.distribution.promises:PROMISES"),
    columns=("value",),
    rules=Named("fedassay.tasks.distribution.parameters:DistributionRules"),
    in_first_study=True,
    variants={"--label": {"labelled": True}},
)

QUANTILES = KindCard(
    name="quantiles",
    title="Quantiles",
    section="Quantiles",
    order=70,
    purpose="quantiles of the values, by search",
    command=CommandCard(
        sentence="Search quantiles point by point, on servers that keep what clients sent.",
        order=22,
        entry_point=Named("fedassay.api:quantiles"),
        inputs=(_VALUE,),
    ),
    privacy="two-server",
    task=Named("fedassay.tasks.distribution.search:SearchQuantiles"),
    parameters=Named("fedassay.tasks.distribution.parameters:SearchQuantilesParameters"),
    document=Named("fedassay.tasks.distribution.document:QuantilesDocument"),
    results=Named("fedassay.tasks.distribution.results:QuantilesResults"),
    forecast=Named("fedassay.tasks.distribution.forecast:QuantilesForecast"),
    forecast_of="quantiles by search: the widest of their intervals",
    columns=("value",),
    rules=Named("fedassay.tasks.distribution.parameters:DistributionRules"),
)

HOSMER_LEMESHOW = KindCard(
    name="hosmer-lemeshow",
    title="Hosmer-Lemeshow test of a binary classifier",
    section="Hosmer-Lemeshow test",
    order=20,
    purpose="are the probabilities right, group by group?",
    command=CommandCard(
        sentence="Test whether a model's probabilities are right: Hosmer-Lemeshow, with the noise in the p-value.",
        order=23,
        entry_point=Named("fedassay.api:hosmer_lemeshow"),
        inputs=(
            Input(name="score", sentence="Column with the model's probabilities, in [0, 1].", required=True),
            Input(name="label", sentence="Column with the true labels, 0 or 1.", required=True),
        ),
    ),
    task=Named("fedassay.tasks.distribution.hosmer_lemeshow:HosmerLemeshow"),
    parameters=Named("fedassay.tasks.distribution.parameters:HosmerLemeshowParameters"),
    document=Named("fedassay.tasks.distribution.document:HosmerLemeshowDocument"),
    results=Named("fedassay.tasks.distribution.results:HosmerLemeshowResults"),
    forecast=Named("fedassay.tasks.distribution.forecast:GroupTestForecast"),
    forecast_of="a Hosmer-Lemeshow test: the gap in a group that can be told from none",
    columns=("score", "label"),
    rules=Named("fedassay.tasks.distribution.parameters:GroupTestRules"),
    variants={f"--method {method}": {"method": method} for method in ("corrected", "published")},
)
