"""Conformalisation of classifiers and of a regressor: MAPIE against ours, and how ours grows.

    python benchmarks/conformal_scores.py

The bars: LAC and APS of 10^6 rows and 10 classes, calibration and prediction sets, at least 5 times MAPIE; split
conformal regression at par.

Both start from logits (MAPIE through an estimator that gives scikit-learn's usual float64 probabilities); the ratio in
brackets is against MAPIE with probabilities that are there already, while ours still has to make them. MAPIE's
APS takes a random part of the true class's probability off the score; here all of it, which leaves the score that ours
computes, so that thresholds and sets must be the same: they are checked, up to rounding. Regression compares absolute
residuals, and intervals from them.

Times are processor time, of which other work on a shared machine takes less than of the clock's, and the best of
three repetitions. Ratios are from this run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from time import process_time
from typing import Any, TypeVar

import numpy as np
from mapie.classification import SplitConformalClassifier
from mapie.regression import SplitConformalRegressor
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from fedassay.artefacts.conformal import intervals
from fedassay.estimation.coverage.law import split_rank
from fedassay.summaries.class_scores import sets
from fedassay.summaries.local_quantiles import at_ranks
from fedassay.summaries.quantities import scores_of

LEVEL, CLASSES, REPETITIONS = 0.9, 10, 3
T = TypeVar("T")
Rows = tuple[np.ndarray, np.ndarray]


class Ones(np.random.RandomState):
    """A source of random numbers that are all one."""

    def uniform(self, low: float = 0.0, high: float = 1.0, size: Any = None) -> Any:  # noqa: D102
        return np.ones(size)


class Model(ClassifierMixin, BaseEstimator):
    """A model that has been fitted, and whose inputs are its own logits, or its probabilities."""

    def __init__(self, *, ready: bool = False) -> None:
        self.ready = ready
        self.classes_ = np.arange(CLASSES)  # a sign of having been fitted

    def fit(self, X: np.ndarray, y: np.ndarray) -> Model:  # noqa: D102
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict_proba(self, X: np.ndarray) -> np.ndarray:  # noqa: D102
        return X if self.ready else softmax(X, axis=1)

    def predict(self, X: np.ndarray) -> np.ndarray:  # noqa: D102
        return X.argmax(axis=1)


class Column(RegressorMixin, BaseEstimator):
    """A regressor that has been fitted, and whose input is its own prediction."""

    fitted_ = True

    def fit(self, X: np.ndarray, y: np.ndarray) -> Column:  # noqa: D102
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, X: np.ndarray) -> np.ndarray:  # noqa: D102
        return X[:, 0]


def classified(rows: int) -> Rows:
    """A calibrated model: classes are drawn with the probabilities that it gives."""
    rng = np.random.default_rng(rows)
    logits = 3 * rng.normal(size=(rows, CLASSES))
    gumbel = rng.gumbel(size=logits.shape)
    return logits, (logits + gumbel).argmax(axis=1)


# --- classification -------------------------------------------------------------------------------------


def with_mapie(
    name: str, logits: np.ndarray, labels: np.ndarray, *, ready: bool
) -> tuple[Callable[[], Any], Callable[[Any], np.ndarray]]:
    """Calibration, which returns a fitted classifier, and its prediction sets."""
    inputs = softmax(logits, axis=1) if ready else logits

    def calibrate() -> SplitConformalClassifier:
        fitted = SplitConformalClassifier(
            estimator=Model(ready=ready),
            confidence_level=LEVEL,
            prefit=True,
            conformity_score=name,
            random_state=Ones(0),
        )
        return fitted.conformalize(inputs, labels)

    def predict(fitted: SplitConformalClassifier) -> np.ndarray:
        # Classes until their sum is beyond the threshold, with the one that takes it there.
        options = {} if name == "lac" else {"conformity_score_params": {"include_last_label": True}}
        return fitted.predict_set(inputs, **options)[1][:, :, 0]

    return calibrate, predict


def with_ours(
    name: str, logits: np.ndarray, labels: np.ndarray
) -> tuple[Callable[[], float], Callable[[float], np.ndarray]]:
    """Calibration, which returns the threshold, and prediction sets."""
    rank = split_rank(len(labels), LEVEL)

    def calibrate() -> float:
        scores = scores_of({"logits": logits, "class": labels}, name, ())
        return float(at_ranks(scores, [rank])[0])

    return calibrate, lambda threshold: sets(logits, threshold, name)


def classification() -> None:
    print(
        f"{CLASSES} classes: calibration + prediction sets, ms; ratios against MAPIE from logits (probabilities)"
    )
    for name in ("lac", "aps"):
        for rows in (10**5, 3 * 10**5, 10**6):
            logits, labels = classified(rows)
            threshold, found, *ours = timed(*with_ours(name, logits, labels))
            totals = []
            for ready in (False, True):
                work = with_mapie(name, logits, labels, ready=ready)
                fitted, theirs, *seconds = timed(*work)
                totals.append(seconds)
            check(name, threshold, found, fitted, theirs, labels)
            slow, ready_made = (sum(seconds) / sum(ours) for seconds in totals)
            print(
                f"{name} {rows:9,} rows  ours {shown(ours)}   MAPIE {shown(totals[0])} ({shown(totals[1])})"
                f"   {slow:5.1f}x ({ready_made:.1f}x)",
                flush=True,
            )


def check(
    name: str, threshold: float, found: np.ndarray, fitted: Any, theirs: np.ndarray, labels: np.ndarray
) -> None:
    """The same threshold, and the same sets.

    MAPIE treats probabilities within 1e-8 as equal, which happens in a row of a hundred thousand or so.
    """
    quantile = float(fitted._mapie_classifier.conformity_score_function_.quantiles_[0])
    if abs(quantile - threshold) > 1e-12:
        raise AssertionError(f"{name}: threshold {threshold!r}, of MAPIE {quantile!r}")
    coverage = found[np.arange(len(labels)), labels].mean()
    if not LEVEL <= coverage <= LEVEL + 1e-4:
        raise AssertionError(f"{name}: coverage {coverage}")
    different = int((found != theirs).any(axis=1).sum())
    if different > 2 + 1e-5 * len(found):
        raise AssertionError(f"{name}: {different} of {len(found):,} sets are different")


# --- regression -----------------------------------------------------------------------------------------


def regression() -> None:
    print("\nsplit conformal regression: calibration + intervals, ms; ratio against MAPIE")
    for rows in (10**5, 3 * 10**5, 10**6):
        rng = np.random.default_rng(rows)
        prediction, target = rng.normal(size=rows), rng.normal(size=rows)
        rank = split_rank(rows, LEVEL)

        def calibrate(
            target: np.ndarray = target, prediction: np.ndarray = prediction, rank: int = rank
        ) -> float:
            scores = scores_of({"target": target, "prediction": prediction}, "absolute", ())
            return float(at_ranks(scores, [rank])[0])

        def predict(threshold: float, prediction: np.ndarray = prediction) -> np.ndarray:
            return intervals(prediction, prediction, 1.0, threshold)

        def fit(target: np.ndarray = target, prediction: np.ndarray = prediction) -> SplitConformalRegressor:
            fitted = SplitConformalRegressor(estimator=Column(), confidence_level=LEVEL, prefit=True)
            return fitted.conformalize(prediction[:, None], target)

        def bounds(fitted: SplitConformalRegressor, prediction: np.ndarray = prediction) -> np.ndarray:
            return fitted.predict_interval(prediction[:, None])[1][:, :, 0]

        _, found, *ours = timed(calibrate, predict)
        _, theirs, *mapie = timed(fit, bounds)
        if not np.allclose(found, theirs, rtol=0, atol=1e-9):
            raise AssertionError("intervals are different")
        print(
            f"{rows:9,} rows  ours {shown(ours)}   MAPIE {shown(mapie)}   {sum(mapie) / sum(ours):.1f}x",
            flush=True,
        )


# --- times ----------------------------------------------------------------------------------------------


def timed(
    calibrate: Callable[[], T], predict: Callable[[T], np.ndarray]
) -> tuple[T, np.ndarray, float, float]:
    """What both give, and the seconds of the fastest repetition of each."""
    best = [math.inf, math.inf]
    for _ in range(REPETITIONS):
        started = process_time()
        fitted = calibrate()
        between = process_time()
        found = predict(fitted)
        ended = process_time()
        best = [min(best[0], between - started), min(best[1], ended - between)]
    return fitted, found, best[0], best[1]


def shown(seconds: list[float]) -> str:
    return " + ".join(f"{1e3 * one:.0f}" for one in seconds)


def main() -> None:
    classification()
    regression()


if __name__ == "__main__":
    main()
