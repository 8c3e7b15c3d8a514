"""What each trust model costs on one data set: errors at epsilon 1, and bytes and rounds of one-row clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.common import Point, Sample, generator, released, setting_of
from experiments.judges import calibration_error, decisions_at, exact_auc, exact_calibration_error
from fedassay.api import evaluate
from fedassay.estimation.ranking import auc_influence
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import Budget, TrustModel
from fedassay.study.simulation import Simulation
from fedassay.summaries.score_histogram import ScoreHistogram
from fedassay.tasks.evaluation import Evaluate
from fedassay.trust import DistributedDP, LocalDP, Plain, SecureSum, ServerDP

TRUST: Sequence[TrustModel] = (Plain(), SecureSum(), ServerDP(), DistributedDP(), LocalDP())
METRICS = ("AUC", "accuracy", "ECE")
EPSILON, BUCKETS = 1.0, 10


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A line of the table."""

    trust: str
    height: int
    errors: Mapping[str, Point]
    bytes_per_client: int
    rounds: int


def table(sample: Sample, *, repetitions: int, seed: int, messengers: int) -> list[Cost]:
    """One line per trust model; the defaults of `evaluate`, every row a client.

    Errors are drawn in aggregate; bytes are counted in a faithful run of so many clients with the same bins.
    """
    return [_cost(trust, sample, repetitions, seed, messengers) for trust in TRUST]


def _cost(trust: TrustModel, sample: Sample, repetitions: int, seed: int, messengers: int) -> Cost:
    setting = setting_of(trust, EPSILON if trust.private else None, len(sample))
    histogram = Evaluate(buckets=BUCKETS).histogram(setting)
    errors = _errors(trust, histogram, sample, repetitions if trust.private else 1, seed)
    small = sample.take(generator(seed, "costs").choice(len(sample), messengers, replace=False))
    run = evaluate(
        {"score": small.scores, "label": small.labels},
        score="score",
        label="label",
        privacy=trust,
        budget=Budget(epsilon=EPSILON) if trust.private else None,
        height=histogram.height,
        simulation=Simulation(seed=seed, mode="faithful"),
    ).runtime
    return Cost(
        trust=trust.name,
        height=histogram.height,
        errors=errors,
        bytes_per_client=run["bytes_per_client"],
        rounds=run["rounds"],
    )


def _errors(
    trust: TrustModel, histogram: ScoreHistogram, sample: Sample, repetitions: int, seed: int
) -> dict[str, Point]:
    setting = setting_of(trust, EPSILON if trust.private else None, len(sample))
    truth = (
        exact_auc(sample),
        float((sample.labels == (sample.scores >= 0.5)).mean()),
        exact_calibration_error(sample, BUCKETS),
    )
    errors: dict[str, list[float]] = {name: [] for name in METRICS}
    for repetition in range(repetitions):
        source = SimulatedRandomness(seed, "costs", trust.name, str(repetition))
        evidence = released(histogram, sample, setting, source)
        seen = (
            auc_influence(evidence)[0],
            float(decisions_at(evidence, (0.5,))["accuracy"][0]),
            calibration_error(evidence, BUCKETS),
        )
        for name, value, right in zip(METRICS, seen, truth, strict=True):
            errors[name].append(abs(value - right))
    return {name: Point.of(values) for name, values in errors.items()}
