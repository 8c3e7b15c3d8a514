"""Reports as texts of one length: how `shuffle` writes down what a client says, so that sizes tell nothing.

=========  =======================================================================================================
report     text
=========  =======================================================================================================
unary      the number of the partition (4 bytes), then its bits, filled up with zeros to the widest partition
choice     the number of the candidate (8 bytes)
noise      the entries of the vector (8 bytes each)
=========  =======================================================================================================

All numbers are little-endian. What is not exactly such a text is no report.
"""

from __future__ import annotations

import numpy as np

from fedassay.privacy import coins
from fedassay.privacy.accounting import CHOICE
from fedassay.protocol import Randomness, Vector
from fedassay.trust.local_reports import Question, Report

_PARTITION_BYTES = 4
_NUMBER_BYTES = 8


def text_bytes(question: Question) -> int:
    """The length of every text for this question."""
    if question.partitions:
        return _PARTITION_BYTES + -(-max(map(len, question.partitions)) // 8)
    return (
        _NUMBER_BYTES if question.plan.noise.law == CHOICE else _NUMBER_BYTES * question.plan.query.of.length
    )


def drawn_text(question: Question, vector: Vector, randomness: Randomness) -> bytes:
    """Client side: a private report on what was measured, on a partition of the client's own drawing.

    The partition is uniform, not a hash of the name as under `local-dp`: here nothing may depend on who somebody is,
    and for amplification all clients must use the same randomiser.
    """
    parts = len(question.partitions)
    partition = int(coins.below(parts, 1, randomness)[0]) if parts else 0
    return to_text(question, Report(question.report(vector, partition, randomness), partition))


def to_text(question: Question, report: Report) -> bytes:
    """A fitting report as a text."""
    if question.partitions:
        text = report.partition.to_bytes(_PARTITION_BYTES, "little") + bytes(report.content)
        return text.ljust(text_bytes(question), b"\0")
    if question.plan.noise.law == CHOICE:
        return int(report.content).to_bytes(_NUMBER_BYTES, "little")
    return np.ascontiguousarray(report.content, dtype="<i8").tobytes()


def from_text(question: Question, text: bytes) -> Report | None:
    """The report that was written down; None if no honest client could have written this."""
    if len(text) != text_bytes(question):
        return None
    if question.partitions:
        partition = int.from_bytes(text[:_PARTITION_BYTES], "little")
        if partition >= len(question.partitions):
            return None
        bits = -(-len(question.partitions[partition]) // 8)
        content, rest = text[_PARTITION_BYTES:][:bits], text[_PARTITION_BYTES:][bits:]
        report = Report(content, partition)
        return report if question.fits(report) and not any(rest) else None
    if question.plan.noise.law == CHOICE:
        report = Report(int.from_bytes(text, "little"))
    else:
        report = Report(np.frombuffer(text, dtype="<i8").astype(np.int64))
    return report if question.fits(report) else None
