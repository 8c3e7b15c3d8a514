"""The mechanisms that the page on distributions compares, each drawn and read by the library itself.

What is random is the noise: exact totals are computed once per data set, and `ServerDP.aggregate` adds what a release
would get.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from experiments import plots
from fedassay.estimation.evidence import Evidence
from fedassay.protocol.vocabulary import Budget, Neighbours, Noise, Plan, Protection, Randomness, Setting, Sum
from fedassay.summaries.distribution.tree import Distribution, ValueSummary, ValueTree
from fedassay.tasks.distribution.mechanisms import chosen
from fedassay.tasks.distribution.stored import Release
from fedassay.trust import ServerDP

DELTA = 1e-6
REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE

PUBLISHED = "path, as published"
EXACT = "path, exact constant"
TREE = "tree"
FACTORISED = "factorised, δ = 1e-6"
MECHANISMS: Mapping[str, str] = {PUBLISHED: "path", EXACT: "path", TREE: "tree", FACTORISED: "factorised"}
"""As it is called here, to the library's name."""

STYLES: Mapping[str, plots.Style] = {
    PUBLISHED: plots.PUBLISHED_STYLE,
    EXACT: plots.SECOND_PUBLISHED_STYLE,
    TREE: plots.DEFAULT_STYLE,
    FACTORISED: plots.THIRD_STYLE,
}

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """One of `MECHANISMS` at one epsilon, on 2^L points from 0 to 1.

    Parameters
    ----------
    labelled : whether positives and negatives have a curve each, released together.
    neighbours : replace-one is the paper's; the number of rows is public then. Add-remove is our default.
    """

    name: str
    epsilon: float
    points: int
    labelled: bool = False
    neighbours: Neighbours = REPLACE

    def curves(self, counts: Counts, randomness: Randomness) -> Floats:
        """Noisy numbers of rows up to each point, one row per class, from the exact counts per leaf."""
        distribution, noise = self._released(counts, randomness)
        return distribution.sums(noise)[:, 1:]

    def evidence(self, counts: Counts, randomness: Randomness) -> Evidence:
        """The same, of positives and negatives, as what a ROC curve is drawn from."""
        return Release.of(*self._released(counts, randomness)).evidence

    def top(self, curve: Floats, rows: int) -> float:
        """What a curve ends at: the number of rows if it is public, else its own last value."""
        public = self.neighbours is REPLACE and not self.labelled
        return float(rows) if public else max(1.0, float(curve[-1]))

    @property
    def plan(self) -> Plan:
        """How `server-dp` would answer."""
        return _plan(self)

    @property
    def summary(self) -> ValueSummary:
        """What clients would measure."""
        asked = self.plan.query.of
        assert isinstance(asked, ValueSummary)
        return asked

    @property
    def published_nodes(self) -> int:
        """b·ε as published: Theorem 1 or 3 for each curve, and ε/2 for each of two."""
        height = self.points.bit_length() - 1
        nodes = height + 1 if self.neighbours is REPLACE else (height + 2) // 2
        return nodes * (2 if self.labelled else 1)

    def _released(self, counts: Counts, randomness: Randomness) -> tuple[Distribution, Noise]:
        total = self.summary.from_leaves(counts.reshape(-1))
        (release,) = self.plan.setting.trust.aggregate([self.plan], [total], int(counts.sum()), randomness)
        return self.summary.read(release.value), release.noise

    def setting(self, epsilon: float) -> Setting:
        """Rows of one example each, a trusted server."""
        return Setting(
            trust=ServerDP(),
            protection=Protection(neighbours=self.neighbours),
            budget=Budget(epsilon=epsilon, delta=DELTA if self.name == FACTORISED else 0.0),
            clients=1000,
        )


@lru_cache(maxsize=1024)
def _plan(mechanism: Mechanism) -> Plan:
    leaves = ValueTree(lower=0, upper=1, points=mechanism.points, labelled=mechanism.labelled)
    setting = mechanism.setting(mechanism.epsilon)
    summary = chosen(leaves, setting, mechanism=MECHANISMS[mechanism.name])
    if mechanism.name == PUBLISHED:
        # The noise has the scale b = L1/ε, so that the published b is what a smaller ε gives.
        nodes = summary.sensitivity(setting.protection).l1
        setting = mechanism.setting(mechanism.epsilon * nodes / mechanism.published_nodes)
    return setting.trust.plan(Sum(of=summary), setting)
