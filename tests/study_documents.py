"""The result of a real study over simulated hospitals, as `result.json` holds it: with noise, or in the clear."""

from __future__ import annotations

import copy
import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fedassay.api.study import run_study
from fedassay.cli.demo import hospitals
from fedassay.documents.blocks import DocumentBlock
from fedassay.documents.page import page
from fedassay.documents.report import sections

EPSILON, DELTA = 8.0, 1e-6
LAST = {True: "ecdf", False: "infer"}
"""The fifth task. A regression under noise protects whole clients only, so that the noisy study has a distribution."""

SHARES = {"evaluate": 0.3, "calibrate": 0.3, "conformal": 0.2, "conformal95": 0.1, "ecdf": 0.1, "infer": 0.1}

_NOISE = f'privacy = "server-dp"\nepsilon = {EPSILON}\ndelta = {DELTA}'
_PARAMETERS = {
    True: "lower = -4.0\nupper = 4.0\nquantiles = [0.5]",
    False: 'model = "logistic"\nmethod = "newton"',
}
_ROLES = {True: 'value = "age"', False: 'target = "outcome"\nfeatures = ["severity", "age"]'}


def study_document(*, noise: bool = True) -> dict[str, Any]:
    """One result of five tasks: with noise, or in the clear with a part for each site. A copy that may be changed."""
    return copy.deepcopy(_document(noise))


@functools.cache
def study_page(*, noise: bool = True) -> str:
    """The report of `study_document`."""
    return page(_document(noise))


def blocks(document: dict[str, Any]) -> list[DocumentBlock]:
    """Those of a single task."""
    (section,) = sections(document)
    return list(section.blocks)


def shares(*, noise: bool) -> dict[str, float]:
    """Of the tasks of the study, in their order."""
    return {name: share for name, share in SHARES.items() if name != LAST[not noise]}


def study_text(*, noise: bool) -> str:
    """The file of the study."""
    return f"""
name = "readmission-spring"
title = "Readmission within 30 days"
model = "readmission-net 2.1"
[data]
path = "scores.parquet"
client = "hospital"
[data.columns]
score = "risk"
label = "outcome"
{_ROLES[noise]}
[privacy]
{_NOISE if noise else 'privacy = "plain"'}
[runtime]
seed = 1
[tasks.evaluate]
share = {SHARES["evaluate"]}
thresholds = [0.1, 0.5]
per_site = {str(not noise).lower()}
[tasks.calibrate]
share = {SHARES["calibrate"]}
method = "platt"
[tasks.conformal]
share = {SHARES["conformal"]}
method = "pooled"
[tasks.conformal95]
task = "conformal"
share = {SHARES["conformal95"]}
method = "pooled"
level = 0.95
conditional = "none"
[tasks.{LAST[noise]}]
share = {SHARES[LAST[noise]]}
{_PARAMETERS[noise]}
"""


@functools.cache
def _document(noise: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        parquet.write_table(pa.table(rows()), Path(folder) / "scores.parquet")
        file = Path(folder) / "study.toml"
        file.write_text(study_text(noise=noise), encoding="utf-8")
        return json.loads(run_study(file).to_json())  # type: ignore[no-any-return]


def rows() -> dict[str, Any]:
    """The patients of eight hospitals."""
    rng = np.random.default_rng(7)
    data = hospitals(clients=8, patients=6000, seed=3)
    odds = np.log(data["risk"] / (1 - data["risk"]))
    seen = {"severity": odds + rng.normal(size=6000), "age": np.clip(rng.normal(size=6000), -4, 4)}
    return {**data, **seen}
