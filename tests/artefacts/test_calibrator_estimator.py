"""The scikit-learn estimator: its conventions, its pipelines, and the same numbers as the federation."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted

import fedassay
from calibration_rows import crooked
from fedassay.errors import DataError, UsageError
from fedassay.tasks.calibration import METHODS

SCORES, LABELS = crooked(4_000)


@pytest.mark.parametrize("method", METHODS)
def test_it_fits_what_a_federation_without_noise_fits(method: str) -> None:
    """All rows but a few are fit rows, so the two calibrators differ by those few only."""
    data = {"site": np.arange(len(SCORES)) % 4, "p": SCORES, "y": LABELS}
    federated = fedassay.calibrate(
        data,
        client="site",
        score="p",
        label="y",
        method=method,
        holdout=1e-9,
        simulation=fedassay.Simulation(seed=1),
    )
    ours = fedassay.FederatedCalibrator(method=method).fit(SCORES, LABELS)
    assert federated["histogram"]["held_out"]["rows"] == 0
    assert ours.calibrator_.method == federated["method"]
    # The federation's grid also has the buckets of its calibration error as edges.
    x = np.linspace(0.01, 0.99, 99)
    assert ours.predict_proba(x)[:, 1] == pytest.approx(
        fedassay.Calibrator.of(federated).predict(x), abs=0.02 if method in ("histogram", "bbq") else 2e-3
    )


def test_clone_and_parameters() -> None:
    ours = fedassay.FederatedCalibrator(method="beta", bins=None, height=12)
    assert clone(ours).get_params() == ours.get_params()
    assert ours.set_params(method="platt") is ours
    assert ours.method == "platt"
    with pytest.raises(ValueError, match="'metod'"):
        ours.set_params(metod="platt")
    assert repr(ours) == "FederatedCalibrator(method='platt', height=12)"
    assert is_classifier(ours)
    assert not hasattr(clone(ours.fit(SCORES, LABELS)), "calibrator_")


def test_what_scikit_learn_checks_of_every_estimator() -> None:
    name = "FederatedCalibrator"
    for check in (
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_estimator_repr,
    ):
        check(name, fedassay.FederatedCalibrator())
    with pytest.raises(NotFittedError):
        check_is_fitted(fedassay.FederatedCalibrator())
    check_is_fitted(fedassay.FederatedCalibrator().fit(SCORES, LABELS))


def test_at_the_end_of_a_pipeline() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    y = np.where(rng.random(3000) < 1 / (1 + np.exp(-X @ [1.0, 0.5, 0.0])), "ill", "healthy")
    model = GaussianNB(var_smoothing=1e-3).fit(X[:1000], y[:1000])
    pipeline = make_pipeline(
        FunctionTransformer(model.predict_proba), fedassay.FederatedCalibrator(method="platt")
    )
    pipeline.fit(X[1000:], y[1000:])
    assert pipeline.predict_proba(X).shape == (3000, 2)
    assert list(pipeline.classes_) == ["healthy", "ill"]
    assert set(pipeline.predict(X)) == {"healthy", "ill"}
    assert pipeline.score(X, y) > 0.6
    again = clone(pipeline).fit(X[1000:], y[1000:])
    assert again.predict_proba(X) == pytest.approx(pipeline.predict_proba(X))
    assert pipeline[-1].n_features_in_ == 2
    scores = cross_val_score(pipeline, X, y, scoring="neg_log_loss", cv=3)
    assert np.all(scores > -0.7)
    search = GridSearchCV(
        pipeline, {"federatedcalibrator__method": ["platt", "histogram"]}, scoring="neg_log_loss", cv=2
    ).fit(X, y)
    assert search.best_params_["federatedcalibrator__method"] in ("platt", "histogram")


def test_it_can_be_copied_and_its_artefact_saved(tmp_path: Path) -> None:
    ours = fedassay.FederatedCalibrator(method="isotonic").fit(SCORES, LABELS)
    calibrated = ours.predict_proba(SCORES)
    assert copy.deepcopy(ours).predict_proba(SCORES).tobytes() == calibrated.tobytes()
    ours.calibrator_.save(tmp_path / "c.json")
    loaded = fedassay.load_calibrator(tmp_path / "c.json")
    assert loaded.predict_proba(SCORES).tobytes() == calibrated.tobytes()


def test_it_does_what_a_calibrated_classifier_does() -> None:
    """Platt on the logit is scikit-learn's sigmoid on the decision function, but for its smoothed labels."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20_000, 1))
    y = (rng.random(20_000) < 1 / (1 + np.exp(-1.5 * X[:, 0]))).astype(int)
    model = LogisticRegression(C=1e-4).fit(X[:10_000], y[:10_000])  # far too flat
    from sklearn.frozen import FrozenEstimator

    theirs = CalibratedClassifierCV(FrozenEstimator(model), method="sigmoid").fit(X[10_000:], y[10_000:])
    ours = fedassay.FederatedCalibrator(method="platt").fit(model.predict_proba(X[10_000:]), y[10_000:])
    assert ours.predict_proba(model.predict_proba(X[:500]))[:, 1] == pytest.approx(
        theirs.predict_proba(X[:500])[:, 1], abs=1e-3
    )


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        ([0.1, 0.2], [1, 1], "1 class,"),
        ([0.1, 0.2, 0.3], [0, 1, 2], "3 classes"),
        ([0.1, 0.2], [0, 1, 1], "one label for 2 scores"),
        ([0.1, 1.2], [0, 1], "row 1"),
        ([], [], "0 classes"),
        ([0.1, 0.9], [0, 1], "separate the classes"),
    ],
)
def test_what_cannot_be_fitted_is_said(X: list[float], y: list[int], words: str) -> None:
    with pytest.raises(DataError, match=words):
        fedassay.FederatedCalibrator(method="platt").fit(X, y)


def test_wrong_parameters_are_refused_when_it_is_fitted() -> None:
    with pytest.raises(UsageError, match="magic"):
        fedassay.FederatedCalibrator(method="magic").fit(SCORES, LABELS)
    with pytest.raises(UsageError, match="call fit first"):
        fedassay.FederatedCalibrator().predict(SCORES)
