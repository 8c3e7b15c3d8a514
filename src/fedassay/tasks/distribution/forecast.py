"""Forecasts of distribution functions by each mechanism, of quantiles by search, and of the Hosmer-Lemeshow test."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from fedassay.errors import FedassayError
from fedassay.estimation.calibration_error import Buckets
from fedassay.estimation.intervals import z_value
from fedassay.estimation.metric import Undefined
from fedassay.protocol.vocabulary import Noise, Points, Sum
from fedassay.summaries.distribution.grid import power_of_two
from fedassay.summaries.distribution.tree import ValueSummary, ValueTree
from fedassay.tasks.distribution.ecdf import FIRST_SHARE, Ecdf
from fedassay.tasks.distribution.hosmer_lemeshow import HosmerLemeshow
from fedassay.tasks.distribution.mechanisms import (
    MECHANISMS,
    chosen,
    expected_curve,
    mean_variance,
    name_of,
    noise_half_width,
    quantile_errors,
)
from fedassay.tasks.distribution.search import SearchQuantiles
from fedassay.tasks.evaluation.accuracy import expected_evidence
from fedassay.tasks.evaluation.evaluate import Evaluate
from fedassay.tasks.evaluation.forecast import released_histogram
from fedassay.tasks.expectation import PlannedStudy
from fedassay.tasks.forecast import Details, DetailTable, Forecast, Prediction


@dataclass(frozen=True, kw_only=True)
class DistributionForecast(Forecast[Ecdf]):
    """Half-widths, as shares of the rows: the simultaneous band of the curve, and what noise adds to it."""

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType({"noise": 0.01, "band": 0.05})
    main: ClassVar[tuple[str, ...]] = ("band",)
    assumption: ClassVar[str] = "Values are taken to be spread evenly over the range."

    @property
    def own(self) -> dict[str, float]:
        """See `Forecast`: the precision is a target of the noise."""
        return {} if self.task.precision is None else {"noise": self.task.precision}

    def informed(self, study: PlannedStudy) -> Ecdf:
        """See `Forecast`: a precision is of the number of rows."""
        if self.task.precision is None or self.task.expected_rows is not None:
            return self.task
        return replace(self.task, expected_rows=study.rows)

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Prediction]:
        """See `Forecast`."""
        try:
            errors = self.errors(study, *self.release(study, self.task.mechanism))
        except Undefined as problem:
            return {name: Prediction(width=math.inf, reason=str(problem)) for name in names}
        return {name: Prediction(width=errors[name]) for name in names}

    def release(self, study: PlannedStudy, mechanism: str) -> tuple[ValueSummary, Noise]:
        """Return what a mechanism would ask for, over a range of length 1, and its noise."""
        task = self.task
        points = len(task.grid) + 1 if isinstance(task.grid, tuple) else task.points
        if task.grid == "quantile":
            study = replace(study, share=study.share * (1 - FIRST_SHARE))
        leaves = ValueTree(
            lower=0.0,
            upper=1.0,
            points=power_of_two(points),
            labelled=task.labelled,
            public_labels=task.public_labels,
        )
        summary = chosen(leaves, study.setting, mechanism=mechanism)
        return summary, study.setting.noise(Sum(of=summary))

    def errors(self, study: PlannedStudy, summary: ValueSummary, noise: Noise) -> dict[str, float]:
        """Return errors of a release, as shares of the rows; raise `Undefined` where there will be no curve.

        ``standard_deviation`` is that of the noise at a typical point, ``noise`` the most that noise adds to the
        half-width of the band (``--precision`` is compared with this), ``band`` half its width at its widest.
        """
        rows, level = study.rows, self.task.level
        lower, upper = expected_curve(summary, noise, rows=rows).band(level=level)
        variance = summary.classes * mean_variance(summary, noise) if noise.variance else 0.0
        return {
            "standard_deviation": math.sqrt(variance) / rows,
            "noise": noise_half_width(summary, noise, rows=rows, level=level),
            "band": float((upper - lower).max()) / 2,
        }

    def notes(self, study: PlannedStudy) -> tuple[str, ...]:
        """See `Forecast`."""
        used = power_of_two(self.task.points)
        if isinstance(self.task.grid, tuple) or used == self.task.points:
            return ()
        return (f"{self.task.points:,} points are rounded up to {used:,}, a power of two.",)

    def details(self, study: PlannedStudy, given: Mapping[str, float]) -> Details:
        """See `Forecast`: each mechanism next to the others, and quantiles of the mechanism in use."""
        summary, noise = self.release(study, self.task.mechanism)
        used = name_of(summary, noise)
        lines = [self._line(study, name) for name in (MECHANISMS if noise.variance else ("none",))]
        recommended = min(lines, key=lambda line: line.get("standard_deviation", math.inf))["mechanism"]
        instead = f" instead of {used}" if recommended != used else ", which has the least noise"
        return Details(
            facts={"used": used, "recommended": recommended},
            tables={
                "mechanisms": DetailTable(
                    title=f"The curve by each mechanism ({self.task.level:.0%} band, shares of rows)",
                    columns={
                        "mechanism": "mechanism",
                        "standard_deviation": "noise at a point",
                        "noise": "noise in band ±",
                        "band": "band ±",
                    },
                    rows=lines,
                ),
                **self._quantiles(study, summary, noise),
            },
            remarks=(f"Recommended: {recommended}{instead}.",) if noise.variance else (),
        )

    def _line(self, study: PlannedStudy, mechanism: str) -> dict[str, Any]:
        """Return the errors of one mechanism, or why there will be no curve."""
        try:
            return {"mechanism": mechanism, **self.errors(study, *self.release(study, mechanism))}
        except (FedassayError, Undefined) as problem:
            return {"mechanism": mechanism, "reason": str(problem)}

    def _quantiles(self, study: PlannedStudy, summary: ValueSummary, noise: Noise) -> dict[str, DetailTable]:
        """Return standard errors, if there is a curve; noise counts at least as at a typical point.

        At round shares of evenly spread values few nodes meet; real quantiles are not so lucky.
        """
        rows = []
        try:
            least = self.errors(study, summary, noise)["standard_deviation"]
        except Undefined:
            return {}
        for quantile in self.task.quantiles or (0.5,):
            sampling, privacy = quantile_errors(
                summary, noise, quantile=quantile, rows=study.rows, density=1.0
            )
            rows.append({"quantile": quantile, "sampling": sampling, "privacy": max(privacy, least)})
        table = DetailTable(
            title="Standard errors of quantiles, as shares of the range",
            columns={name: name for name in ("quantile", "sampling", "privacy")},
            rows=rows,
            digits={"quantile": "g"},
        )
        return {"quantiles": table}


@dataclass(frozen=True, kw_only=True)
class QuantilesForecast(Forecast[SearchQuantiles]):
    """Half the widest interval of the quantiles, as a share of the range, for values that are spread evenly over it."""

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType({"quantile": 0.05})
    main: ClassVar[tuple[str, ...]] = ("quantile",)
    assumption: ClassVar[str] = DistributionForecast.assumption

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Prediction]:
        """See `Forecast`."""
        path = self.task.summary
        noise = study.setting.noise(Points(of=path, at=(path.points - 1,)))
        density = 1 / (self.task.upper - self.task.lower)
        found = []
        for quantile in self.task.quantiles:
            errors = quantile_errors(path, noise, quantile=quantile, rows=study.rows, density=density)
            sampling, privacy = (one * density for one in errors)
            width = z_value(self.task.level) * math.hypot(sampling, privacy)
            found.append(Prediction(width=width, sampling=sampling, privacy=privacy))
        return dict.fromkeys(names, max(found, key=lambda one: one.width))


@dataclass(frozen=True, kw_only=True)
class GroupTestForecast(Forecast[HosmerLemeshow]):
    """Gap between observed and expected positives that can be distinguished from none, in a typical group.

    Half its interval, as a share of the group's rows; a test of all groups together sees smaller ones. For the method
    ``free``; the others are taken to be as good.
    """

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType({"gap": 0.05})
    main: ClassVar[tuple[str, ...]] = ("gap",)
    expects: ClassVar[tuple[str, ...]] = ("prevalence", "auc")
    varies: ClassVar[bool] = True
    assumption: ClassVar[str] = "Scores are taken to be calibrated."

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Prediction]:
        """See `Forecast`."""
        task = self.task
        evaluate = Evaluate(height=task.height, transform=task.transform, level=task.level)
        histogram, noise = released_histogram(evaluate, study.setting)
        known = study.expectation.known(self.name, "prevalence", "auc")
        evidence = expected_evidence(histogram, rows=study.rows, **known, noise=noise)
        try:
            evidence.require_rows()
        except Undefined as problem:
            return {"gap": Prediction(width=math.inf, reason=str(problem))}
        table = Buckets.equi_depth(evidence, task.groups)
        parts = (table.share_sampling_covariance, table.share_noise_covariance)
        sampling, privacy = (math.sqrt(float(np.median(np.diag(one)))) * task.groups for one in parts)
        width = z_value(task.level) * math.hypot(sampling, privacy)
        return {"gap": Prediction(width=width, sampling=sampling, privacy=privacy)}

    def notes(self, study: PlannedStudy) -> tuple[str, ...]:
        """See `Forecast`."""
        if self.task.method == "free" or not study.trust.private:
            return ()
        return (f"{self.name}: predicted as with the method free, not {self.task.method}.",)
