"""Every attack that is shipped: all private trust models, all noise laws, all summaries that can be asked under noise.

A test holds it to the catalogues of trust models and summaries: a new one fails it until somebody attacks it. Rows are
chosen as an attacker would: in a leaf that all levels count, with labels, groups or whole clients that change, at the
bounds to which contributions are cut. Budgets are larger than most would grant (epsilon 1 to 3, delta 0 or 0.05): what
some thousand runs can show of a smaller one is next to nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from fedassay.audit.cases import Case
from fedassay.audit.catalogue_models import model_cases
from fedassay.audit.catalogue_summaries import summary_cases
from fedassay.audit.catalogue_trust import trust_cases


@lru_cache(maxsize=1)
def cases() -> Mapping[str, Case]:
    """Name to case."""
    return MappingProxyType({case.name: case for case in (*trust_cases(), *summary_cases(), *model_cases())})


def matches(case: str, name: str) -> bool:
    """Whether a case is meant by this name: its own, or the first part of it.

    Examples
    --------
    >>> [matches("local-dp/unary", name) for name in ("local-dp/unary", "local-dp", "local")]
    [True, True, False]
    """
    return case == name or case.startswith(f"{name}/")
