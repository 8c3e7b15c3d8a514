"""Names that are loaded when they are used are listed before that, too."""

from __future__ import annotations

import subprocess
import sys

import fedassay


def test_every_public_name_is_listed_and_there() -> None:
    assert dir(fedassay) == sorted(fedassay.__all__)
    assert all(getattr(fedassay, name) is not None for name in fedassay.__all__)


def test_a_fresh_import_lists_them_without_loading_any() -> None:
    code = "import sys, fedassay; print('calibrate' in dir(fedassay), 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
