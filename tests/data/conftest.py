"""Fixtures of the tests of `fedassay.data`."""

from __future__ import annotations

from pathlib import Path

import pytest
from data_forms import SITES, small, write


@pytest.fixture
def site_folder(tmp_path: Path) -> Path:
    """The rows of `small`, one file per site in three formats, and a site without rows."""
    folder = tmp_path / "sites"
    folder.mkdir()
    data = small()
    for site, suffix in zip(SITES, (".csv", ".parquet", ".npz", ".csv"), strict=True):
        mine = data["site"] == site
        write(folder / f"{site}{suffix}", {key: value[mine] for key, value in data.items()})
    (folder / ".DS_Store").write_bytes(b"junk")
    return folder
