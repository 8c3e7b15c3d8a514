"""The contract of every kind of task of this repository."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from answers import Answers
from kind_contract import Case, KindContract, WrongValue
from own_kinds import BINARY, LOGITS, Logits, Ours, Scores, few, rows

import fedassay
from fedassay.tasks.card import TASKS

RANGE: dict[str, Any] = {"lower": 0.0, "upper": 128.0, "points": 16}


class TestEvaluate(Scores):
    implied: ClassVar = {"versus": "the column versus", "groups": "the column by"}
    wrong: ClassVar = {
        "thresholds": [1.5],
        "height": 99,
        "buckets": 0,
        "transform": "cubic",
        "level": 1.5,
        "groups": ["a", "a"],
        "versus": "maybe",
        "per_site": "maybe",
    }


class TestEvaluateClasses(Logits):
    implied: ClassVar = {"classes": "the column logits"}
    wrong: ClassVar = {"classes": 1, "buckets": 0, "height": 99, "level": 1.5}


class TestCalibrate(Ours):
    kind, command = "calibrate", "calibrate"
    columns = BINARY
    parameters: ClassVar = {"method": "platt", "height": 4}
    expected: ClassVar = {**Ours.expected, "prevalence": 0.4, "auc": 0.8}
    planned = ("--method", "platt", "--height", "4")
    undefined = Case(trust="secure-sum", rows=few())
    artefact, load = "calibrator.json", staticmethod(fedassay.load_calibrator)
    applied = ("calibrated",)
    wrong: ClassVar = {
        "method": "magic",
        "bins": 0,
        "height": 99,
        "buckets": 0,
        "transform": "cubic",
        "level": 1.5,
    }


class TestCalibrateClasses(Ours):
    kind, command = "calibrate-classes", "calibrate"
    columns = LOGITS
    parameters: ClassVar = {"method": "temperature"}
    expected: ClassVar = {**Ours.expected, "classes": 3}
    undefined = Case(trust="secure-sum", rows=few())
    artefact, load = "calibrate-classes.json", staticmethod(fedassay.load_calibrator)
    applied = ("probability_0", "probability_1", "probability_2", "predicted_class")
    implied: ClassVar = {"classes": "the column logits"}
    wrong: ClassVar = {
        "classes": 1,
        "method": "magic",
        "solver": "magic",
        "rounds": 0,
        "participation": 1.5,
        "clip": -1.0,
        "negative_clip": -1.0,
        "clipping": "magic",
        "weighting": "magic",
        "averaging": "magic",
        "height": 99,
        "buckets": 0,
        "holdout": 1.5,
        "level": 1.5,
    }


class TestConformal(Ours):
    kind, command = "conformal", "conformal"
    columns: ClassVar = {"target": "t", "prediction": "p"}
    parameters: ClassVar = {"method": "pooled", "score_range": [0.0, 4.0], "bins": 8}
    expected: ClassVar = {"rows": 100, "clients": 4}
    planned = ("--method", "pooled", "--bins", "8", "--holdout", "0.3")
    undefined = Case(trust="server-dp", epsilon=0.05)
    artefact, load = "conformal.json", staticmethod(fedassay.ConformalPredictor.load)
    applied = ("lower", "upper")
    implied: ClassVar = {
        "sets": "the columns",
        "classes": "the column logits",
        "groups": "the column by",
        "holdout": "the option holdout",
    }
    wrong: ClassVar = {
        "method": "magic",
        "sets": "magic",
        "score_parameters": [1.0, 2.0, 3.0],
        "level": 1.5,
        "guarantee": "magic",
        "confidence": WrongValue(value=1.5, context={"guarantee": "training-conditional"}),
        "score_range": [4.0, 0.0],
        "bins": 0,
        "conditional": "magic",
        "groups": WrongValue(value=["a", "a"], context={"conditional": "group"}),
        "classes": 1,
        "holdout": "maybe",
        "report_level": 1.5,
    }


class TestEcdf(Ours):
    kind, command = "ecdf", "ecdf"
    columns: ClassVar = {"value": "age"}
    parameters: ClassVar = {**RANGE, "quantiles": [0.5]}
    undefined = Case(
        trust="secure-sum",
        rows=few(),
        columns={"value": "age", "label": "y"},
        declarations={"labelled": True},
    )
    implied: ClassVar = {"labelled": "the column label"}
    wrong: ClassVar = {
        "lower": -math.inf,
        "upper": math.inf,
        "points": 1,
        "grid": "cubic",
        "mechanism": "magic",
        "smoothing": "magic",
        "smoothed_points": 0,
        "quantiles": [1.5],
        "level": 1.5,
        "labelled": "maybe",
        "public_labels": "maybe",
        "precision": 1.5,
        "expected_rows": 0.0,
    }


class TestQuantiles(Ours):
    kind, command = "quantiles", "quantiles"
    columns: ClassVar = {"value": "age"}
    parameters: ClassVar = {**RANGE, "quantiles": [0.5]}
    exact = noisy = "two-server"
    planned = ("--lower", "0", "--upper", "128", "--points", "16")
    undefined = Case(trust="two-server", epsilon=0.05)
    wrong: ClassVar = {
        "lower": -math.inf,
        "upper": math.inf,
        "points": 1,
        "quantiles": [1.5],
        "grid": "cubic",
        "level": 1.5,
    }


class TestHosmerLemeshow(Ours):
    kind, command = "hosmer-lemeshow", "hosmer-lemeshow"
    columns = BINARY
    parameters: ClassVar = {"groups": 4, "height": 4}
    expected: ClassVar = {**Ours.expected, "prevalence": 0.4, "auc": 0.8}
    planned = ("--groups", "4", "--height", "4")
    undefined = Case(trust="server-dp", epsilon=0.05)
    wrong: ClassVar = {
        "method": "magic",
        "groups": 0,
        "degrees": "Q-3",
        "points": 1,
        "curve_share": 1.5,
        "height": 99,
        "transform": "cubic",
        "level": 1.5,
    }


class TestInfer(Ours):
    kind, command = "infer", "infer"
    columns: ClassVar = {"target": "t", "features": "age,odds"}
    parameters: ClassVar = {"rounds": 8, "scales": ["age=50:20", "odds=0:1", "target=0:2"]}
    epsilon = 5000.0
    planned = ("--features", "2", "--rounds", "8")
    undefined = Case(
        trust="secure-sum",
        columns={"target": "y", "features": "y2"},
        rows={**rows(), "y2": rows()["y"]},
        parameters={"model": "logistic", "method": "newton"},
    )
    implied: ClassVar = {
        "features": "the columns",
        "target": "the columns",
        "offset": "the column offset",
    }
    wrong: ClassVar = {
        "model": "magic",
        "features": ["a", "a"],
        "target": 3,
        "method": "magic",
        "rounds": 1,
        "participation": 1.5,
        "local_steps": 0,
        "local": "magic",
        "step": -1.0,
        "decay": 3.0,
        "weighting": "magic",
        "variance": "magic",
        "intercept": "maybe",
        "standardise": "maybe",
        "scales": ["age"],
        "clip": -1.0,
        "offset": "maybe",
        "level": 1.5,
        "contrasts": ["age +"],
    }

    def test_a_study_has_a_scale_for_a_single_feature(self, answers: Answers) -> None:
        case = Case(
            trust=self.noisy,
            epsilon=self.epsilon,
            columns={"target": "t", "features": "age"},
            parameters={"rounds": 8, "scales": ["age=50:20", "target=0:2"]},
        )
        output = answers.run(self.sections(case))
        assert output.works, output.err


def test_every_kind_of_this_repository_has_a_contract() -> None:
    ours = {name for name, kind in TASKS.items() if kind.__module__.startswith("fedassay.")}
    assert {contract.kind for contract in globals().values() if _is_contract(contract)} == ours


def _is_contract(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, KindContract) and value.__name__.startswith("Test")
