"""Cards of the evaluations: of two classes and of several."""

from __future__ import annotations

from fedassay.protocol.cards import Named
from fedassay.tasks.card import KindCard
from fedassay.tasks.command import CLASSIFIER_COLUMNS, CommandCard, Input

EVALUATE = KindCard(
    name="evaluate",
    title="Evaluation of a binary classifier",
    section="Evaluation",
    order=10,
    purpose="every metric of the model, with intervals",
    reads="scores",
    command=CommandCard(
        sentence="Evaluate a classifier: AUC, calibration, losses, and metrics at thresholds, with intervals.",
        order=11,
        entry_point=Named("fedassay.api:evaluate"),
        inputs=(
            *CLASSIFIER_COLUMNS,
            Input(
                name="versus",
                metavar="COLUMN",
                sentence="Column of a second model's scores: paired comparison.",
            ),
            Input(
                name="by",
                metavar="COLUMN",
                sentence="Column of subgroups, each with its metrics; name them with --group.",
            ),
        ),
        without=("classes",),
    ),
    columns=("score", "label"),
    task=Named("fedassay.tasks.evaluation.evaluate:Evaluate"),
    parameters=Named("fedassay.tasks.evaluation.parameters:EvaluateParameters"),
    document=Named("fedassay.tasks.evaluation.document:EvaluationDocument"),
    results=Named("fedassay.tasks.evaluation.results:EvaluationResults"),
    forecast=Named("fedassay.tasks.evaluation.forecast:EvaluationForecast"),
    forecast_of="an evaluation: every metric's error and interval, and the resolution to use",
    promises=Named("fedassay.tasks.evaluation.promises:PROMISES"),
    rules=Named("fedassay.tasks.evaluation.parameters:EvaluationRules"),
    in_first_study=True,
    variants={
        "--by": {"groups": ["a", "b"]},
        "--versus": {"versus": True},
        "--per-site": {"per_site": True},
    },
)

EVALUATE_CLASSES = KindCard(
    name="evaluate-classes",
    asked_as="evaluate",
    reads="logits",
    title="Evaluation of a classifier with several classes",
    section="Evaluation",
    order=11,
    purpose=EVALUATE.purpose,
    columns=("class", "logits"),
    task=Named("fedassay.tasks.evaluation.multiclass:EvaluateMulticlass"),
    parameters=Named("fedassay.tasks.evaluation.parameters:EvaluateMulticlassParameters"),
    document=Named("fedassay.tasks.evaluation.document:ClassEvaluationDocument"),
    results=Named("fedassay.tasks.evaluation.results:ClassEvaluationResults"),
    forecast=Named("fedassay.tasks.evaluation.forecast:ClassEvaluationForecast"),
    rules=Named("fedassay.tasks.evaluation.parameters:ClassRules"),
    example={"classes": 10},
)
