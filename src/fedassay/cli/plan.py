"""`fedassay plan`: is there enough data? Errors to expect, parameters to use, what would be enough. No data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

from fedassay.cli import options, output, plan_words
from fedassay.cli.command import Given, Option, OptionsOf, takes
from fedassay.cli.plan_delivery import deliver, targets
from fedassay.cli.plan_options import (
    CalibrationTarget,
    CoverageTarget,
    DistributionTarget,
    Target,
    expectation,
    logits,
    scores,
    size,
)
from fedassay.errors import FederationError, ParameterError, UsageError
from fedassay.parameters import made, parameter
from fedassay.planning import (
    CalibrationPlan,
    ClassExpectation,
    ClassStudy,
    Expectation,
    MulticlassPlan,
    PlannedRelease,
    Regression,
    Shape,
    Size,
    Study,
    plan_calibration,
    plan_conformal,
    plan_distribution,
    plan_evaluation,
    plan_inference,
    plan_multiclass,
)
from fedassay.tasks.calibration.calibrate import Calibrate
from fedassay.tasks.calibration.multiclass.calibrate import CalibrateMulticlass
from fedassay.tasks.calibration.parameters import CalibrateMulticlassParameters, CalibrateParameters
from fedassay.tasks.conformal.conformal import Conformal
from fedassay.tasks.conformal.parameters import ConformalParameters
from fedassay.tasks.distribution.ecdf import Ecdf
from fedassay.tasks.distribution.parameters import EcdfParameters
from fedassay.tasks.evaluation.evaluate import Evaluate
from fedassay.tasks.evaluation.parameters import EvaluateParameters
from fedassay.tasks.inference.infer import Infer
from fedassay.tasks.inference.parameters import InferParameters
from fedassay.tasks.shared_parameters import HOLDOUT


@takes(
    expectation,
    options.terms,
    OptionsOf("evaluation", EvaluateParameters, only=("thresholds", "height", "buckets", "level")),
)
def evaluate(
    expectation: Expectation,
    terms: options.Terms,
    target: Target = None,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
    *,
    evaluation: Given,
) -> None:
    """Predict an evaluation: every metric's error and interval, and the resolution to use."""
    output.check_writable(json)
    with _no_federation():
        plan = plan_evaluation(
            _study(expectation, terms),
            task=made(Evaluate, evaluation),
            targets=targets(target),
        )
    deliver(plan.to_dict(), plan_words.render, json=json, quiet=quiet)


@takes(
    size,
    scores,
    OptionsOf("calibration", CalibrateParameters, only=("bins", "height", "level")),
    logits,
    OptionsOf("fitting", CalibrateMulticlassParameters, only=("rounds", "participation", "holdout")),
    options.terms,
)
def calibrate(
    size: Size,
    scores: Given,
    calibration: Given,
    logits: Given,
    fitting: Given,
    terms: options.Terms,
    target: CalibrationTarget = None,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Predict a calibration: how far the fitted map will be from the truth; with --classes, that of logits."""
    output.check_writable(json)
    plan: CalibrationPlan | MulticlassPlan
    holdout = parameter(CalibrateMulticlassParameters, "holdout").check(fitting.pop("holdout", HOLDOUT))
    with _no_federation():
        if "classes" in logits:
            level = calibration.pop("level", Calibrate.level)
            _useless(scores | calibration, "for scores; leave it out, or leave out `classes`")
            # Rounds are of the methods that have some, which are planned beside the others.
            rounds = {
                name: parameter(CalibrateMulticlassParameters, name).check(value)
                for name, value in fitting.items()
            }
            task = made(CalibrateMulticlass, {"level": level, "holdout": holdout})
            plan = _plan_classes(size, terms, logits, task, target, rounds)
        else:
            _useless(logits | fitting, "for logits, and needs `classes`")
            for name in ("prevalence", "auc"):
                if name not in scores:
                    raise ParameterError(
                        name, "got none, expected it for a model with two classes; or `classes`, for logits."
                    )
            plan = plan_calibration(
                _study(Expectation(**asdict(size), **scores), terms),
                task=made(Calibrate, calibration),
                holdout=holdout,
                targets=targets(target),
            )
    deliver(plan.to_dict(), plan_words.render, json=json, quiet=quiet)


def _plan_classes(
    size: Size,
    terms: options.Terms,
    given: Given,
    task: CalibrateMulticlass,
    target: Sequence[str] | None,
    rounds: Given,
) -> MulticlassPlan:
    study = ClassStudy(
        expectation=ClassExpectation(**asdict(size), **given),
        trust=terms.trust,
        budget=terms.budget,
        protection=terms.protection,
        holdout=task.holdout,
    )
    return plan_multiclass(
        study,
        rounds=rounds.get("rounds"),
        participation=rounds.get("participation"),
        level=task.level,
        targets=targets(target),
    )


def _useless(given: Given, why: str) -> None:
    """Refuse options of the other kind of model."""
    for name in given:
        raise ParameterError(name, f"it is {why}.")


@takes(
    size,
    OptionsOf(
        "distribution",
        EcdfParameters,
        only=("points", "quantiles", "mechanism", "labelled", "public_labels", "precision", "level"),
    ),
    options.terms,
)
def ecdf(
    size: Size,
    distribution: Given,
    terms: options.Terms,
    target: DistributionTarget = None,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Predict a distribution function: noise, band and quantile errors of each mechanism."""
    output.check_writable(json)
    task = made(Ecdf, distribution)
    noise = {} if task.precision is None else {"noise": task.precision}
    with _no_federation():
        plan = plan_distribution(
            _release(size, terms),
            shape=Shape(
                points=task.points,
                labelled=task.labelled,
                public_labels=task.public_labels,
                mechanism=task.mechanism,
                quantiles=task.quantiles or (0.5,),
                level=task.level,
            ),
            targets=targets(target) | noise,
        )
    deliver(plan.to_dict(), plan_words.render, json=json, quiet=quiet)


@takes(
    size,
    OptionsOf(
        "prediction_sets", ConformalParameters, only=("level", "method", "guarantee", "confidence", "bins")
    ),
    options.terms,
)
def conformal(
    size: Size,
    prediction_sets: Given,
    terms: options.Terms,
    target: CoverageTarget = None,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Predict prediction sets: the ranks to use, what they will cover, and what pooling would give."""
    output.check_writable(json)
    with _no_federation():
        plan = plan_conformal(
            _release(size, terms), task=made(Conformal, prediction_sets), targets=targets(target)
        )
    deliver(plan.to_dict(), plan_words.render, json=json, quiet=quiet)


@takes(
    size,
    OptionsOf("regression", InferParameters, only=("model", "rounds", "participation", "level")),
    options.terms,
)
def infer(
    features: Annotated[int, Option(help="How many features there will be.")],
    size: Size,
    regression: Given,
    terms: options.Terms,
    prevalence: Annotated[
        float | None,
        Option(help="For logistic: the share of positive rows that you expect. Default: 0.1."),
    ] = None,
    effect: Annotated[
        float | None,
        Option(help="The standardised coefficient to be seen with 80 % power. Default: 0.1."),
    ] = None,
    precision: Annotated[
        float | None, Option(help="Half an interval that is short enough, for a standardised feature.")
    ] = None,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Predict a regression: errors and intervals of a coefficient, and the smallest effect that will be seen."""
    output.check_writable(json)
    task = made(Infer, regression)
    wanted = {"effect": effect, "precision": precision}
    with _no_federation():
        plan = plan_inference(
            _release(size, terms),
            Regression(
                features=features,
                model=task.model,
                prevalence=prevalence,
                rounds=task.rounds,
                participation=task.participation,
                level=task.level,
            ),
            targets={name: width for name, width in wanted.items() if width is not None},
        )
    deliver(plan.to_dict(), plan_words.render, json=json, quiet=quiet)


@contextmanager
def _no_federation() -> Iterator[None]:
    """Too few clients are no failure while they are only planned: the number was wrong."""
    try:
        yield
    except FederationError as error:
        raise UsageError(str(error)) from error


def _study(expectation: Expectation, terms: options.Terms) -> Study:
    return Study(expectation=expectation, trust=terms.trust, budget=terms.budget, protection=terms.protection)


def _release(size: Size, terms: options.Terms) -> PlannedRelease:
    return PlannedRelease(
        expectation=size, trust=terms.trust, budget=terms.budget, protection=terms.protection
    )
