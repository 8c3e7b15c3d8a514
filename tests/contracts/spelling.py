"""Names and places of public things that are about to change, each written once for all contracts."""

from __future__ import annotations

from collections.abc import Mapping

from fedassay.protocol.metrics import CLASS_METRICS, METRICS, MetricRecord

PRIVACY = "privacy"
"""The keyword of the Python functions that takes the trust model."""

PRIVACY_ENTRY = "privacy"
"""The entry of a study's [privacy] section that names the trust model."""

CONDITIONAL = "conditional"
"""What prediction sets are conditional on."""

SETS = "sets"
"""The conformity score of prediction sets."""

WEIGHTING = "weighting"
"""What weighs the same in a regression."""

VARIANCE = "variance"
"""The standard errors of a regression."""

CLASS_BUCKETS = "buckets"
"""Buckets of the calibration curve of a model with several classes."""

HELD_OUT = "holdout"
"""The share, or whether rows are held out."""

COLUMN_NAMES: Mapping[str, str] = {"class": "label", "group": "by"}
"""Roles of a study's columns that the command line and Python call otherwise."""

LISTED = ("grid",)
"""Lists that the command line takes as one word with commas, although their parameters do not say so."""

RENDERERS: Mapping[str, tuple[str, ...]] = {
    "report.html": ("fedassay.study.folder.page", "fedassay.study.pre_flight.page"),
    "model_card.md": ("fedassay.study.folder.model_card",),
    "certificate.json": ("fedassay.study.folder.certify",),
}
"""What a study leaves behind, and the function that makes it, in each place where it is looked up."""


def metric_records(kind: str) -> Mapping[str, MetricRecord]:
    """The records of the metrics of a kind of task, by name."""
    return CLASS_METRICS if kind == "evaluate-classes" else METRICS
