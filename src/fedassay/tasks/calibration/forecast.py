"""Forecast of a calibration of scores: the error of the map, and the intervals on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from fedassay.estimation.evidence import Evidence
from fedassay.estimation.metric import Undefined
from fedassay.estimation.recalibration import Logistic
from fedassay.protocol.arrays import Floats, Ints
from fedassay.protocol.metrics import METRICS
from fedassay.protocol.vocabulary import NO_NOISE, Noise, Part, Sum
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.calibration.binning import binning_of, finest_number, supported_scores
from fedassay.tasks.calibration.calibrate import Calibrate
from fedassay.tasks.calibration.methods import AUTO
from fedassay.tasks.evaluation.accuracy import expected_evidence, predict
from fedassay.tasks.evaluation.forecast import advice, published_line, published_table, resolution_to_json
from fedassay.tasks.expectation import PlannedStudy
from fedassay.tasks.forecast import Details, DetailTable, Forecast, Prediction


@dataclass(frozen=True, kw_only=True)
class MapError:
    """Expected error of a fitted map f̂ where the truth is q.

    Parameters
    ----------
    calibration_error : E|E[y|f̂] - f̂|, the calibration error that fitting leaves.
    sampling, privacy, binning : the three parts of the mean of (f̂ - q)², by which the Brier score of new rows
        exceeds the best possible. Binning is the loss of telling apart rows of one bucket; it does not
        miscalibrate.
    buckets : number of buckets of the map, if it has buckets.
    """

    calibration_error: float
    sampling: float
    privacy: float
    binning: float = 0.0
    buckets: int | None = None

    @classmethod
    def mean(cls, share: Floats, sampling: Floats, privacy: Floats) -> MapError:
        """Average centred normal errors of these variances in these shares of rows: E|e| is √(2/π) σ."""
        absolute = np.sqrt(2 / math.pi * np.maximum(sampling + privacy, 0.0))
        error, from_rows, from_noise = (float(share @ part) for part in (absolute, sampling, privacy))
        return cls(calibration_error=error, sampling=from_rows, privacy=from_noise)

    @property
    def brier_excess(self) -> float:
        """The mean of (f̂ - q)²."""
        return self.sampling + self.privacy + self.binning


def predict_map(
    histogram: ScoreHistogram,
    *,
    method: str,
    rows: float,
    prevalence: float,
    auc: float,
    noise: Noise = NO_NOISE,
    buckets: int | None = None,
) -> MapError:
    """Predict the error of a map fitted to a release of `rows` rows; `Undefined` if it could not be fitted.

    Examples
    --------
    >>> histogram = ScoreHistogram(transform="mixed", height=12)
    >>> platt = predict_map(histogram, method="platt", rows=10_000, prevalence=0.3, auc=0.8)
    >>> binned = predict_map(histogram, method="histogram", rows=10_000, prevalence=0.3, auc=0.8)
    >>> f"{platt.calibration_error:.4f} {binned.calibration_error:.4f} {binned.buckets}"
    '0.0043 0.0144 22'
    """
    data = {"rows": rows, "prevalence": prevalence, "auc": auc}
    return PREDICTED[method](*_noisy_and_exact(histogram, noise, data), buckets)


def _noisy_and_exact(
    histogram: ScoreHistogram, noise: Noise, data: Mapping[str, float]
) -> tuple[Evidence, Evidence]:
    noisy, exact = (expected_evidence(histogram, **data, noise=law) for law in (noise, NO_NOISE))
    return noisy, exact


def _platt(noisy: Evidence, exact: Evidence, _: int | None) -> MapError:
    """Predict the error of Platt scaling.

    To first order, f̂ - q = μ(1-μ) x^T (β̂ - β) with x = (1, logit s) and β = (0, 1).

    The coefficients have the sandwich covariance of `Logistic.influence`, and an injective map has
    E[y|f̂] = q. Bins move rows to their midpoints, which matters to second order only and is left out.
    """
    noisy.require_classes()
    s = supported_scores(noisy)
    x = np.stack([np.ones_like(s), np.log(s) - np.log1p(-s)])

    identity = Logistic(evidence=noisy, design=x, coefficients=np.array([0.0, 1.0]))
    by_positive, by_negative = identity.require_little_noise().influence
    of_noise = noisy.noise_covariance(by_positive, by_negative)
    of_sampling = _row_covariance(exact, by_positive, by_negative)
    share, slope = exact.counts / exact.rows, s * (1 - s)

    def at_leaves(covariance: Floats) -> Floats:
        return np.asarray(slope**2 * np.einsum("ib,ij,jb->b", x, covariance, x))

    sampling, privacy = at_leaves(of_sampling), at_leaves(of_noise)
    return MapError.mean(share, sampling, privacy)


def _histogram(noisy: Evidence, exact: Evidence, buckets: int | None) -> MapError:
    """Predict the error of bucket fractions: sampling variance v(1-v)/n_j, and noise of a ratio of counts."""
    noisy.require_classes()
    if buckets is None:
        buckets = finest_number(noisy, max(1, round(noisy.rows ** (1 / 3))))
    table = binning_of(noisy, buckets)
    m, n = table.positives, table.negatives
    rows, v = m + n, m / (m + n)
    of_positives, of_negatives = table.noise_variances
    sampling = v * (1 - v) / rows
    privacy = ((1 - v) ** 2 * of_positives + v**2 * of_negatives) / rows**2
    share = rows / noisy.rows
    binning = _spread_within(exact, table.edges, v)
    return replace(MapError.mean(share, sampling, privacy), binning=binning, buckets=table.number)


def _spread_within(evidence: Evidence, edges: Ints, fractions: Floats) -> float:
    """Compute the mean squared distance of a row's probability from its bucket's."""
    own = np.repeat(fractions, np.diff(edges))
    widths = np.diff(evidence.edges)
    squared = (evidence.scores - own) ** 2 + widths**2 / 12
    return float(evidence.counts @ squared / evidence.rows)


def _row_covariance(evidence: Evidence, by_positive: Floats, by_negative: Floats) -> Floats:
    """Compute the sampling covariance of several functions: Σ c g g^T - (Σ c g)(Σ c g)^T/n."""
    p, n = evidence.positives, evidence.negatives
    second = (by_positive * p) @ by_positive.T + (by_negative * n) @ by_negative.T
    first = by_positive @ p + by_negative @ n
    return np.asarray(second - np.outer(first, first) / evidence.rows)


PREDICTED: Mapping[str, Callable[[Evidence, Evidence, int | None], MapError]] = MappingProxyType(
    {"platt": _platt, "histogram": _histogram}
)
"""Methods that can be predicted, by name."""


def best_buckets(
    histogram: ScoreHistogram, *, rows: float, prevalence: float, auc: float, noise: Noise = NO_NOISE
) -> int:
    """Find the number of buckets of histogram binning with the least Brier excess, among about forty.

    Raises `Undefined` if there are not enough rows for any.

    Examples
    --------
    >>> histogram = ScoreHistogram(transform="mixed", height=12)
    >>> best_buckets(histogram, rows=10_000, prevalence=0.3, auc=0.8)
    24
    """
    most = min(1 << histogram.height, max(2, round(10 * rows ** (1 / 3))))
    numbers = sorted({int(b) for b in np.round(np.geomspace(1, most, 40))})

    data = {"rows": rows, "prevalence": prevalence, "auc": auc}
    noisy, exact = _noisy_and_exact(histogram, noise, data)
    return min(numbers, key=lambda buckets: _histogram(noisy, exact, buckets).brier_excess)


# --- the forecast -------------------------------------------------------------------------------------------

MAP_TARGETS: Mapping[str, float] = MappingProxyType(
    {"expected_calibration_error": 0.02, "brier_excess": 0.002}
)
"""Errors of a fitted map that most uses tolerate."""

HELD_OUT_TARGETS: Mapping[str, float | None] = MappingProxyType(
    {
        "roc_auc": None,
        "brier_score": METRICS["brier_score"].target,
        "log_loss": METRICS["log_loss"].target,
        "expected_calibration_error": None,
        "calibration_slope": None,
    }
)
"""Half-widths on held-out rows. The losses have targets, as the recommendation of a map depends on them."""

_HELD_OUT = "held_out_"


@dataclass(frozen=True, kw_only=True)
class CalibrationForecast(Forecast[Calibrate]):
    """Errors of the map, and half-widths on held-out rows.

    Sigmoids are predicted as Platt scaling, other methods as histogram binning, and ``auto`` as the better of the two.
    """

    targets: ClassVar[Mapping[str, float | None]] = MappingProxyType(
        {**MAP_TARGETS, **{f"{_HELD_OUT}{name}": target for name, target in HELD_OUT_TARGETS.items()}}
    )
    main: ClassVar[tuple[str, ...]] = ("expected_calibration_error", "held_out_brier_score")
    expects: ClassVar[tuple[str, ...]] = ("prevalence", "auc")
    varies: ClassVar[bool] = True
    meanings: ClassVar[Mapping[str, str]] = {
        "brier_excess": "by how much the Brier score of calibrated probabilities will exceed the best possible"
    }
    assumption: ClassVar[str] = "Scores are taken to be calibrated."

    def at(self, study: PlannedStudy, names: Sequence[str]) -> dict[str, Prediction]:
        """See `Forecast`."""
        fit, judging = self.task.histograms(study.setting)
        found: dict[str, Prediction] = {}
        if any(name in MAP_TARGETS for name in names):
            found |= self._map(study, fit)
        judged = tuple(name.removeprefix(_HELD_OUT) for name in names if name.startswith(_HELD_OUT))
        if judged:
            metrics = predict(
                judging,
                rows=study.rows * study.holdout,
                **study.expectation.known(self.name, "prevalence", "auc"),
                noise=study.setting.noise(Sum(of=judging, part=Part.HELD_OUT)),
                buckets=self.task.buckets,
                level=self.task.level,
                metrics=judged,
            )
            found |= {f"{_HELD_OUT}{name}": Prediction.of(metric) for name, metric in metrics.items()}
        return {name: found[name] for name in names}

    def _map(self, study: PlannedStudy, histogram: ScoreHistogram) -> dict[str, Prediction]:
        tried = [self._error(study, histogram, method) for method in self._methods]
        errors = [one for one in tried if isinstance(one, MapError)]
        if not errors:
            return dict.fromkeys(MAP_TARGETS, Prediction(width=math.inf, reason=str(tried[0])))
        best = min(errors, key=lambda one: one.brier_excess)
        return {name: Prediction(width=width) for name, width in _widths(best).items()}

    @property
    def _methods(self) -> tuple[str, ...]:
        if self.task.method == AUTO:
            return tuple(PREDICTED)
        return ("platt",) if self.task.method in ("platt", "beta") else ("histogram",)

    def _fit(self, study: PlannedStudy, histogram: ScoreHistogram) -> dict[str, Any]:
        """Return the rows, scores and noise that a map is fitted to."""
        known = study.expectation.known(self.name, "prevalence", "auc")
        return {**known, "rows": study.rows * study.fit_part, "noise": self._noise(study, histogram)}

    def _noise(self, study: PlannedStudy, histogram: ScoreHistogram) -> Noise:
        return study.setting.noise(Sum(of=histogram, part=Part.FIT))

    def _error(self, study: PlannedStudy, histogram: ScoreHistogram, method: str) -> MapError | str:
        """Predict the error of the map of a method, or return the reason why there will be none."""
        bins = self.task.bins if method == "histogram" else None
        try:
            return predict_map(histogram, method=method, buckets=bins, **self._fit(study, histogram))
        except Undefined as problem:
            return str(problem)

    def details(self, study: PlannedStudy, given: Mapping[str, float]) -> Details:
        """See `Forecast`: both methods side by side, the number of buckets, and the published rate."""
        histogram, _ = self.task.histograms(study.setting)
        errors = {method: self._error(study, histogram, method) for method in PREDICTED}
        try:
            buckets = best_buckets(histogram, **self._fit(study, histogram))
        except Undefined:
            buckets = None
        binned = errors["histogram"]
        predicted = math.sqrt(binned.brier_excess) if isinstance(binned, MapError) else None
        name = "root of brier_excess of histogram"
        line = published_line("calibration", study, self._noise(study, histogram), predicted, name)
        used = resolution_to_json(histogram)
        return Details(
            facts={"used": used, "recommended": {**used, "buckets": buckets}},
            tables={"methods": _table(errors), "published": published_table([line])},
            remarks=(advice(histogram, histogram, buckets),),
        )


def _table(errors: Mapping[str, MapError | str]) -> DetailTable:
    """Build the table of the error of each method's map and its parts."""
    rows: list[dict[str, Any]] = []
    for method, error in errors.items():
        if isinstance(error, str):
            rows.append({"method": method, "reason": error})
            continue
        parts = {name: getattr(error, name) for name in ("sampling", "privacy", "binning")}
        name = method if error.buckets is None else f"{method} ({error.buckets})"
        rows.append({"method": name, **_widths(error), **parts})
    headings = {"expected_calibration_error": "ECE", "brier_excess": "excess"}
    own = {name: name for name in ("sampling", "privacy", "binning")}
    return DetailTable(
        title="Errors of the map: calibration error, and what the Brier excess is made of",
        columns={"method": "method", **headings, **own},
        rows=rows,
    )


def _widths(error: MapError) -> dict[str, float]:
    return {"expected_calibration_error": error.calibration_error, "brier_excess": error.brier_excess}
