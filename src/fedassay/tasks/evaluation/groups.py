"""Subgroups: every metric for each of them, and the whole as their sum, from one release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedassay.protocol import Noise, Released, Setting, Sum
from fedassay.summaries.group_names import checked_groups
from fedassay.summaries.grouped_histogram import GroupedHistogram
from fedassay.summaries.score_histogram import LabelledHistogram, ScoreHistogram
from fedassay.tasks.evaluation.lockstep import Flow

if TYPE_CHECKING:
    from fedassay.tasks.evaluation.evaluate import Evaluate

MOST_NUMBERS = 1 << 19
"""Without noise and without a given height, histograms of many groups get coarser bins instead of a longer vector."""


def by_group(task: Evaluate, setting: Setting, *, share: float) -> Flow:
    """The results of an evaluation, with an entry for each group in ``groups``."""
    groups = checked_groups(task.groups)
    summary = GroupedHistogram.like(_histogram(task, setting, parts=len(groups) + 1), groups=groups)
    released: Released[dict[str, LabelledHistogram]] = yield Sum(of=summary, share=share)
    return {
        **task.results(whole(released)),
        "groups": [
            {"group": name, **task.entry(histogram.evidence(released.noise))}
            for name, histogram in released.value.items()
        ],
    }


def _histogram(task: Evaluate, setting: Setting, *, parts: int) -> ScoreHistogram:
    histogram = task.histogram(setting)
    noisy = setting.noise(Sum(of=histogram)).variance > 0
    if noisy or task.height is not None or parts * histogram.length <= MOST_NUMBERS:
        return histogram
    surplus = (parts * histogram.length - 1) // MOST_NUMBERS
    return replace(task, height=histogram.height - surplus.bit_length()).histogram(setting)


def whole(released: Released[dict[str, LabelledHistogram]]) -> Released[LabelledHistogram]:
    """All groups together. The noise of independent releases adds up, and so does its variance."""
    return Released(
        value=total(released.value),
        noise=_added(released.noise, times=len(released.value)),
        clients=released.clients,
    )


def total(parts: Mapping[str, LabelledHistogram]) -> LabelledHistogram:
    """The histogram of the rows of all parts."""
    histograms = list(parts.values())
    return replace(
        histograms[0],
        positives=np.sum([histogram.positives for histogram in histograms], axis=0),
        negatives=np.sum([histogram.negatives for histogram in histograms], axis=0),
    )


def _added(noise: Noise, *, times: int) -> Noise:
    if noise.variance == 0:
        return noise
    return replace(noise, variance=times * noise.variance, copies=times * noise.copies)
