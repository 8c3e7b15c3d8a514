"""The calibrators for rows that are in one place, as a scikit-learn estimator; scikit-learn is not needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedassay.artefacts.calibrator import Calibrator, Floats, checked_scores
from fedassay.artefacts.conventions import Conventions, classifier_tags
from fedassay.errors import DataError, UsageError
from fedassay.protocol import NO_NOISE, Batch
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.calibration import Calibrate, fit
from fedassay.tasks.calibration.parameters import Method
from fedassay.tasks.evaluation.evaluate import EXACT_HEIGHT
from fedassay.tasks.shared_parameters import Transform


class FederatedCalibrator(Conventions):
    """Fit the calibrator that a federation would fit, to rows that are in one place.

    The same code as `fedassay.calibrate` without noise: the rows are counted into a histogram of scores, and
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
        method: Method = "auto",
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
        total, _ = histogram.measure(_InMemory(scores, codes.astype(np.int8)), {})
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
        """The calibrated probabilities, one column per class of `classes_`."""
        return self._fitted().predict_proba(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The more probable class of each row, the positive one from 0.5 on."""
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


class _InMemory:
    """Scores and labels as the rows of one client."""

    def __init__(self, scores: Floats, labels: NDArray[np.int8]) -> None:
        self._batch: dict[str, NDArray[Any]] = {"score": scores, "label": labels}

    def batches(self) -> Iterator[Batch]:
        """See `protocol.Rows`."""
        if len(self._batch["score"]):
            yield self._batch
