"""A fitted classifier whose probabilities are calibrated, as a scikit-learn estimator; scikit-learn is not needed."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedassay.artefacts.class_calibrator import ClassCalibrator, Floats, most_probable
from fedassay.artefacts.conventions import Conventions, classifier_tags
from fedassay.errors import DataError, UsageError

RESPONSES = ("auto", "decision_function", "predict_proba")

LEAST = float(np.finfo(np.float64).eps)
"""Probabilities below count as this one, as in scikit-learn's log loss: that of 0 has no logarithm."""


class CalibratedClassifier(Conventions):
    """A fitted classifier and the calibrator that a federation has fitted to its logits, in one.

    Class k of the calibrator is ``estimator.classes_[k]``: export the labels of the calibration rows as places in
    `classes_`, and their logits as `logits` computes them (scaling each class by itself makes something else of
    logits that are all shifted by the same amount).

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
        """Nothing is fitted; what does not fit together is refused."""
        self._check()
        return self

    def logits(self, X: Any) -> Floats:
        """What the model says about rows, one column for each class: what the calibrator is to be fitted to."""
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
        """The calibrated probabilities, one column per class of `classes_`."""
        z = self.logits(X)
        return self.calibrator.map.predict_proba(z)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, one of `classes_`."""
        z = self.logits(X)
        found = self.calibrator.map
        return np.asarray(self.classes_[most_probable(found, z, found.predict_proba(z))])

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, in the order of the columns of `predict_proba`."""
        return np.asarray(self.estimator.classes_)

    @property
    def n_features_in_(self) -> int:
        """How many columns the model takes."""
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
