"""Columns that are called like those who hold rows: hospital, site_id, Clinics, treating_hospital."""

from __future__ import annotations

import re

SITES = (
    *("client", "site", "hospital", "clinic", "centre", "center", "practice", "institution", "ward", "bank"),
    *("branch", "store", "school", "station", "region", "country", "device", "user"),
)
"""What holders of rows are often called, the likeliest first."""

_ADDED = ("id", "no", "nr", "number", "name", "code", "key", "index", "idx", "uid")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")


def names_site(column: str) -> int | None:
    """Which of `SITES` a column is called after, by its place; None if after none.

    The word itself must be what the column is about: it stands alone, beside an id or a number, or last. So
    ``hospital_mortality`` is no hospital.

    Examples
    --------
    >>> [names_site(name) for name in ("site", "HospitalID", "treating_clinics", "hospital_mortality", "score")]
    [1, 2, 3, None, None]
    """
    words = [word.lower() for word in _WORD.findall(column)]
    while len(words) > 1 and (words[-1] in _ADDED or words[-1].isdigit()):
        words.pop()
    if not words:
        return None
    return next((place for place, site in enumerate(SITES) if words[-1] in _spellings(site)), None)


def _spellings(site: str) -> set[str]:
    """The word, its plurals, and both run together with what is added to them."""
    plurals = {site, f"{site}s", f"{site}es", site.removesuffix("y") + "ies"}
    return plurals | {f"{word}{more}" for word in plurals for more in _ADDED}
