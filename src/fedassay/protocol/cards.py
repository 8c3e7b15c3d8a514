"""Cards: what the faces of fedassay need to know of things that can be added, without importing them.

A card is data. It names the heavy parts, which are imported when they are used (`Named`). Cards of other packages are
found through entry points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from pkgutil import ModuleInfo, iter_modules
from typing import Any, Generic, TypeVar

from fedassay.errors import UsageError

T = TypeVar("T")


@dataclass(frozen=True)
class Named(Generic[T]):
    """An object by its place, ``package.module:name`` or ``package.module:Class.method``; imported when it is loaded.

    Examples
    --------
    >>> Named("math:pi").load()
    3.141592653589793
    """

    place: str

    def load(self) -> T:
        """The object."""
        module, _, name = self.place.partition(":")
        loaded: T = attrgetter(name)(import_module(module))
        return loaded


class Loaded(Mapping[str, T]):
    """Objects by name, each imported when it is looked up.

    Examples
    --------
    >>> numbers = Loaded(lambda: {"pi": Named("math:pi"), "e": Named("math:e")})
    >>> list(numbers), numbers["pi"]
    (['pi', 'e'], 3.141592653589793)
    """

    def __init__(self, named: Callable[[], Mapping[str, Named[T]]]) -> None:
        self._named = named

    def __getitem__(self, name: str) -> T:
        return self._named()[name].load()

    def __contains__(self, name: object) -> bool:
        return name in self._named()

    def __iter__(self) -> Iterator[str]:
        return iter(self._named())

    def __len__(self) -> int:
        return len(self._named())


def names_of(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Make the ``__getattr__`` of a package whose names live in these modules of it, imported when they are used.

    Examples
    --------
    >>> names_of("collections", {"Mapping": "abc"})("Mapping")
    <class 'collections.abc.Mapping'>
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return get


class Catalogue(Mapping[str, T]):
    """Cards by name, in their order: ours, then those of other packages.

    Parameters
    ----------
    group : name of the entry-point group in which other packages offer cards.
    own : places of our cards, whose names are in capitals: a module, the modules of a package (``package.*``), those
        with such names (``package.*_card``), or the modules ``card`` of the packages below it (``package.*.card``).
    what : noun for errors.
    """

    def __init__(self, group: str, own: tuple[str, ...], *, what: str) -> None:
        self._group, self._own, self._what = group, own, what

    @property
    def _cards(self) -> Mapping[str, T]:
        return _cards(self._group, self._own)

    def __getitem__(self, name: str) -> T:
        if name not in self._cards:
            raise KeyError(name)
        return self._cards[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._cards)

    def __len__(self) -> int:
        return len(self._cards)

    def named(self, name: object) -> T:
        """The card of this name, or one sentence that lists all names."""
        if not isinstance(name, str) or name not in self._cards:
            raise UsageError(f"{self._what}: got {name!r}, expected one of {', '.join(self._cards)}.")
        return self._cards[name]


@cache
def _cards(group: str, own: tuple[str, ...]) -> Mapping[str, Any]:
    cards: dict[str, Any] = {}
    offered = sorted(entry_points(group=group), key=lambda entry: entry.name)
    places = (place for pattern in own for place in _places(pattern))
    for card in (*(Named[Any](place).load() for place in places), *(entry.load() for entry in offered)):
        if card.name in cards:
            raise UsageError(f"{card.name}: two packages offer a card of this name ({group}); uninstall one.")
        cards[card.name] = card
    return dict(sorted(cards.items(), key=lambda item: item[1].order))


def _places(pattern: str) -> Iterator[str]:
    """The places that a pattern stands for: a module, ``package.*``, ``package.*_card`` and ``package.*.card``."""
    package, star, module = pattern.partition(".*")
    if not star:
        yield from _in_capitals(pattern)
        return
    for submodule in iter_modules(import_module(package).__path__):
        place = f"{package}.{submodule.name}"
        if not module or (module.startswith("_") and submodule.name.endswith(module)):
            yield from _in_capitals(place)
        elif module.startswith(".") and submodule.ispkg and _has(submodule, module):
            yield from _in_capitals(f"{place}{module}")


def _has(package: ModuleInfo, module: str) -> bool:
    """True if a package has this module; the package is not imported."""
    spec = package.module_finder.find_spec(package.name, None)
    places = (spec and spec.submodule_search_locations) or ()
    return any((Path(place) / f"{module[1:]}.py").exists() for place in places)


def _in_capitals(module: str) -> Iterator[str]:
    """The cards of a module: its names in capitals with an order."""
    content = vars(import_module(module)).items()
    yield from (f"{module}:{name}" for name, card in content if name.isupper() and hasattr(card, "order"))
