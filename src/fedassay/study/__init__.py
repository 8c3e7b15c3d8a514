"""Studies: several tasks over one federation under one budget, written down in one file.

Reading order: `file` (a whole study file), `sections` and `tasks` (its parts), `entries` (how entries are read, and
where they stand), `schema` (the JSON Schema that is made from the same dataclasses).
"""

from __future__ import annotations

from fedassay.study.file import StudyFile
from fedassay.study.sections import DataSection
from fedassay.study.tasks import StudyTask

__all__ = ["DataSection", "StudyFile", "StudyTask"]
