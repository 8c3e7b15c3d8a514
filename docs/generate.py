"""Write the pages that are generated from the code: the table of cells, and the list of options.

`python docs/generate.py` writes them; `--check` only says whether they are what the code says.
"""

from __future__ import annotations

import sys
from pathlib import Path

from api_page import api_page
from cells_page import cells_page
from commands_page import commands_page
from glossary_page import glossary_page
from metrics_page import metrics_page
from study_page import study_page

from fedassay.documents import schema as results
from fedassay.study.schema import SCHEMA_FILE, schema_text

_REFERENCE = Path(__file__).parent / "reference"
PAGES = {
    _REFERENCE / "api.md": api_page,
    _REFERENCE / "cells.md": cells_page,
    _REFERENCE / "commands.md": commands_page,
    _REFERENCE / "glossary.md": glossary_page,
    _REFERENCE / "metrics.md": metrics_page,
    _REFERENCE / "study.md": study_page,
    SCHEMA_FILE: schema_text,
    results.SCHEMA_FILE: results.schema_text,
}


def main() -> int:
    """Write the pages, or check them."""
    check = "--check" in sys.argv[1:]
    stale = []
    for path, make in PAGES.items():
        text = make()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.name)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"{', '.join(stale)}: not what the code says; run `make docs`.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
