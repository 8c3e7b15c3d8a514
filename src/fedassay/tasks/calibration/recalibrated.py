"""Held-out evidence seen through a calibrator: the same leaves and counts, other scores.

No row is looked at twice: each leaf's score is mapped, its counts stay. The fit rows are different units, so
the map is a constant here and all intervals are those of new rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from fedassay.estimation.evidence import Evidence, Floats
from fedassay.summaries.maps import EPSILON, Map
from fedassay.tasks.calibration.binning import Indices, equi_depth, monotone_prefix


@dataclass(frozen=True, kw_only=True, eq=False)
class Recalibrated:
    """Evidence with a calibrated score per leaf.

    `at_lower` and `at_upper` are what the map says at the two ends of the leaf (the upper one approached from
    inside): how far a row's calibrated score can be from the leaf's.
    """

    evidence: Evidence
    scores: Floats
    at_lower: Floats
    at_upper: Floats

    @classmethod
    def by(cls, evidence: Evidence, calibrator: Map) -> Recalibrated:
        """The evidence through this map."""
        lower, upper = evidence.ends
        return cls(
            evidence=evidence,
            scores=calibrator(evidence.scores),
            at_lower=calibrator(lower),
            at_upper=calibrator(upper),
        )

    @classmethod
    def untouched(cls, evidence: Evidence) -> Recalibrated:
        """The evidence with the model's own scores."""
        lower, upper = evidence.ends
        return cls(evidence=evidence, scores=evidence.scores, at_lower=lower, at_upper=upper)

    @cached_property
    def spread(self) -> Floats:
        """How far a row's calibrated score can be from the leaf's."""
        return np.maximum(np.abs(self.at_lower - self.scores), np.abs(self.at_upper - self.scores))

    @cached_property
    def tied(self) -> NDArray[np.bool_]:
        """Leaves in which all rows get the same score."""
        return np.asarray(self.at_lower == self.at_upper)

    @cached_property
    def groups(self) -> Indices:
        """For each leaf the rank of its score: leaves with equal scores are one group."""
        return np.asarray(np.unique(self.scores, return_inverse=True)[1], dtype=np.int64)

    @property
    def order_kept(self) -> bool:
        """Whether higher scores stay higher, without new ties."""
        return bool(np.all(np.diff(self.scores) > 0))

    def by_group(self, per_leaf: Floats) -> Floats:
        """Sums over the groups, in the order of their scores."""
        return np.asarray(np.bincount(self.groups, weights=per_leaf), dtype=np.float64)

    def equi_depth_buckets(self, buckets: int) -> Indices:
        """The bucket of each leaf, if rows in the order of their score are cut into equal parts.

        Rows with equal scores stay together, so there may be fewer.
        """
        prefix = monotone_prefix(self.by_group(self.evidence.counts), exact=self.evidence.exact)
        edges, _ = equi_depth(prefix, [buckets])
        return np.asarray(np.searchsorted(edges, self.groups, side="right") - 1)

    def uniform_buckets(self, buckets: int) -> Indices:
        """The bucket of each leaf, [j/B, (j+1)/B) by its score; empty ones are left out."""
        places = np.minimum((self.scores * buckets).astype(np.int64), buckets - 1)
        return np.asarray(np.unique(places, return_inverse=True)[1], dtype=np.int64)

    @cached_property
    def logits(self) -> Floats:
        """The logit of each score, away from 0 and 1."""
        return _logits(self.scores)

    @cached_property
    def logit_spread(self) -> Floats:
        """How far the logit of a row's score can be from the leaf's."""
        ends = np.stack([_logits(self.at_lower), _logits(self.at_upper)])
        return np.asarray(np.abs(ends - self.logits).max(axis=0))


def _logits(scores: Floats) -> Floats:
    return np.asarray(logit(np.clip(scores, EPSILON, 1 - EPSILON)))
