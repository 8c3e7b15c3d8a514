"""`fedassay plan`: is there enough data? Errors to expect, parameters to use, what would be enough. No data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer

from fedassay.cli import options, output, plan_words
from fedassay.cli.ecdf import Mechanism
from fedassay.cli.infer import Model
from fedassay.cli.plan_delivery import deliver, targets
from fedassay.cli.plan_options import (
    CalibrationTarget,
    CoverageTarget,
    DistributionTarget,
    Given,
    Height,
    Level,
    Target,
    expectation,
    logits,
    scores,
    size,
)
from fedassay.errors import FederationError, UsageError
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
from fedassay.tasks.conformal.conformal import GUARANTEES, Conformal
from fedassay.tasks.conformal.ways import METHODS
from fedassay.tasks.evaluation.evaluate import Evaluate

plan_app = typer.Typer(
    help="Predict errors before there are data, and say whether there is enough.", no_args_is_help=True
)


@plan_app.command()
@options.takes(expectation, options.terms)
def evaluate(
    expectation: Expectation,
    terms: options.Terms,
    threshold: Annotated[float, typer.Option(help="Decision threshold of precision, recall, ...")] = 0.5,
    height: Height = None,
    buckets: Annotated[int, typer.Option(help="Buckets of the calibration error.")] = 10,
    level: Level = 0.95,
    target: Target = None,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Predict an evaluation: every metric's error and interval, and the resolution to use."""
    output.check_writable(json)
    with _no_federation():
        plan = plan_evaluation(
            _study(expectation, terms),
            task=Evaluate(thresholds=(threshold,), height=height, buckets=buckets, level=level),
            targets=targets(target),
        )
    deliver(plan.to_dict(), plan_words.render, json=json, quiet=quiet)


@plan_app.command()
@options.takes(size, scores, logits, options.terms)
def calibrate(
    size: Size,
    scores: Given,
    logits: Given,
    terms: options.Terms,
    holdout: Annotated[float, typer.Option(help="Share of the units kept to judge the calibrator.")] = 0.3,
    level: Level = 0.95,
    target: CalibrationTarget = None,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Predict a calibration: how far the fitted map will be from the truth; with --classes, that of logits."""
    output.check_writable(json)
    plan: CalibrationPlan | MulticlassPlan
    with _no_federation():
        if "classes" in logits:
            _useless(scores, "for scores; leave it out, or leave out --classes")
            plan = _plan_classes(size, terms, logits, holdout=holdout, level=level, target=target)
        else:
            _useless(logits, "for logits, and needs --classes")
            for name in ("prevalence", "auc"):
                if name not in scores:
                    raise UsageError(
                        f"--{name}: got none, expected it for a model with two classes; or --classes, for logits."
                    )
            plan = plan_calibration(
                _study(
                    Expectation(**asdict(size), prevalence=scores["prevalence"], auc=scores["auc"]), terms
                ),
                task=Calibrate(height=scores.get("height"), level=level, bins=scores.get("bins")),
                holdout=holdout,
                targets=targets(target),
            )
    deliver(plan.to_dict(), plan_words.render, json=json, quiet=quiet)


def _plan_classes(
    size: Size,
    terms: options.Terms,
    given: Given,
    *,
    holdout: float,
    level: float,
    target: Sequence[str] | None,
) -> MulticlassPlan:
    rounds, participation = (given.pop(name, None) for name in ("rounds", "participation"))
    study = ClassStudy(
        expectation=ClassExpectation(**asdict(size), **given),
        trust=terms.trust,
        budget=terms.budget,
        protection=terms.protection,
        holdout=holdout,
    )
    return plan_multiclass(
        study, rounds=rounds, participation=participation, level=level, targets=targets(target)
    )


def _useless(given: Given, why: str) -> None:
    """Refuse options of the other kind of model."""
    for name in given:
        raise UsageError(f"--{name}: it is {why}.")


@plan_app.command()
@options.takes(size, options.terms)
def ecdf(
    size: Size,
    terms: options.Terms,
    points: Annotated[int, typer.Option(help="How many points, a power of two (rounded up).")] = 1024,
    quantile: Annotated[
        list[float] | None, typer.Option(help="A quantile to predict; may be repeated. Default: 0.5.")
    ] = None,
    mechanism: Annotated[
        Mechanism, typer.Option(help="The one that verdict and target are about.")
    ] = Mechanism.AUTO,
    labelled: Annotated[bool, typer.Option("--labelled", help="One curve for each of two labels.")] = False,
    public_labels: Annotated[
        bool, typer.Option("--public-labels", help="Labels are no secret (replace-one only).")
    ] = False,
    precision: Annotated[
        float | None,
        typer.Option(help="The most that noise may add to the band; the same as --target noise=WIDTH."),
    ] = None,
    level: Level = 0.95,
    target: DistributionTarget = None,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Predict a distribution function: noise, band and quantile errors of each mechanism."""
    output.check_writable(json)
    noise = {} if precision is None else {"noise": precision}
    with _no_federation():
        plan = plan_distribution(
            _release(size, terms),
            shape=Shape(
                points=points,
                labelled=labelled,
                public_labels=public_labels,
                mechanism=mechanism.value,
                quantiles=tuple(quantile or (0.5,)),
                level=level,
            ),
            targets=targets(target) | noise,
        )
    deliver(plan.to_dict(), plan_words.render, json=json, quiet=quiet)


@plan_app.command()
@options.takes(size, options.terms)
def conformal(
    size: Size,
    terms: options.Terms,
    level: Annotated[float, typer.Option(help="The coverage that is wanted.")] = 0.9,
    method: Annotated[str, typer.Option(help=f"How the threshold is found: {', '.join(METHODS)}.")] = "auto",
    guarantee: Annotated[
        str,
        typer.Option(
            help=f"On average over calibration rows, or for those one has: {', '.join(GUARANTEES)}."
        ),
    ] = "marginal",
    confidence: Annotated[
        float,
        typer.Option(help="With which probability, for training-conditional; and that of the shortfall."),
    ] = 0.9,
    bins: Annotated[
        int | None,
        typer.Option(help="How many public points, where they are needed. Default: that of the task."),
    ] = None,
    target: CoverageTarget = None,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Predict prediction sets: the ranks to use, what they will cover, and what pooling would give."""
    output.check_writable(json)
    with _no_federation():
        plan = plan_conformal(
            _release(size, terms),
            task=Conformal(level=level, method=method, guarantee=guarantee, confidence=confidence, bins=bins),
            targets=targets(target),
        )
    deliver(plan.to_dict(), plan_words.render, json=json, quiet=quiet)


@plan_app.command()
@options.takes(size, options.terms)
def infer(
    features: Annotated[int, typer.Option(help="How many features there will be.")],
    size: Size,
    terms: options.Terms,
    model: Annotated[Model, typer.Option(help="linear or logistic.")] = Model.LINEAR,
    prevalence: Annotated[
        float | None,
        typer.Option(help="For logistic: the share of positive rows that you expect. Default: 0.1."),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Of federated averaging. Default: that of the task.")
    ] = None,
    participation: Annotated[
        float, typer.Option(help="The part of the clients that takes part in each round.")
    ] = 1.0,
    effect: Annotated[
        float | None,
        typer.Option(help="The standardised coefficient to be seen with 80 % power. Default: 0.1."),
    ] = None,
    precision: Annotated[
        float | None, typer.Option(help="Half an interval that is short enough, for a standardised feature.")
    ] = None,
    level: Level = 0.95,
    json: options.JsonFile = None,
    quiet: options.Quiet = False,
) -> None:
    """Predict a regression: errors and intervals of a coefficient, and the smallest effect that will be seen."""
    output.check_writable(json)
    wanted = {"effect": effect, "precision": precision}
    with _no_federation():
        plan = plan_inference(
            _release(size, terms),
            Regression(
                features=features,
                model=model.value,
                prevalence=prevalence,
                rounds=rounds,
                participation=participation,
                level=level,
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
