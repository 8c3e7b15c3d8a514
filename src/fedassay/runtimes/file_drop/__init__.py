"""File drop: sites without open ports exchange signed files through a folder (SFTP, a USB stick).

The coordinator holds a `Study` and runs it on a `FileDropRuntime`; a site is a `Participant`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedassay.protocol.cards import names_of

if TYPE_CHECKING:
    from fedassay.runtimes.file_drop.card import FileDrop
    from fedassay.runtimes.file_drop.participant import CheckedRequest, Over, Participant
    from fedassay.runtimes.file_drop.runtime import FileDropRuntime, Waiting
    from fedassay.runtimes.file_drop.study import Announcement, FileDropStudy

__all__ = [
    "Announcement",
    "CheckedRequest",
    "FileDrop",
    "FileDropRuntime",
    "FileDropStudy",
    "Over",
    "Participant",
    "Waiting",
]

__getattr__ = names_of(
    __name__,
    {
        "Announcement": "study",
        "CheckedRequest": "participant",
        "FileDrop": "card",
        "FileDropRuntime": "runtime",
        "Over": "participant",
        "Participant": "participant",
        "FileDropStudy": "study",
        "Waiting": "runtime",
    },
)
