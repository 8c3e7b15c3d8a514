"""A fitted classifier whose probabilities are calibrated, as a scikit-learn estimator; scikit-learn is not needed."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.artefacts.stored_calibrator import Calibrator, ClassCalibrator, checked_scores, most_probable
from fedassay.data.tables import ArrayRows
from fedassay.errors import DataError, UsageError
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import NO_NOISE
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.calibration import Calibrate, fit
from fedassay.tasks.calibration.parameters import CalibrationMethod
from fedassay.tasks.evaluation.evaluate import EXACT_HEIGHT
from fedassay.tasks.shared_parameters import Transform

# --- what scikit-learn expects of a classifier --------------------------------------------------------------


class Conventions(ABC):
    """Base of estimators; the constructor stores its parameters unchanged, under their own names."""

    _estimator_type: ClassVar[str] = "classifier"

    @abstractmethod
    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class of each row."""

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the accuracy of `predict`."""
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """Return the constructor's parameters; if `deep`, also those of nested estimators, as ``name__parameter``."""
        own = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        nested = {
            f"{name}__{inner}": value
            for name, one in own.items()
            if deep and hasattr(one, "get_params") and not isinstance(one, type)
            for inner, value in one.get_params().items()
        }
        return {**own, **nested}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters of the constructor, or of nested estimators."""
        known = self.get_params(deep=False)
        # Set an estimator before its own parameters, in any order of arguments.
        for name in sorted(parameters, key=lambda name: "__" in name):
            own, _, inner = name.partition("__")
            if own not in known:
                raise ValueError(f"parameter: got {name!r}, expected one of {', '.join(known)}.")
            if inner:
                getattr(self, own).set_params(**{inner: parameters[name]})
            else:
                setattr(self, own, parameters[name])
        return self

    def __repr__(self) -> str:
        default = {name: p.default for name, p in inspect.signature(type(self)).parameters.items()}
        own = self.get_params(deep=False).items()
        changed = (
            f"{name}={value!r}"
            for name, value in own
            if value is not default[name] and value != default[name]
        )
        return f"{type(self).__name__}({', '.join(changed)})"


def classifier_tags(*, multi_class: bool, one_d_array: bool) -> Any:
    """Return the tags that scikit-learn reads from a classifier."""
    from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags  # only scikit-learn asks

    return Tags(
        estimator_type="classifier",
        target_tags=TargetTags(required=True),
        classifier_tags=ClassifierTags(multi_class=multi_class),
        input_tags=InputTags(one_d_array=one_d_array),
    )


# --- a fitted classifier whose probabilities are calibrated -------------------------------------------------

RESPONSES = ("auto", "decision_function", "predict_proba")

LEAST = float(np.finfo(np.float64).eps)
"""Smallest probability, as in scikit-learn's log loss; smaller ones are replaced by it, as 0 has no logarithm."""


class CalibratedClassifier(Conventions):
    """Fitted classifier together with the calibrator that a federation has fitted to its logits.

    Class k of the calibrator is ``estimator.classes_[k]``: export the labels of the calibration rows as places in
    `classes_`, and their logits as `logits` computes them (scaling each class by itself depends on a
    shift of all logits by the same amount).

    Parameters
    ----------
    estimator : the model. It is used as it is: a calibrator fits the model that it was fitted to, so `fit` does not
        train it again and ``clone`` keeps it.
    calibrator : a `ClassCalibrator` for as many classes.
    response_method : where logits come from: ``decision_function`` (the single one z of two classes is the pair 0, z),
        ``predict_proba`` (their logarithms, of probabilities below 2.2e-16 that of this number), or ``auto``: the
        first if there is one.

    Attributes
    ----------
    classes_, n_features_in_ : those of the estimator.

    Follows scikit-learn's conventions (``clone``, ``get_params``, pipelines, scorers) without importing it.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> from fedassay.summaries.multiclass.maps import Temperature
    >>> model = DummyClassifier(strategy="prior").fit([[0]] * 4, ["no", "yes", "yes", "yes"])
    >>> surer = ClassCalibrator(map=Temperature(inverse_temperature=2.0, classes=2), method="temperature")
    >>> model.predict_proba([[0]]), CalibratedClassifier(model, surer).predict_proba([[0]]).round(6)
    (array([[0.25, 0.75]]), array([[0.1, 0.9]]))
    """

    def __init__(self, estimator: Any, calibrator: ClassCalibrator, *, response_method: str = "auto") -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.response_method = response_method

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Fit nothing; refuse an estimator and a calibrator that do not fit together."""
        self._check()
        return self

    def logits(self, X: Any) -> Floats:
        """Return the model's logits of rows, one column for each class, to which the calibrator is to be fitted."""
        self._check()
        wanted = self.response_method
        if wanted == "decision_function" or (
            wanted == "auto" and hasattr(self.estimator, "decision_function")
        ):
            found = np.asarray(self.estimator.decision_function(X), dtype=np.float64)
            z = np.stack([np.zeros_like(found), found], axis=1) if found.ndim == 1 else found
        else:
            p = np.asarray(self.estimator.predict_proba(X), dtype=np.float64)
            z = np.log(np.maximum(p, LEAST))
        if z.ndim != 2 or z.shape[1] != self.calibrator.classes:
            raise DataError(
                f"logits: got an array of shape {z.shape} from the estimator, expected rows x "
                f"{self.calibrator.classes} classes; give response_method='predict_proba'."
            )
        return z

    def predict_proba(self, X: Any) -> Floats:
        """Return the calibrated probabilities, one column per class of `classes_`."""
        z = self.logits(X)
        return self.calibrator.map.predict_proba(z)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row, one of `classes_`."""
        z = self.logits(X)
        found = self.calibrator.map
        return np.asarray(self.classes_[most_probable(found, z, found.predict_proba(z))])

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels, in the order of the columns of `predict_proba`."""
        return np.asarray(self.estimator.classes_)

    @property
    def n_features_in_(self) -> int:
        """Number of columns that the model takes."""
        return int(self.estimator.n_features_in_)

    def _check(self) -> None:
        if not hasattr(self.estimator, "classes_"):
            raise UsageError(
                f"estimator: got a {type(self.estimator).__name__} without classes_, expected a classifier that has "
                "been fitted; fit it first."
            )
        if not isinstance(self.calibrator, ClassCalibrator):
            raise UsageError(
                f"calibrator: got a {type(self.calibrator).__name__}, expected a ClassCalibrator; load one with "
                "fedassay.load_calibrator."
            )
        if self.response_method not in RESPONSES:
            raise UsageError(
                f"response_method: got {self.response_method!r}, expected one of {', '.join(RESPONSES)}."
            )
        if len(self.classes_) != self.calibrator.classes:
            raise UsageError(
                f"calibrator: got one of {self.calibrator.classes} classes for an estimator of {len(self.classes_)}, "
                "expected as many; use the one that was fitted to its logits."
            )

    # --- scikit-learn's conventions ------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self.estimator, "classes_")

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.get_params(deep=False))

    def __sklearn_tags__(self) -> Any:
        return classifier_tags(multi_class=True, one_d_array=False)


# --- the calibrators for rows that are in one place ---------------------------------------------------------


class FederatedCalibrator(Conventions):
    """Fit the calibrator that a federation would fit, to rows that are in one place.

    This is the code of `fedassay.calibrate` without noise: the rows are counted into a histogram of scores, and
    the method sees nothing else. Scores are probabilities in [0, 1], one per row, or the two columns of a
    classifier's ``predict_proba``, so that it can end a pipeline::

        make_pipeline(FunctionTransformer(model.predict_proba), FederatedCalibrator())

    Parameters
    ----------
    method : ``histogram``, ``bbq``, ``isotonic``, ``platt``, ``beta`` or ``auto``.
    bins : buckets of histogram binning; by default M^{1/3} for M rows.
    height : 2^height score bins; 15 by default.
    transform : the spacing of the bins: ``auto``, ``uniform``, ``logit`` or ``mixed``.

    Attributes
    ----------
    calibrator_ : the fitted `Calibrator`, to be saved or applied.
    classes_ : the two labels, the positive one last.
    n_features_in_ : 1, or 2 if it was fitted to both columns.

    Follows scikit-learn's conventions (``clone``, ``get_params``, pipelines, scorers) without importing it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(5000)
    >>> label = rng.random(5000) < score**2
    >>> calibrator = FederatedCalibrator(method="beta").fit(score, label)
    >>> bool(abs(calibrator.predict_proba([0.5])[0, 1] - 0.25) < 0.02)  # the truth is 0.25
    True
    """

    calibrator_: Calibrator
    classes_: NDArray[Any]
    n_features_in_: int

    def __init__(
        self,
        *,
        method: CalibrationMethod = "auto",
        bins: int | None = None,
        height: int | None = None,
        transform: Transform = "auto",
    ) -> None:
        self.method = method
        self.bins = bins
        self.height = height
        self.transform = transform

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to scores and labels of two kinds; the larger label is the positive one."""
        task = Calibrate(method=self.method, bins=self.bins, height=self.height, transform=self.transform)
        scores, labels = checked_scores(X), np.asarray(y)
        if labels.shape != scores.shape:
            raise DataError(f"y: got the shape {labels.shape}, expected one label for {len(scores)} scores.")
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) != 2:
            raise DataError(
                f"y: got {len(classes)} class{'es' if len(classes) != 1 else ''}, expected two different labels."
            )
        histogram = ScoreHistogram(
            transform="mixed" if task.transform == "auto" else task.transform,
            height=EXACT_HEIGHT if task.height is None else task.height,
        )
        total, _ = histogram.measure(ArrayRows(columns={"score": scores, "label": codes.astype(np.int8)}), {})
        choice = fit(histogram.read(total).evidence(NO_NOISE), task.method, bins=task.bins)
        if choice.fitted is None:
            raise DataError(f"method {self.method}: {choice.reason}.")
        self.calibrator_ = Calibrator(
            map=choice.fitted.map, method=choice.fitted.method, parameters=choice.fitted.parameters
        )
        self.classes_ = classes
        self.n_features_in_ = int(np.ndim(X) == 2 and np.shape(X)[1] == 2) + 1
        return self

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return the calibrated probabilities, one column per class of `classes_`."""
        return self._fitted().predict_proba(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the more probable class of each row, the positive one from 0.5 on."""
        positive = self._fitted().predict(X) >= 0.5
        return np.asarray(self.classes_[positive.astype(np.int64)])

    def _fitted(self) -> Calibrator:
        if not hasattr(self, "calibrator_"):
            raise UsageError("FederatedCalibrator: it has not been fitted yet; call fit first.")
        return self.calibrator_

    # --- scikit-learn's conventions ------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibrator_")

    def __sklearn_tags__(self) -> Any:
        return classifier_tags(multi_class=False, one_d_array=True)
