"""The contract of every metric."""

from __future__ import annotations

import math

import pytest
from metric_contract import KINDS, RECORDS, MetricContract, answers_of


class Unbounded(MetricContract):
    """A metric that can be any number."""

    low, high = -math.inf, math.inf


class Bounded(MetricContract):
    """A metric whose range ends somewhere."""


class TestRocAuc(Bounded):
    name, title = "roc_auc", "ROC AUC"


class TestAveragePrecision(Bounded):
    name, title = "average_precision", "average precision"


class TestBrierScore(Bounded):
    name, title = "brier_score", "Brier score"


class TestLogLoss(Bounded):
    name, title, high = "log_loss", "log loss", math.inf


class TestAccuracy(Bounded):
    name, title = "accuracy", "accuracy"


class TestPrecision(Bounded):
    name, title = "precision", "precision"


class TestRecall(Bounded):
    name, title = "recall", "recall (sensitivity)"


class TestSpecificity(Bounded):
    name, title = "specificity", "specificity"


class TestF1(Bounded):
    name, title = "f1", "F1"


class TestExpectedCalibrationError(Bounded):
    name, title = "expected_calibration_error", "calibration error (ECE, equi-depth)"


class TestExpectedCalibrationErrorUniform(Bounded):
    name, title = "expected_calibration_error_uniform", "calibration error (ECE, uniform)"


class TestCalibrationIntercept(Unbounded):
    name, title = "calibration_intercept", "calibration intercept"


class TestCalibrationSlope(Unbounded):
    name, title = "calibration_slope", "calibration slope"


class TestHosmerLemeshow(Bounded):
    name, title, high, interval = "hosmer_lemeshow", "Hosmer-Lemeshow", math.inf, False


class TestPrevalence(Bounded):
    name, title = "prevalence", "prevalence"


class TestObservedExpectedRatio(Bounded):
    name, title, high = "observed_expected_ratio", "observed / expected", math.inf


class TestNetBenefit(Bounded):
    name, title, low = "net_benefit", "net benefit", -math.inf


class TestBalancedAccuracy(Bounded):
    name, title = "balanced_accuracy", "balanced accuracy"


class TestMatthewsCorrelation(Bounded):
    name, title, low = "matthews_corrcoef", "Matthews correlation", -1.0


class TestNegativePredictiveValue(Bounded):
    name, title = "negative_predictive_value", "negative predictive value"


class TestPositiveLikelihoodRatio(Bounded):
    name, title, high = "positive_likelihood_ratio", "positive likelihood ratio", math.inf


class TestNegativeLikelihoodRatio(Bounded):
    name, title, high = "negative_likelihood_ratio", "negative likelihood ratio", math.inf


class OfClasses(Bounded):
    kind = "evaluate-classes"


class TestClassAccuracy(OfClasses):
    name, title = "accuracy", "accuracy"


class TestClassRocAuc(OfClasses):
    name, title = "roc_auc", "AUC (mean of classes)"


class TestClassLogLoss(OfClasses):
    name, title, high = "log_loss", "log loss", math.inf


class TestClassBrierScore(OfClasses):
    name, title, high = "brier_score", "Brier score (0 to 2)", 2.0


class TestTopLabelCalibrationError(OfClasses):
    name, title = "expected_calibration_error", "expected calibration error (ECE, top label)"


class TestClasswiseCalibrationError(OfClasses):
    name, title = "classwise_calibration_error", "classwise calibration error"


def test_every_metric_has_a_contract() -> None:
    contracts = {(contract.kind, contract.name) for contract in globals().values() if _is_contract(contract)}
    assert contracts == {(kind, name) for kind in KINDS for name in _in_results(kind)}


@pytest.mark.parametrize("kind", KINDS)
def test_every_metric_of_a_result_has_a_title(kind: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    answers = answers_of(kind, tmp_path_factory)
    results = answers.document(answers.contract.case("values"))["results"]
    metrics = {
        name
        for name, entry in results.items()
        if isinstance(entry, dict) and {"value", "level"} <= entry.keys()
    }
    assert metrics == _in_results(kind)


def _in_results(kind: str) -> set[str]:
    """The metrics that results have by name: over all rows, or at the first threshold."""
    records = RECORDS[kind]
    return {name for name, record in records.items() if {"rows", "threshold"} & set(record.parts)}


def _is_contract(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, MetricContract) and value.__name__.startswith("Test")
