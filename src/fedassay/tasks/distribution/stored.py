"""A released distribution inside a result's JSON, and what can be asked of it later, for nothing.

Everything needed travels in the result. Numbers are packed (zlib, then base64): a million of them are a string of a
few megabytes.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedassay.errors import UsageError
from fedassay.estimation.count_noise import LeafCovariance, LevelReports
from fedassay.estimation.evidence import Evidence
from fedassay.estimation.intervals import Estimate, bounded
from fedassay.estimation.metric import Undefined, undefined
from fedassay.protocol.arrays import Floats
from fedassay.protocol.vocabulary import Noise, Total
from fedassay.summaries.distribution.grid import MOST_POINTS
from fedassay.summaries.distribution.path import ValuePath
from fedassay.summaries.distribution.roots import ValueRoots
from fedassay.summaries.distribution.tree import Distribution, ValueSummary, ValueTree
from fedassay.tasks.distribution.curve import (
    SMOOTHINGS,
    ReleasedCurve,
    Shown,
    checked_quantile,
    curve_of,
    point_of,
    quantile_entry,
    undefined_entry,
)

_KINDS: Mapping[str, Callable[..., ValueSummary]] = {
    kind.name: kind for kind in (ValueTree, ValuePath, ValueRoots)
}
_TYPES = ("<i1", "<i2", "<i4", "<i8", "<f8")
_MOST_NUMBERS = 4 * MOST_POINTS
"""Largest number of packed numbers: two classes of the largest tree have no more nodes."""

_LABELS = {"positives": 1, "negatives": 0}


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """A released distribution with the law of its noise: all that results are computed from."""

    distribution: Distribution
    noise: Noise
    fit: LeafCovariance
    sums: Floats
    """Sums F_0..F_N of each class, positives first."""

    @classmethod
    def of(cls, distribution: Distribution, noise: Noise) -> Release:
        """Read a release."""
        fit = distribution.summary.leaf_covariance(noise)
        return cls(distribution=distribution, noise=noise, fit=fit, sums=distribution.sums(noise))

    @property
    def summary(self) -> ValueSummary:
        """Requested summary."""
        return self.distribution.summary

    @cached_property
    def everyone(self) -> ReleasedCurve:
        """Curve of all rows."""
        return curve_of(self.summary.grid, self.sums.sum(0), self.fit, self.noise, times=self.summary.classes)

    @cached_property
    def evidence(self) -> Evidence:
        """Positives and negatives, with the leaves of the grid as intervals of the score.

        A row is predicted positive if its value is above an edge.
        """
        positives, negatives = np.diff(self.sums, axis=-1)
        edges = self.summary.grid.edges
        return Evidence(edges=edges, positives=positives, negatives=negatives, fit=self.fit, noise=self.noise)

    def of_class(self, label: int) -> ReleasedCurve:
        """Return the curve of one class, if rows are labelled."""
        if not self.summary.labelled:
            raise UsageError("class: rows have no labels, expected a labelled release.")
        law = self.evidence.count_noise
        return ReleasedCurve(
            grid=self.summary.grid,
            sums=self.sums[1 - label],
            law=law.positives if label else law.negatives,
            noise=self.noise,
            reach=self.fit.reach,
            reports=law if isinstance(law, LevelReports) else None,
            label=label,
        )

    def named(self, name: str) -> ReleasedCurve:
        """Return the curve of ``all`` rows, of ``positives`` or of ``negatives``."""
        if name == "all":
            return self.everyone
        if name not in _LABELS:
            raise UsageError(f"class: got {name!r}, expected all, positives or negatives.")
        return self.of_class(_LABELS[name])

    def to_json(self) -> dict[str, Any]:
        """Return the summary's fields, the noise, and all numbers."""
        summary = self.summary
        given = {
            field.name: _plain(getattr(summary, field.name))
            for field in fields(summary)
            if field.name != "given"
        }
        return {
            "summary": {"name": summary.name, **given, "given": packed(np.array(summary.given))},
            "noise": self.noise.to_message(),
            "numbers": packed(self.distribution.classes.reshape(-1)),
        }

    @classmethod
    def from_results(cls, results: Mapping[str, Any]) -> Release:
        """Read the release behind the `results` of an ecdf."""
        try:
            stored = results["distribution"]
            values = dict(stored["summary"])
            kind = _KINDS[values.pop("name")]
            given = tuple(unpacked(values.pop("given")).tolist())
            lists = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
            summary = kind(**lists, given=given)
            total: Total = unpacked(stored["numbers"])
            if total.shape != (summary.length,):
                raise ValueError(f"{len(total)} numbers instead of {summary.length}")
            noise = Noise.from_message(stored["noise"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                "results: expected the `results` of an ecdf with its `distribution`; got something else "
                f"({type(error).__name__}: {error})."
            ) from error
        return cls.of(summary.read(total), noise)


def quantile_at(
    results: Mapping[str, Any], quantile: float, *, level: float | None = None, of: str = "all"
) -> dict[str, Any]:
    """A quantile that was not asked for before the release, from a stored result. Free: post-processing.

    Parameters
    ----------
    results : the ``results`` object of an ecdf's JSON.
    quantile : between 0 and 1.
    level : of the interval; that of the result by default.
    of : ``all`` rows, or the ``positives`` or ``negatives`` of a labelled release.
    """
    q, level = checked_quantile(quantile), _level(results, level)
    curve = Release.from_results(results).named(of)
    try:
        return quantile_entry(curve, _shown(results, curve), q, level=level)
    except Undefined as reason:
        return undefined_entry(q, reason, level=level)


def value_at(
    results: Mapping[str, Any], x: float, *, level: float | None = None, of: str = "all"
) -> dict[str, Any]:
    """The share of rows with a value up to x, from a stored result. Free: post-processing.

    It holds at the nearest point of the grid, which the answer names as ``applied``; ``error.discretisation`` is how
    much the share can change on the way from there to x. The parameters are those of `quantile_at`.
    """
    if isinstance(x, str) or x is None or not np.isfinite(x):
        raise UsageError(f"x: got {x!r}, expected a finite number.")
    level = _level(results, level)
    curve = Release.from_results(results).named(of)
    points = curve.grid.thresholds[: curve.grid.named]
    place = int(np.argmin(np.abs(points - x)))
    try:
        shown = _shown(results, curve)
        place = int(shown.places[np.argmin(np.abs(points[shown.places] - x))])
        metric = _share(curve, shown, place, float(x), level=level)
        if place == curve.grid.points - 1:
            metric = _beyond(metric, curve, shown, level=level)
    except Undefined as reason:
        metric = undefined(str(reason), level=level).to_json()
    return {"x": float(x), "applied": point_of(curve.grid, place), **metric}


def _beyond(metric: dict[str, Any], curve: ReleasedCurve, shown: Shown, *, level: float) -> dict[str, Any]:
    """Describe the last leaf of a range: how much is below it, and nothing about what is above it."""
    before = int(shown.places[-2]) if len(shown.places) > 1 else None
    lowest = 0.0
    if before is not None:
        known = _share(curve, shown, before, point_of(curve.grid, before), level=level)
        lowest = known["interval"][0]
    reason = f"values above {curve.grid.upper:g} are counted in the last cell too, so that only a lower bound is known"
    return {**metric, "value": None, "interval": [lowest, 1.0], "reason": reason}


def _share(curve: ReleasedCurve, shown: Shown, place: int, x: float, *, level: float) -> dict[str, Any]:
    rows, at = curve.require_rows(), int(np.searchsorted(shown.places, place))
    value = float(shown.values[at])
    point = point_of(curve.grid, place)
    # Between the nearest point and x lies a part of the leaf on that side of it.
    if x < point:
        other = float(shown.values[at - 1]) if at else 0.0
    elif x > point:
        other = float(shown.values[at + 1]) if at + 1 < len(shown.values) else 1.0
    else:
        other = value
    estimate = Estimate(
        value=value,
        sampling_variance=value * (1 - value) / rows,
        privacy_variance=float(curve.share_variances(value, np.array([place]))[0]),
        discretisation=abs(other - value),
    )
    return bounded(estimate, size=rows, level=level).to_json()


def _shown(results: Mapping[str, Any], curve: ReleasedCurve) -> Shown:
    smoothing, points = results.get("smoothing"), results.get("smoothed_points")
    if smoothing not in SMOOTHINGS or not (points is None or (type(points) is int and points >= 1)):
        raise UsageError("results: expected the `smoothing` and `smoothed_points` of an ecdf.")
    return Shown.of(curve, smoothing=smoothing, smoothed_points=points)


def _level(results: Mapping[str, Any], level: float | None) -> float:
    if "distribution" not in results:
        raise UsageError('results: got something else, expected the part "results" of the JSON of an ecdf.')
    chosen = results.get("level") if level is None else level
    if not isinstance(chosen, float) or not 0 < chosen < 1:
        raise UsageError(f"level: got {chosen}, expected a number between 0 and 1, such as 0.95.")
    return chosen


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def packed(numbers: NDArray[Any]) -> dict[str, Any]:
    """Pack whole or real numbers into a short string, in the narrowest type that holds them.

    Examples
    --------
    >>> unpacked(packed(np.array([1, -200, 3])))
    array([   1, -200,    3])
    """
    chosen = "<f8"
    if numbers.dtype.kind == "i":
        ends = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
        chosen = next(t for t in _TYPES if all(np.iinfo(t).min <= end <= np.iinfo(t).max for end in ends))
    data = zlib.compress(np.ascontiguousarray(numbers, dtype=chosen).tobytes(), 6)
    return {"type": chosen, "length": int(numbers.size), "data": base64.b64encode(data).decode("ascii")}


def unpacked(message: Mapping[str, Any]) -> NDArray[Any]:
    """Restore what `packed` was given; raise `ValueError` for anything else, before much memory is used."""
    kind, length = message["type"], message["length"]
    if kind not in _TYPES or type(length) is not int or not 0 <= length <= _MOST_NUMBERS:
        raise ValueError(f"{length} numbers of type {kind}")
    size = length * np.dtype(kind).itemsize
    try:
        stream = zlib.decompressobj()
        data = stream.decompress(base64.b64decode(message["data"], validate=True), size + 1)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"packed numbers: {error}") from error
    if len(data) != size or not stream.eof or stream.unused_data:
        raise ValueError(f"{len(data)} bytes instead of {size}, or more behind them")
    numbers = np.frombuffer(data, dtype=kind)
    if kind == "<f8" and not np.isfinite(numbers).all():
        raise ValueError("numbers that are not finite")
    return numbers.astype(np.float64 if kind == "<f8" else np.int64)
