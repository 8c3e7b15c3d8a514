"""What clients may measure. Queries name entries of this catalogue; no code ever travels."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fedassay.protocol import Summary
from fedassay.summaries.score_histogram import ScoreHistogram

CATALOGUE: Mapping[str, type[Summary[Any]]] = MappingProxyType(
    {summary.name: summary for summary in (ScoreHistogram,)}
)
