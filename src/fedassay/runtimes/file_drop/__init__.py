"""File drop: sites without open ports exchange signed files through a folder (SFTP, a USB stick).

The coordinator holds a `Study` and runs it on a `FileDropRuntime`; a site is a `Participant`.
"""

from __future__ import annotations

from fedassay.runtimes.file_drop.announcement import Announcement
from fedassay.runtimes.file_drop.participant import Asked, Over, Participant
from fedassay.runtimes.file_drop.runtime import FileDropRuntime, Waiting
from fedassay.runtimes.file_drop.study import Study

__all__ = ["Announcement", "Asked", "FileDropRuntime", "Over", "Participant", "Study", "Waiting"]
