"""A fitted classifier with a calibrator, as scikit-learn sees it."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, make_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted

import fedassay
from class_calibrators import KINDS, calibrator
from fedassay.errors import DataError, UsageError
from fedassay.summaries.multiclass.losses import loss_sums
from fedassay.summaries.multiclass.scaling_maps import Temperature

X, CODES = make_classification(600, 6, n_informative=5, n_redundant=0, n_classes=3, random_state=0)
NAMES = np.array(["ape", "bee", "cat"])
Y = NAMES[CODES]
MODEL = LogisticRegression(max_iter=500).fit(X[:300], Y[:300])
FOREST = RandomForestClassifier(10, random_state=0).fit(X[:300], Y[:300])


def classifier(model: Any = MODEL, kind: str = "temperature", **options: Any) -> Any:
    return fedassay.CalibratedClassifier(model, calibrator(kind, 3), **options)


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_are_those_of_the_calibrator(kind: str) -> None:
    ours, made = classifier(kind=kind), calibrator(kind, 3)
    z = MODEL.decision_function(X)
    assert ours.predict_proba(X).tobytes() == made.predict_proba(z).tobytes()
    assert ours.predict(X).tolist() == NAMES[made.predict(z)].tolist()
    assert ours.classes_.tolist() == NAMES.tolist()
    assert ours.n_features_in_ == 6
    assert ours.score(X, Y) == np.mean(ours.predict(X) == Y)


def test_where_logits_come_from() -> None:
    z = MODEL.decision_function(X)
    assert classifier().logits(X).tobytes() == z.tobytes()
    logs = classifier(response_method="predict_proba").logits(X)
    assert logs == pytest.approx(np.log(MODEL.predict_proba(X)), abs=1e-12)
    # The model's logits but for a shift of each row, which no temperature sees.
    assert classifier(response_method="predict_proba").predict_proba(X) == pytest.approx(
        classifier().predict_proba(X), abs=1e-12
    )
    p = FOREST.predict_proba(X)
    assert (p == 0).any()
    found = classifier(FOREST).logits(X)
    assert np.isfinite(found).all()
    assert found[p > 0] == pytest.approx(np.log(p[p > 0]))
    assert np.all(found[p == 0] == np.log(np.finfo(np.float64).eps))
    assert np.isfinite(classifier(FOREST).predict_proba(X)).all()


def test_the_one_logit_of_two_classes_is_a_pair() -> None:
    two = LogisticRegression().fit(X, Y == "bee")
    one = Temperature(inverse_temperature=1.0, classes=2)
    ours = fedassay.CalibratedClassifier(two, calibrator(map=one))
    assert ours.predict_proba(X) == pytest.approx(two.predict_proba(X), abs=1e-12)
    assert ours.predict(X).tolist() == two.predict(X).tolist()


def test_a_calibrator_makes_a_bad_model_better() -> None:
    """The temperature of the least loss on other rows."""
    wide = np.repeat(X, 2, axis=1)  # to naive Bayes, everything is seen twice
    model = GaussianNB().fit(wide[:200], CODES[:200])
    ours = fedassay.CalibratedClassifier(model, calibrator(classes=3))
    z = ours.logits(wide[200:400])
    least = minimize_scalar(
        lambda s: loss_sums("temperature", z, CODES[200:400], [s]).loss, bounds=(0.01, 2), method="bounded"
    )
    s = float(least.x)
    ours.set_params(calibrator=calibrator(map=Temperature(inverse_temperature=s, classes=3)))
    before = log_loss(CODES[400:], model.predict_proba(wide[400:]))
    assert log_loss(CODES[400:], ours.predict_proba(wide[400:]), labels=ours.classes_) < before - 0.01
    assert ours.predict(wide).tolist() == model.predict(wide).tolist()


def test_in_a_pipeline_and_in_what_scores_it() -> None:
    scaler = StandardScaler().fit(X[:300])
    model = LogisticRegression(max_iter=500).fit(scaler.transform(X[:300]), Y[:300])
    ours = classifier(model)
    pipeline = make_pipeline(scaler, ours)
    check_is_fitted(pipeline)
    expected = ours.predict_proba(scaler.transform(X))
    assert pipeline.predict_proba(X).tobytes() == expected.tobytes()
    assert list(pipeline.classes_) == NAMES.tolist()
    weights = model.coef_.copy()
    pipeline.fit(X[:300], Y[:300])  # the model is not trained again
    assert model.coef_.tobytes() == weights.tobytes()
    assert pipeline.predict_proba(X).tobytes() == expected.tobytes()
    assert 0 < log_loss(Y, pipeline.predict_proba(X)) < 1
    assert pipeline.score(X, Y) > 0.5
    assert "CalibratedClassifier" in pipeline._repr_html_()
    around = fedassay.CalibratedClassifier(make_pipeline(scaler, model), ours.calibrator)
    assert around.predict_proba(X).tobytes() == expected.tobytes()


def test_it_can_be_cross_validated() -> None:
    ours = classifier()
    losses = -cross_val_score(ours, X, Y, scoring="neg_log_loss", cv=3)
    assert np.all((losses > 0) & (losses < 1))
    together = cross_val_predict(ours, X, Y, method="predict_proba", cv=3)
    assert together == pytest.approx(ours.predict_proba(X), abs=1e-12)
    area = make_scorer(roc_auc_score, response_method="predict_proba", multi_class="ovr")
    assert np.all(cross_val_score(ours, X, Y, scoring=area, cv=2) > 0.5)
    search = GridSearchCV(
        ours, {"calibrator": [calibrator(classes=3), calibrator("vector", 3)]}, scoring="neg_log_loss", cv=2
    ).fit(X, Y)
    assert search.best_params_["calibrator"].method in ("temperature", "vector")


def test_clone_and_parameters() -> None:
    ours = classifier(LogisticRegression(C=0.5, max_iter=500).fit(X, Y))
    twin = clone(ours)
    assert twin is not ours
    assert twin.predict_proba(X).tobytes() == ours.predict_proba(X).tobytes()
    assert twin.get_params(deep=False) == ours.get_params(deep=False)
    assert ours.get_params()["estimator__C"] == 0.5
    assert ours.set_params(estimator__C=2.0, response_method="predict_proba") is ours
    assert ours.estimator.C == 2.0
    assert twin.response_method == "auto"
    ours.set_params(estimator__n_estimators=3, estimator=FOREST)
    assert ours.estimator is FOREST
    assert FOREST.n_estimators == 3
    FOREST.set_params(n_estimators=10)
    for wrong in ({"metod": 1}, {"estimator__metod": 1}):
        with pytest.raises(ValueError, match="metod"):
            ours.set_params(**wrong)
    assert repr(classifier()).startswith(
        "CalibratedClassifier(estimator=LogisticRegression(max_iter=500), cal"
    )
    assert is_classifier(ours)
    assert copy.deepcopy(twin).predict_proba(X).tobytes() == twin.predict_proba(X).tobytes()


def test_what_scikit_learn_checks_of_every_estimator() -> None:
    ours = classifier()
    for check in (
        *(estimator_checks.check_get_params_invariance, estimator_checks.check_estimator_repr),
        *(estimator_checks.check_estimator_tags_renamed, estimator_checks.check_estimator_cloneable),
        estimator_checks.check_valid_tag_types,
    ):
        check("CalibratedClassifier", ours)
    check_is_fitted(ours)
    check_is_fitted(ours.fit(X, Y))
    with pytest.raises(NotFittedError):
        check_is_fitted(classifier(LogisticRegression()))


def test_what_does_not_fit_together_is_said() -> None:
    for ours, words in (
        (classifier(LogisticRegression()), "a LogisticRegression without classes_.*fit it first"),
        (fedassay.CalibratedClassifier(MODEL, calibrator(classes=4)), "4 classes for an estimator of 3"),
        (fedassay.CalibratedClassifier(MODEL, Temperature), "expected a ClassCalibrator"),  # type: ignore[arg-type]
        (classifier(response_method="magic"), "'magic', expected one of auto"),
    ):
        for use in (ours.predict_proba, ours.predict, ours.logits, ours.fit):
            with pytest.raises(UsageError, match=words):
                use(X)
    pairs = SVC(decision_function_shape="ovo").fit(np.repeat(X, 2, axis=0)[: len(X)], np.arange(len(X)) % 4)
    four = fedassay.CalibratedClassifier(pairs, calibrator(classes=4))
    with pytest.raises(DataError, match=r"shape \(600, 6\) from the estimator, expected rows x 4"):
        four.predict_proba(X)


def test_scikit_learn_is_not_needed() -> None:
    program = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import numpy as np, fedassay\n"
        "from fedassay.summaries.multiclass.maps import Temperature\n"
        "class Model:\n"
        "    classes_ = np.array([5, 7, 9])\n"
        "    def predict_proba(self, X): return np.tile([0.5, 0.25, 0.25], (len(X), 1))\n"
        "one = fedassay.ClassCalibrator(\n"
        "    map=Temperature(inverse_temperature=2.0, classes=3), method='temperature')\n"
        "c = fedassay.CalibratedClassifier(Model(), one).fit()\n"
        "print(c.predict_proba([0]).round(3), c.predict([0]), sorted(c.get_params()))\n"
        "s = np.linspace(0.01, 0.99, 500); y = np.random.default_rng(0).random(500) < s\n"
        "c = fedassay.FederatedCalibrator(method='beta').fit(s, y)\n"
        "print(c.get_params()['method'], c.predict_proba(s).shape, c)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "[[0.667 0.167 0.167]] [5] ['calibrator', 'estimator', 'response_method']",
        "beta (500, 2) FederatedCalibrator(method='beta')",
    ]
