"""Pages of the documentation, as a person reads them who does what they say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fedassay.cli import run_command
from fedassay.crypto.identity import Identity, key_to_text

DOCS = Path(__file__).resolve().parent.parent / "docs"
LEFT_OUT = "…"

Block = tuple[str, str]
"""The language of a block of code, and its text."""


def blocks(page: str) -> list[Block]:
    """The blocks of code of a page, or of a part of one, in order."""
    return re.findall(r"^```(\w*)\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)


def with_what_is_shown(page: str) -> Iterator[tuple[str, str, str]]:
    """The blocks to be executed, each with what the page shows directly after it, if it does."""
    found = blocks(page)
    for place, (language, text) in enumerate(found):
        if language:
            after = found[place + 1] if place + 1 < len(found) else ("none", "")
            yield language, text, after[1] if after[0] == "" else ""


def typed(text: str) -> None:
    """Type commands of fedassay, each of which must succeed."""
    for line in text.splitlines():
        command, *arguments = shlex.split(line, comments=True)
        assert command == "fedassay"
        assert run_command(arguments) == 0, line


def type_and_execute(page: str, *, least: int) -> None:
    """Type all commands of a how-to, which begin with `$`, then execute its Python in one namespace."""
    commands = re.findall(r"^\$ (fedassay (?:.*\\\n)*.*)", page, re.MULTILINE)
    assert len(commands) >= least
    for command in commands:
        typed(command.replace("\\\n", " "))
    python = [text for language, text in blocks(page) if language == "python"]
    assert python
    names: dict[str, Any] = {}
    for text in python:
        exec(text, names)


def with_keys(text: str, names: Sequence[str], folder: Path, capsys: Any) -> str:
    """A file of a page with the public keys and the cards of these parties, whose keys are in folders of their own."""
    for name in names:
        path = folder / name / f"{name}.key"
        key = key_to_text(Identity.load(path).public)
        text = text.replace(f"KEY-OF-{name.upper()}", key)
        if f"CARD-OF-{name.upper()}" in text:
            capsys.readouterr()
            typed(f"fedassay keys {path}")
            (card,) = re.findall(r'^Card: +\S+ = "(.*)"$', capsys.readouterr().out, re.MULTILINE)
            assert card.startswith(f"{key} ")
            text = text.replace(f"CARD-OF-{name.upper()}", card)
    assert "-OF-" not in text
    return text


def assert_shows_its_figures(page: Path, kind: str, names: Iterable[str]) -> None:
    """A page of experiments shows all figures of its kind and no others, none is large, and its links are sound."""
    text = page.read_text(encoding="utf-8")
    shown = set(re.findall(rf"\]\(({kind}-[a-z-]+\.svg)\)", text))
    assert shown == {path.name for path in page.parent.glob(f"{kind}-*.svg")}
    assert shown == {f"{kind}-{name}.svg" for name in names}
    assert all((page.parent / name).stat().st_size < 150_000 for name in shown)
    for linked in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / linked).exists(), linked


def words(text: str) -> str:
    return " ".join(text.split())


def assert_shown(promised: str, said: str) -> None:
    """What a page shows was said, in this order; `…` stands for anything, and lines may break elsewhere."""
    rest = words(said)
    for wanted in filter(None, map(words, promised.split(LEFT_OUT))):
        assert wanted in rest, f"the page shows {wanted!r}, the command said:\n{said}"
        rest = rest.partition(wanted)[2]


def follow(page: str, capsys: Any) -> None:
    """Do what a page says: execute its Python, type its commands, compare what they say."""
    for language, text, promised in with_what_is_shown(page):
        capsys.readouterr()
        if language == "python":
            exec(compile(text, "page", "exec"), {})
        elif language == "sh":
            typed(text)
        assert_shown(promised, capsys.readouterr().out)
