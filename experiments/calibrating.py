"""Calibrators from releases: the calibration error that they leave, and how far they are from a known truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from sklearn.isotonic import IsotonicRegression

from experiments import published
from experiments.common import PUBLISHED, Case, Floats, Model, Point, Sample, generator, released, setting_of
from experiments.judges import BINS
from fedassay.estimation.evidence import Evidence
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import NO_NOISE
from fedassay.summaries.maps import Map
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.calibration.calibrate import Calibrate
from fedassay.tasks.calibration.methods import fit

HISTOGRAM, BBQ = "histogram, as published", "BBQ, as published"
OUR_HISTOGRAM, OUR_BBQ, OUR_CHOICE = "histogram, ours", "BBQ, ours", "best of five, ours"
UNTOUCHED, CENTRAL, FLOOR = "not calibrated", "isotonic, pooled rows", "a perfect calibrator"

OURS = {OUR_HISTOGRAM: "histogram", OUR_BBQ: "bbq", OUR_CHOICE: "auto"}

Calibrator = Callable[[Floats], Floats]
_JUDGED_SCORES = 20_000


def _untouched(scores: Floats) -> Floats:
    return scores


def published_evidence(rows: Sample, model: Model, randomness: SimulatedRandomness) -> Evidence:
    """The published release over these rows, at the paper's h = 10."""
    return Case(model=model, variant=PUBLISHED).evidence(rows, randomness)


def fitted(evidence: Evidence, method: str) -> Calibrator | None:
    """Our calibrator, or None where there is not enough evidence for one."""
    choice = fit(evidence, method)
    return None if choice.fitted is None else choice.fitted.map


def our_calibrators(
    rows: Sample, model: Model, names: Sequence[str], randomness: SimulatedRandomness
) -> dict[str, Calibrator | None]:
    """Ours, all from the one release that `Calibrate` asks for."""
    setting = setting_of(model.ours, model.epsilon, len(rows))
    evidence = released(Calibrate().histograms(setting)[0], rows, setting, randomness)
    return {name: fitted(evidence, OURS[name]) for name in names}


# --- calibration error on held-out rows -----------------------------------------------------------------------


def calibration_error(probabilities: Floats, labels: Floats, bins: int) -> float:
    """The calibration error over bins of equal width."""
    place = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    return float(np.abs(np.bincount(place, weights=labels - probabilities)).sum() / len(labels))


def least_error(probabilities: Floats, bins: int) -> float:
    """What the same rows would show on average if these probabilities were true: sampling error alone."""
    place = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    variances = np.bincount(place, weights=probabilities * (1 - probabilities))
    return float(np.sqrt(2 / np.pi * variances).sum() / len(probabilities))


def held_out_errors(
    sample: Sample, models: Sequence[Model], *, repetitions: int, seed: int
) -> dict[tuple[str, str, int], Point]:
    """Calibration errors on the half of the rows that was not used for fitting, by model, calibrator and bins."""
    errors: dict[tuple[str, str, int], list[float]] = {}
    for repetition in range(repetitions):
        path = (sample.name, "held out", str(repetition))
        order = generator(seed, *path).permutation(len(sample))
        rows, held_out = (sample.take(half) for half in np.array_split(order, 2))
        labels = held_out.labels.astype(np.float64)
        for model in models:
            source = SimulatedRandomness(seed, *path, repr(model))
            for name, bins, error in _left(rows, held_out.scores, labels, model, source):
                errors.setdefault((model.name, name, bins), []).append(error)
    return {key: Point.of(values) for key, values in errors.items()}


def _left(
    rows: Sample, scores: Floats, labels: Floats, model: Model, source: SimulatedRandomness
) -> Iterator[tuple[str, int, float]]:
    """The errors that each calibrator leaves; without enough evidence for one, scores stay as they are."""
    central = IsotonicRegression(out_of_bounds="clip").fit(rows.scores, rows.labels)
    evidence = published_evidence(rows, model, source.child("published"))
    calibrators: Mapping[str, Calibrator | None] = {
        UNTOUCHED: _untouched,
        CENTRAL: central.predict,
        BBQ: published.bbq(evidence),
        **our_calibrators(rows, model, (OUR_BBQ, OUR_CHOICE), source.child("ours")),
    }
    found = {
        name: np.clip((calibrator or _untouched)(scores), 0.0, 1.0)
        for name, calibrator in calibrators.items()
    }
    for bins in BINS:
        binned = published.histogram_binning(evidence, bins)(scores)
        yield FLOOR, bins, least_error(found[CENTRAL], bins)
        for name, probabilities in {**found, HISTOGRAM: binned}.items():
            yield name, bins, calibration_error(probabilities, labels, bins)


# --- distance from a known truth --------------------------------------------------------------------------------


def smooth_truth(sample: Sample) -> Map:
    """Beta calibration of all rows: the probabilities that labels are redrawn from, so that the truth is known."""
    histogram = ScoreHistogram(transform="mixed", height=14)
    evidence = histogram.read(histogram.measure(sample, {})[0]).evidence(NO_NOISE)
    found = fit(evidence, "beta").fitted
    assert found is not None
    return found.map


def theory_buckets(model: Model, rows: int) -> int:
    """The number of buckets that balances the errors, without constants (Theorems 7 and 8)."""
    if model.name == "local-dp":
        assert model.epsilon is not None
        return max(2, round(math.sqrt(model.epsilon * math.sqrt(rows))))
    return max(2, round(math.cbrt(rows)))


def distances(
    sample: Sample, cases: Mapping[int, Sequence[Model]], *, repetitions: int, seed: int
) -> dict[tuple[int, Model, str], Point]:
    """Mean distance between calibrator and truth, by number of fit rows, model and calibrator.

    Scores are drawn from the data with replacement, labels from `smooth_truth`. Only what at least half of the
    repetitions had enough evidence for has a point.
    """
    truth = smooth_truth(sample)
    judged = sample.scores[generator(seed, sample.name, "judged").permutation(len(sample))[:_JUDGED_SCORES]]
    right = truth(judged)
    errors: dict[tuple[int, Model, str], list[float]] = {}
    for rows, models in cases.items():
        for repetition in range(repetitions):
            path = (sample.name, "truth", str(rows), str(repetition))
            drawn = _redrawn(sample, truth, rows, generator(seed, *path))
            for model in models:
                source = SimulatedRandomness(seed, *path, repr(model))
                for name, calibrator in _compared(drawn, model, source).items():
                    if calibrator is None:
                        continue
                    distance = float(np.abs(np.clip(calibrator(judged), 0.0, 1.0) - right).mean())
                    errors.setdefault((rows, model, name), []).append(distance)
    return {key: Point.of(values) for key, values in errors.items() if 2 * len(values) >= repetitions}


def _redrawn(sample: Sample, truth: Map, rows: int, rng: np.random.Generator) -> Sample:
    drawn = sample.take(rng.integers(0, len(sample), rows))
    return replace(drawn, labels=(rng.random(rows) < truth(drawn.scores)).astype(np.int8))


def _compared(rows: Sample, model: Model, source: SimulatedRandomness) -> dict[str, Calibrator | None]:
    evidence = published_evidence(rows, model, source.child("published"))
    return {
        HISTOGRAM: published.histogram_binning(evidence, theory_buckets(model, len(rows))),
        BBQ: published.bbq(evidence),
        **our_calibrators(rows, model, (OUR_HISTOGRAM, OUR_BBQ), source.child("ours")),
    }
