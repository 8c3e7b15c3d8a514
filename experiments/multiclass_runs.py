"""Calibrators of the library, fitted over simulated clients and judged on test rows: what all experiments on multiclass
calibration measure.

Every way of fitting is the flow that the library ships, asked through `fedassay.kernel.run` in process. Test
rows are apart, so that all rows of the clients are there for fitting (`Part.ALL`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from experiments.common import Floats
from experiments.multiclass_data import SEED, Split, binned_error
from experiments.multiclass_models import Ints
from fedassay.data.federation import Federation
from fedassay.data.stores import MemoryStore
from fedassay.kernel.run import Errand, Job, run
from fedassay.privacy.ledger.charges import MemoryLedger
from fedassay.privacy.randomness import SimulatedRandomness
from fedassay.protocol.vocabulary import (
    All,
    Budget,
    Part,
    Plan,
    Protection,
    Query,
    Released,
    Setting,
    Step,
    Unit,
)
from fedassay.runtimes.in_process.runtime import Aggregate
from fedassay.tasks.calibration.multiclass.binned_flow import FederatedBinning
from fedassay.tasks.calibration.multiclass.calibrate import CalibratorChoice
from fedassay.tasks.calibration.multiclass.exact import Fit, fit_exact
from fedassay.tasks.calibration.multiclass.fedavg import FederatedAveraging
from fedassay.tasks.calibration.multiclass.isotonic_fit import fit_isotonic
from fedassay.tasks.calibration.multiclass.one_shot import fit_one_shot, fit_shifted
from fedassay.trust import Plain, ServerDP

Flow = Generator[Step, Any, Fit]

DELTA = 1e-5
ROWS_PER_CLIENT = 1 << 20
"""A bound that no client reaches: clipping is what protects clients here."""


# --- how it is asked ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PublishedDP(ServerDP):
    """Server-side noise as in the paper: a cohort takes part, noise is for releases that everybody enters.

    The same zCDP accounting and the same secret coins as `ServerDP`, without what is gained by their being secret.
    """

    def plan(self, query: Query[Any], setting: Setting) -> Plan:
        """As if nobody were left out."""
        return replace(super().plan(replace(query, cohort=All()), setting), query=query)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What the published methods leave open; defaults are those of the paper's tables."""

    rounds: int = 12
    participation: float = 0.1
    height: int = 7
    clip: float | None = None
    positive_clip: float = 10.0
    negative_clip: float = 50.0
    joint: bool = False
    epsilon: float | None = None
    amplified: bool = False

    def setting(self, clients: int) -> Setting:
        """Whole clients are protected, added or removed; without an epsilon nobody is."""
        if self.epsilon is None:
            return Setting(trust=Plain(), protection=Protection(), budget=None, clients=clients)
        protection = Protection(unit=Unit.CLIENT, rows_per_client=ROWS_PER_CLIENT)
        budget = Budget(epsilon=self.epsilon, delta=DELTA)
        trust = ServerDP() if self.amplified else PublishedDP()
        return Setting(trust=trust, protection=protection, budget=budget, clients=clients)


Way = Callable[[int, Setting, Terms], Flow]
"""A flow, by the number of classes."""


def _averaged(method: str, weights: str = "clients") -> Way:
    # No refusal of noise that drowns everything: the paper's tables have such numbers too.
    return lambda classes, setting, terms: FederatedAveraging(
        method=method,
        classes=classes,
        setting=setting,
        rounds=terms.rounds,
        participation=terms.participation,
        clip=terms.clip,
        weights=weights,
        noisiest=np.inf,
        part=Part.ALL,
    ).fit()


def _binned(weighting: str) -> Way:
    return lambda classes, setting, terms: FederatedBinning(
        method="bbq",
        classes=classes,
        height=terms.height,
        rounds=terms.rounds,
        participation=terms.participation,
        weighting=weighting,
        positive_clip=terms.positive_clip,
        negative_clip=terms.negative_clip,
        joint=terms.joint,
        part=Part.ALL,
    ).fit(setting)


def _exact(method: str) -> Way:
    return lambda classes, setting, terms: fit_exact(method, classes, part=Part.ALL)


def chosen(classes: int, setting: Setting, terms: Terms) -> Flow:
    """What ``--method auto`` settles on, on all rows: one round with everybody."""
    choice = CalibratorChoice(classes=classes).settled(setting)
    if choice.method == "isotonic":
        return fit_isotonic(classes, setting, part=Part.ALL)
    assert choice.solver == "one-shot", choice
    at_once = fit_shifted if choice.method == "vector" else fit_one_shot
    return at_once(classes, setting, clients=float(setting.clients), part=Part.ALL)


def temperature(classes: int, setting: Setting, terms: Terms) -> Flow:
    """What ``--method temperature`` does under noise: no shifts of classes."""
    return fit_one_shot(classes, setting, clients=float(setting.clients), part=Part.ALL)


BASE = "Base"
BBQ, BBQ_ALL, BBQ_CHANGED = "FedBBQ", "FedBBQ all weight", "FedBBQ changed weight"
FEDCAL, FEDOP, FEDTEMP = "FedCal", "FedOPVector", "FedTemp"
AUTO, EXACT_TEMPERATURE, EXACT_VECTOR = "auto", "exact temperature", "exact vector"
TEMPERATURE = "temperature, one-shot"

PUBLISHED: Mapping[str, Way] = {
    BBQ: _binned("none"),
    BBQ_ALL: _binned("all"),
    BBQ_CHANGED: _binned("changed"),
    FEDCAL: _averaged("fedcal"),
    FEDOP: _averaged("order-preserving"),
    FEDTEMP: _averaged("temperature"),
}
OURS: Mapping[str, Way] = {AUTO: chosen}
EXACT: Mapping[str, Way] = {EXACT_TEMPERATURE: _exact("temperature"), EXACT_VECTOR: _exact("vector")}
WAYS: Mapping[str, Way] = {**PUBLISHED, **OURS, **EXACT}


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """A task that is one flow."""

    way: Way
    classes: int
    terms: Terms

    def steps(self, setting: Setting) -> Flow:
        """The flow."""
        return self.way(self.classes, setting, self.terms)


class Counted(Aggregate):
    """The in-process runtime, which counts how many messages clients send, and in how many rounds."""

    messages = 0
    rounds = 0

    def carry(self, errand: Errand) -> tuple[Released[Any], ...]:
        """Each client of the cohort answers once."""
        self.messages += len(errand.exchange.cohort)
        self.rounds += 1
        return super().carry(errand)


def federation_of(split: Split) -> Federation:
    """The clients of a repetition, those without rows included."""
    counts = np.bincount(split.clients_fit, minlength=split.clients)
    columns = {"logits": split.logits_fit, "class": split.labels_fit}
    return Federation(
        clients=[f"{client:06d}" for client in range(split.clients)],
        rows_per_client=counts,
        store=MemoryStore.of(columns, split.clients_fit.astype(np.int32), counts),
    )


class Asked(NamedTuple):
    """A fit, and how many messages clients sent for it."""

    fit: Fit
    messages: int


def fitted(
    federation: Federation, classes: int, way: Way, terms: Terms, source: SimulatedRandomness
) -> Asked:
    """Run one flow over these clients."""
    runtime = Counted(federation, randomness=source.child("clients"), split_key=bytes(32))
    job = Job(
        name="fit",
        task=Fitting(way=way, classes=classes, terms=terms),
        setting=terms.setting(federation.client_count),
    )
    found = run(
        [job],
        runtime=runtime,
        ledger=MemoryLedger(None),
        randomness=source.child("server"),
        study="experiment",
    )
    return Asked(fit=found["fit"], messages=runtime.messages)


# --- how good it is -----------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What a calibrator does on test rows. Errors and accuracy are shares, not per cent."""

    classwise: float
    top_label: float
    accuracy: float
    messages: int = 0


def judged(probabilities: Floats, labels: Ints, messages: int = 0) -> Outcome:
    """Calibration errors (15 bins) and accuracy."""
    by_class = [binned_error(column, labels == j) for j, column in enumerate(probabilities.T)]
    top = probabilities.argmax(axis=1)
    return Outcome(
        classwise=float(np.mean(by_class)),
        top_label=binned_error(probabilities.max(axis=1), top == labels),
        accuracy=float(np.mean(top == labels)),
        messages=messages,
    )


def outcome(
    split: Split, federation: Federation, way: Way, terms: Terms, source: SimulatedRandomness
) -> Outcome:
    """Fit on the clients' rows, judge on test rows."""
    asked = fitted(federation, split.classes, way, terms, source)
    return judged(asked.fit.map.predict_proba(split.logits_test), split.labels_test, asked.messages)


Runs = dict[str, list[Outcome]]
"""Name of a method to its outcomes, one for each repetition."""


def outcomes(
    load: Callable[[int], Split],
    ways: Mapping[str, tuple[Way, Terms]],
    numbers: Sequence[int],
    *,
    seed: int = SEED,
) -> Runs:
    """All methods over the same repetitions; the model as it is comes first."""
    found: Runs = {BASE: []}
    for number in numbers:
        split = load(number)
        federation = federation_of(split)
        found[BASE].append(judged(softmax(split.logits_test, axis=1), split.labels_test))
        for name, (way, terms) in ways.items():
            source = SimulatedRandomness(seed, split.name, str(number), name, repr(terms))
            found.setdefault(name, []).append(outcome(split, federation, way, terms, source))
    return found
