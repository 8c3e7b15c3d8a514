"""Summaries: the measurements that clients may make. Queries name entries of this catalogue; no code ever travels."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fedassay.protocol.vocabulary import Summary
from fedassay.summaries.bounded_sums import AllGroupStatistics, GroupStatistics, PairedMoments
from fedassay.summaries.coverage_counts import CoverageCounts, MeanWidth, SiteCoverage
from fedassay.summaries.distribution.path import ScorePath, ValuePath
from fedassay.summaries.distribution.roots import ValueRoots
from fedassay.summaries.distribution.tree import ValueTree
from fedassay.summaries.grouped_histogram import GroupedHistogram
from fedassay.summaries.local_quantiles import LocalQuantile, QuantileLosses, QuantileVotes
from fedassay.summaries.multiclass.calibrator_sums import ClippedUpdates, ScalingSums
from fedassay.summaries.multiclass.class_statistics import ClassStatistics
from fedassay.summaries.multiclass.histograms import ClassHistograms, ProbabilityHistograms
from fedassay.summaries.multiclass.loss_curves import ClientProfiles, LossCurves
from fedassay.summaries.multiclass.map_changes import MapChanges
from fedassay.summaries.regression.moments import RegressionMoments
from fedassay.summaries.regression.newton_sums import NewtonSums
from fedassay.summaries.regression.rounds import ClientSpread, ClippedRound, RegressionRound
from fedassay.summaries.score_histogram import PairedHistograms, ScoreHistogram, VersusHistogram
from fedassay.summaries.site_sums import EligibleSites, SiteSums

_SUMMARIES: tuple[type[Summary[Any]], ...] = (
    ScoreHistogram,
    GroupedHistogram,
    PairedHistograms,
    VersusHistogram,
    PairedMoments,
    EligibleSites,
    SiteSums,
    ValueTree,
    ValuePath,
    ValueRoots,
    ScorePath,
    GroupStatistics,
    AllGroupStatistics,
    LocalQuantile,
    QuantileVotes,
    QuantileLosses,
    CoverageCounts,
    SiteCoverage,
    MeanWidth,
    ClassStatistics,
    ClassHistograms,
    ScalingSums,
    ClippedUpdates,
    MapChanges,
    ProbabilityHistograms,
    LossCurves,
    ClientProfiles,
    RegressionRound,
    ClippedRound,
    ClientSpread,
    RegressionMoments,
    NewtonSums,
)

CATALOGUE: Mapping[str, type[Summary[Any]]] = MappingProxyType(
    {summary.name: summary for summary in _SUMMARIES}
)
