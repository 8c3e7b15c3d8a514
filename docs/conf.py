"""How Sphinx makes a site of these pages (`make site`). The pages are plain Markdown and read on GitHub too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedassay.version import VERSION

_HERE = Path(__file__).parent

project = "fedassay"
author = "The fedassay developers"
copyright = author  # noqa: A001 - the name that Sphinx reads
release = version = VERSION

extensions = ["myst_parser"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
highlight_language = "none"
smartquotes = False  # two hyphens before an option must stay two

html_theme = "furo"
html_title = f"fedassay {VERSION}"
html_copy_source = False
html_use_index = False
html_show_sphinx = False

_ABOVE = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md"}
_HEADING = re.compile(r"^## (.+)$|^- \[([^\]]+)\]\(([\w/-]+)\.md\)", re.MULTILINE)


def navigation(front: str) -> Iterator[str]:
    """The side bar of the site, from the lists of the front page: a page that is not listed there is a warning."""
    opened = False
    for heading, title, page in _HEADING.findall(front):
        if heading:
            yield from (["```"] if opened else [])
            yield from ("", "```{toctree}", ":hidden:", f":caption: {heading}", "")
            opened = True
        elif opened:
            yield f"{title} <{page}>"
    yield from (["```", ""] if opened else [])


def _read(_app: Any, page: str, source: list[str]) -> None:
    """The front page gets the side bar; some pages stand at the top of the repository."""
    if page == "index":
        source[0] += "\n".join(navigation(source[0]))
    elif page in _ABOVE:
        source[0] = (_HERE.parent / _ABOVE[page]).read_text(encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls this."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}
