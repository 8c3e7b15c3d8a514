"""The document of a study, as `result.json` holds it, put together from single tasks over the simulated hospitals."""

from __future__ import annotations

import copy
import functools
import json
from typing import Any

import numpy as np

import fedassay
from fedassay.data.hospitals import hospitals
from fedassay.privacy.ledger import Charge, compose
from fedassay.protocol import Part, Protection, Setting
from fedassay.reports.page import page
from fedassay.result import describe_privacy

EPSILON, DELTA = 8.0, 1e-6
SHARES = {"evaluate": 0.3, "calibrate": 0.3, "conformal": 0.2, "conformal95": 0.1, "infer": 0.05}
AFTER = {"conformal": "calibrate", "conformal95": "calibrate"}
PARTS = {
    "calibrate": ("first-fit", "held-out"),
    "conformal": ("second-fit", "held-out"),
    "conformal95": ("second-fit",),
}
"""Of the tasks that do not ask all rows."""

VERDICT = (
    "Calibrate the model before its probabilities are used: its calibration slope is below 1 beyond chance. "
    "After calibration no deviation was seen on rows that were not used for it."
)


def study_document(*, noise: bool = True) -> dict[str, Any]:
    """One result of five tasks: with noise, or in the clear with a part for each site. A copy that may be changed."""
    return copy.deepcopy(_document(noise))


@functools.cache
def study_page(*, noise: bool = True) -> str:
    """The report of `study_document`."""
    return page(_document(noise))


@functools.cache
def _document(noise: bool) -> dict[str, Any]:
    tasks = {name: _task(name, noise) for name in SHARES}
    first = tasks["evaluate"]
    runtime = {**first["runtime"], "seconds": sum(one["runtime"]["seconds"] for one in tasks.values())}
    return {
        "task": "study",
        "parameters": {
            "study": "readmission-spring",
            "title": "Readmission within 30 days",
            "model": "readmission-net 2.1",
            "data": {"path": "scores.parquet", "client": "hospital"},
            "columns": {"score": "risk", "label": "outcome"},
            "split": {"holdout": 0.3},
            "seed": 1,
            "expected": None,
        },
        "results": {
            "verdict": {"needs_calibration": True, "text": VERDICT},
            "tasks": {name: _entry(name, one) for name, one in tasks.items()},
            "budget": _budget(noise),
        },
        "privacy": _privacy(noise),
        "cohort": first["cohort"],
        "runtime": runtime,
        "warnings": list(dict.fromkeys(text for one in tasks.values() for text in one["warnings"])),
        "fedassay": first["fedassay"],
    }


def _privacy(noise: bool) -> dict[str, Any]:
    setting = Setting(
        trust=fedassay.ServerDP() if noise else fedassay.Plain(),
        protection=Protection(),
        budget=fedassay.Budget(epsilon=EPSILON, delta=DELTA) if noise else None,
        clients=8,
    )
    return describe_privacy(setting, simulated=True)


def _entry(name: str, document: dict[str, Any]) -> dict[str, Any]:
    return {
        "task": document["task"],
        "share": SHARES[name],
        "after": AFTER.get(name),
        "parameters": document["parameters"],
        "results": document["results"],
    }


def _task(name: str, noise: bool) -> dict[str, Any]:
    """The document of a single task. A regression here has no noise: that costs more than these rows can pay."""
    data = _rows()
    terms: dict[str, Any] = {"client": "hospital", "simulation": fedassay.Simulation(seed=1)}
    terms["trust"] = fedassay.Plain()
    if noise and name != "infer":
        terms["trust"] = fedassay.ServerDP()
        terms["budget"] = fedassay.Budget(epsilon=EPSILON * SHARES[name], delta=DELTA)
    binary = {"score": "risk", "label": "outcome"}
    if name == "evaluate":
        result = fedassay.evaluate(data, **binary, **terms, thresholds=[0.1, 0.5], per_site=not noise)
    elif name == "calibrate":
        result = fedassay.calibrate(data, **binary, **terms, method="platt")
    elif name == "infer":
        features = {"features": "severity,age", "target": "outcome", "model": "logistic", "method": "newton"}
        result = fedassay.infer(data, **features, **terms)
    else:
        level = 0.95 if name == "conformal95" else 0.9
        result = fedassay.conformal(data, **binary, **terms, level=level, method="pooled", holdout=0.3)
    return json.loads(result.to_json())  # type: ignore[no-any-return]


def _rows() -> dict[str, Any]:
    rng = np.random.default_rng(7)
    data = hospitals(clients=8, patients=6000, seed=3)
    odds = np.log(data["risk"] / (1 - data["risk"]))
    seen = {"severity": odds + rng.normal(size=6000), "age": rng.normal(size=6000)}
    return {**data, **seen}


def _budget(noise: bool) -> dict[str, Any]:
    """What was spent. The charges are made up, with laws that compose to what is said of them."""
    charges = [_charge(name, part, noise) for name in SHARES for part in PARTS.get(name, ("all",))]
    if not noise:
        return {"epsilon": None, "delta": None, "spent": None, "remaining": None, "charges": charges}
    spent = compose([_booked(charge) for charge in charges], DELTA)
    return {
        "epsilon": EPSILON,
        "delta": DELTA,
        "spent": spent,
        "remaining": EPSILON - spent,
        "charges": charges,
    }


_L1 = 12.0


def _charge(name: str, part: str, noise: bool) -> dict[str, Any]:
    charge: dict[str, Any] = {
        "id": f"{name}-{part}",
        "task": name,
        "summary": "score-histogram",
        "part": part,
        "law": "discrete-laplace" if noise else "none",
        "scale": _L1 / (EPSILON * SHARES[name]) if noise else None,
        "l1": _L1 if noise else None,
        "l2": 4.0 if noise else None,
        "trust_model": "server-dp" if noise else "plain",
        "unit": "example",
        "neighbours": "add-remove",
        "shuffled_epsilon": None,
        "shuffled_delta": None,
        "sampled": None,
        "epsilon": None,
    }
    if noise:
        charge["epsilon"] = compose([_booked(charge)], DELTA)
    return charge


def _booked(charge: dict[str, Any]) -> Charge:
    return Charge(
        id=charge["id"],
        dataset="hospitals",
        study="readmission-spring",
        law=charge["law"],
        scale=charge["scale"],
        l1=charge["l1"],
        l2=charge["l2"],
        trust_model=charge["trust_model"],
        part=Part(charge["part"]),
    )
