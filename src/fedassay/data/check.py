"""Find everything that is wrong with some data, and what it looks like, before anything else is done with it.

Nothing here is private: a check is for the eyes of the owner of the rows and never leaves the site.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from fedassay.data.column_checks import ClassesLook, FeaturesLook, NumbersLook
from fedassay.data.federation import sites_of
from fedassay.data.findings import Finding, Severity, error, listed, note, warning
from fedassay.data.lists import Width
from fedassay.data.names import ClientCounts, Roster
from fedassay.data.scan import BINS, Chunk, LabelProfile, Scan, ScoreProfile
from fedassay.data.schema import Columns
from fedassay.data.sources import Source, left_out, not_read, open_source
from fedassay.data.stores import SiteTable
from fedassay.errors import FedassayError

CROWDED = 0.2
"""The share of scores in one bin above which uniform bins lose too much."""

MINIMUM_COHORT = 3
"""The smallest cohort of a secure sum."""


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """Findings of a check. `profile` has only the items that could be computed."""

    source: str
    findings: tuple[Finding, ...]
    profile: Mapping[str, int | float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if nothing stands in the way of using the data."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "source": self.source,
            "ok": self.ok,
            "findings": [finding.to_dict() for finding in self.findings],
            "profile": dict(self.profile),
        }


def check(data: Any, *, client: str | None = None, columns: Mapping[str, str]) -> CheckReport:
    """Look at all of the data, however broken, and report everything that is wrong with it.

    Bad data never raises: each problem of each column becomes a finding, and the profile is made from the
    values that are good. Memory is bounded, as in `federation.load`. Unknown roles are a mistake in
    the call, not in the data, and raise `UsageError`.

    Examples
    --------
    >>> report = check({"p": [0.5, 1.5], "y": [1, 2]}, columns={"score": "p", "label": "y"})
    >>> report.ok, report.profile["rows"]
    (False, 2)
    >>> print(report.findings[0].sentence())  # doctest: +ELLIPSIS
    the mapping of columns, column 'p' (score): got 1 bad value in 2 rows, the first in row 1 (counting...
    """
    wanted = Columns(names=columns, client=client)
    try:
        source = open_source(data)
    except FedassayError as problem:
        return CheckReport(source="data", findings=(Finding.of_sentence(str(problem)),))
    look = _Look(source, wanted)
    for site in sites_of(source, wanted):
        look.at(site)
    return look.report()


class _Look:
    """The pass of a check over all tables of a source."""

    def __init__(self, source: Source, columns: Columns) -> None:
        self._source, self._columns = source, columns
        self._sites = sites_of(source, columns)
        self._roster = Roster(site.client for site in self._sites if site.client is not None)
        self._scores, self._labels = ScoreProfile(), LabelProfile()
        self._more = (
            NumbersLook(source.label, columns),
            ClassesLook(source.label, columns),
            FeaturesLook(source.label, columns, [site.table.names for site in self._sites]),
        )
        self._width: Width | None = None
        self._rows = 0
        self._differ = False
        self._without = left_out([site.table for site in self._sites])
        self._findings: list[Finding] = []

    def at(self, site: SiteTable) -> None:
        """Read one table to its end, or as far as it can be read."""
        scan = Scan(site.table, self._columns, self._width)
        broken = []
        try:
            for chunk in site.chunks(scan):
                self._add(chunk)
        except FedassayError as problem:
            broken = [Finding.of_sentence(str(problem))]
        self._width = scan.width
        self._findings += scan.findings() + broken + _repeated_names(site, self._columns)

    def _add(self, chunk: Chunk) -> None:
        self._rows += chunk.length
        for look in self._more:
            look.add(chunk)
        score, label = chunk.columns.get("score"), chunk.columns.get("label")
        if score is not None:
            self._scores.add(score[~chunk.is_bad("score")])
        positive = np.zeros(chunk.length, dtype=np.bool_)
        if label is not None:
            valid = ~chunk.is_bad("label")
            self._labels.add(label[valid])
            positive = valid & (label == 1)
        if score is not None and label is not None:
            self._differ = self._differ or bool((score != label).any())
        if chunk.clients is not None:
            self._roster.add(chunk.clients, positive)

    def report(self) -> CheckReport:
        """Return everything found, errors first."""
        counts, rank = self._counts(), list(Severity)
        found = [
            *self._findings,
            *self._about_rows(counts),
            *self._about_labels(counts),
            *self._about_scores(),
        ]
        found += [finding for look in self._more for finding in look.findings()]
        return CheckReport(
            source=self._source.label,
            findings=tuple(sorted(found, key=lambda finding: rank.index(finding.severity))),
            profile=MappingProxyType(self._profile(counts)),
        )

    def _counts(self) -> ClientCounts | None:
        """Return the counts by client; None where each row is a client or the client column is missing."""
        counts = self._roster.counts()
        return counts if len(counts.names) else None

    def _profile(self, counts: ClientCounts | None) -> dict[str, int | float]:
        profile: dict[str, int | float] = {"rows": self._rows}
        if self._without is not None:
            profile["rows_left_out"] = self._without.missing
        if counts is not None:
            profile |= {
                "clients": len(counts.names),
                "smallest_client": int(counts.rows.min()),
                "median_client": float(np.median(counts.rows)),
                "largest_client": int(counts.rows.max()),
            }
        elif self._columns.client is None:
            profile["clients"] = self._rows
        if self._labels.count:
            profile["prevalence"] = self._labels.positives / self._labels.count
            if counts is not None:
                none = (counts.positives == 0) & (counts.rows > 0)
                only = (counts.positives == counts.rows) & (counts.rows > 0)
                profile["clients_without_positives"] = int(none.sum())
                profile["clients_without_negatives"] = int(only.sum())
        if self._scores.count:
            profile |= {
                "distinct_scores": self._scores.distinct / self._scores.count,
                "scores_at_0": self._scores.at_zero,
                "scores_at_1": self._scores.at_one,
                "scores_in_densest_bin": self._scores.densest_bin,
            }
        for look in self._more:
            profile |= look.profile()
        return profile

    def _about_rows(self, counts: ClientCounts | None) -> Iterator[Finding]:
        where, without = self._source.label, self._without
        yield from not_read(self._source)
        if without is not None and without.missing:
            fix = "look whether these rows differ from the others: results will be about the others alone"
            yield warning(what=where, got=without.words, expected="a value in every row", fix=fix)
        if self._rows == 0 and not self._findings:
            yield error(what=where, got="no rows", expected="at least one", fix="export the data again")
        if not self._columns.names:
            fix = (
                "name the columns of the scores and the labels, of the values, of the logits or of the features, to "
                "have them checked"
            )
            yield note(what=f"{where}, columns", got="no roles", expected="a score or a value", fix=fix)
        if counts is None:
            return
        silent = [counts.names[int(i)] for i in np.flatnonzero(counts.rows == 0)]
        if silent:
            got = f"{len(silent)} of {len(counts.names)} clients without rows ({listed(silent, most=5)})"
            fix = "leave them if they have nothing to count, otherwise export them again"
            yield warning(what=where, got=got, expected="rows for every client", fix=fix)
        if len(counts.names) < MINIMUM_COHORT:
            got = f"{len(counts.names)} client{'s' * (len(counts.names) != 1)}"
            expected = f"at least {MINIMUM_COHORT}, the smallest cohort of a secure sum"
            fix = "add clients, or use --privacy plain or server-dp"
            yield warning(what=where, got=got, expected=expected, fix=fix)

    def _about_labels(self, counts: ClientCounts | None) -> Iterator[Finding]:
        labels = self._labels
        if not labels.count:
            return
        what = f"{self._source.label}, column {self._columns.names['label']!r} (label)"
        if labels.positives in (0, labels.count):
            got = f"only the label {1 if labels.positives else 0}"
            fix = "check the column; without both classes AUC and many other metrics are undefined"
            yield warning(what=what, got=got, expected="both 0 and 1", fix=fix)
        elif counts is not None:
            some = (counts.positives == 0) | (counts.positives == counts.rows)
            lone = int((some & (counts.rows > 0)).sum())
            if lone:
                got = f"{lone} of {len(counts.names)} clients with one class only"
                fix = "nothing to do for totals; results per client will miss AUC there"
                yield note(what=what, got=got, expected="both classes at each client", fix=fix)

    def _about_scores(self) -> Iterator[Finding]:
        scores = self._scores
        if not scores.count:
            return
        what = f"{self._source.label}, column {self._columns.names['score']!r} (score)"
        if scores.distinct == 1 and scores.count > 1:
            fix = "check the column; a constant score ranks nothing"
            yield warning(what=what, got="one value in all rows", expected="different scores", fix=fix)
        elif scores.densest_bin > CROWDED:
            got = f"{scores.densest_bin:.0%} of the scores in one of {BINS} equal bins"
            fix = "use --transform logit, which spaces bins evenly in the log-odds"
            if scores.distinct < scores.count / 10:
                fix = "scores that repeat stay together whatever the bins; expect a wide bound for the AUC"
            yield warning(what=what, got=got, expected=f"at most {CROWDED:.0%}", fix=fix)
        if self._labels.count and not self._differ:
            fix = "check that the score is not the label itself"
            yield warning(what=what, got="the label in every row", expected="a probability", fix=fix)
        ends = scores.at_zero + scores.at_one
        if ends:
            got = f"{ends} scores of exactly 0 or 1"
            fix = "expect an infinite or clipped log loss if one of them is wrong"
            yield note(what=what, got=got, expected="numbers in between", fix=fix)


def _repeated_names(site: SiteTable, columns: Columns) -> list[Finding]:
    """Return findings about names that stand more than once in a table; needed ones are errors already."""
    named = {
        *columns.needed,
        *(name for found in columns.in_table(site.table.names).values() for name in found),
    }
    twice = [n for n, times in Counter(site.table.names).items() if times > 1 and n not in named]
    if not twice:
        return []
    got = f"several columns called {listed(twice, most=5)}"
    what = f"{site.table.label}, columns"
    return [warning(what=what, got=got, expected="different names", fix="rename them if they are needed")]
