"""The site of the documentation: built strictly and offline, every page reachable, nothing fetched from elsewhere."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pages import DOCS

sys.path.insert(0, str(DOCS))

import api_page
import commands_page

import fedassay
from fedassay.cli.command import declared, is_word
from fedassay.cli.commands import functions

FETCHED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "embed": "src",
    "object": "data",
}
LINKED = {"stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "prefetch", "modulepreload"}
ELSEWHERE = re.compile(r"^(https?:)?//")


class Fetched(HTMLParser):
    """What a browser would fetch for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in FETCHED:
            self.addresses.append(values.get(FETCHED[tag]) or "")
        if tag == "link" and LINKED & set((values.get("rel") or "").split()):
            self.addresses.append(values.get("href") or "")


def fetched(page: str) -> list[str]:
    """Addresses on other machines that a page, or a style sheet in it, would fetch from."""
    parser = Fetched()
    parser.feed(page)
    styled = re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')\s;]+)", page)
    return [address for address in (*parser.addresses, *styled) if ELSEWHERE.match(address)]


def built(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as `make site` does: every warning is an error."""
    command = [
        *(sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", target / "trees"),
    ]
    return subprocess.run(
        [*map(str, command), str(source), str(target / "site")],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(name, reason="Sphinx is not installed; pip install 'fedassay[docs]'")
    folder = tmp_path_factory.mktemp("docs")
    done = built(DOCS, folder)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def test_every_page_is_built_and_linked_from_the_front(site: Path) -> None:
    front = (site / "index.html").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix(".html").as_posix()
        assert (site / name).is_file()
        assert f'href="{name}"' in front or name == "index.html"


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css")]
    assert len(files) > 50
    wrong = {path.name: found for path in files if (found := fetched(path.read_text(encoding="utf-8")))}
    assert not wrong


def test_pages_that_stand_above_are_in_the_site(site: Path) -> None:
    assert "What we ask of a change" in (site / "contributing.html").read_text(encoding="utf-8")
    heading = re.search(
        r"^## (.+)$", (DOCS.parent / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert heading is not None
    assert heading[1].split()[0] in (site / "changelog.html").read_text(encoding="utf-8")


def test_what_is_fetched_is_found() -> None:
    assert fetched('<link rel="stylesheet" href="https://a/b.css"><a href="https://c">c</a>') == [
        "https://a/b.css"
    ]
    assert fetched('<script src="//a/b.js"></script><img src="local.svg">') == ["//a/b.js"]
    assert fetched("<style>@font-face { src: url('http://a/f.woff') }</style>") == ["http://a/f.woff"]


@pytest.mark.parametrize(
    ("page", "wrong"),
    [
        ("# Home\n\n## Pages\n\n- [Other](other.md)\n\n[gone](gone.md)\n", "gone"),
        ("# Home\n\n## Pages\n\n- [Other](other.md)\n\n[gone](other.md#nowhere)\n", "nowhere"),
        ("# Home\n\nNo list.\n", "toctree"),
    ],
    ids=["link", "anchor", "not listed"],
)
@pytest.mark.full
def test_a_broken_site_is_not_built(page: str, wrong: str, tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="Sphinx is not installed; pip install 'fedassay[docs]'")
    source = tmp_path / "docs"
    source.mkdir()
    (source / "conf.py").write_text((DOCS / "conf.py").read_text(encoding="utf-8"))
    (source / "index.md").write_text(page)
    (source / "other.md").write_text("# Other\n\nWords.\n")
    done = built(source, tmp_path)
    assert done.returncode != 0
    assert wrong in done.stderr


# --- generated pages --------------------------------------------------------------------------------------------------


def test_the_reference_has_every_public_name() -> None:
    page = api_page.api_page()
    listed = re.findall(r"^### (\w+)$", page, flags=re.MULTILINE)
    assert sorted(listed) == sorted(set(fedassay.__all__) - {"__version__"})
    assert "## Others" not in page
    assert "at 0x" not in page  # an address of memory would make the page differ from run to run


def test_examples_of_the_generator_hold() -> None:
    failed, tried = doctest.testmod(api_page)
    assert (failed, tried) == (0, 3)


def test_a_name_is_described_as_its_docstring_says() -> None:
    class Scale:
        """A scale.

        Parameters
        ----------
        width : in metres,
            at least 0.
        """

        def __init__(self, *, width: float = 1.0) -> None:
            self.width = width

        def area(self, height: float) -> float:
            """Its area."""
            return self.width * height

    Scale.__module__ = Scale.area.__module__ = "fedassay.somewhere"
    package: Any = SimpleNamespace(__all__=["Scale", "__version__"], Scale=Scale, __version__="1")
    page = api_page.api_page(package)
    assert "### Scale\n\n```python\nScale(*, width: float = 1.0)\n```\n\nA scale.\n" in page
    assert "**Parameters**\n\n- `width`: in metres, at least 0.\n" in page
    assert "- `area(height: float) -> float`: Its area." in page
    assert "## Others" in page


def test_the_reference_has_every_command_and_option() -> None:
    page = commands_page.commands_page()
    for name, command in functions():
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert section, name
        for option in inspect.signature(command).parameters.values():
            shown = not is_word(option) and declared(option).show is not False
            for spelled in commands_page.names_of(option) if shown else ():
                assert f"`{spelled}`" in section, (name, spelled)


def test_the_command_reference_says_what_is_required_and_default() -> None:
    page = commands_page.commands_page()
    evaluate = page.partition("\n## fedassay evaluate\n")[2].partition("\n## ")[0]
    assert re.search(r"\| `--label` \| TEXT \| .* \*\*Required\.\*\* \|", evaluate)
    assert re.search(r"\| `--privacy` \| TEXT \| .* Default: `secure-sum`\. \|", evaluate)
    assert re.search(r"\| `--unit` \| `example`, `client` \|", evaluate)


@pytest.mark.parametrize(
    ("module", "make", "file"),
    [(api_page, "api_page", "api.md"), (commands_page, "commands_page", "commands.md")],
    ids=["api", "commands"],
)
def test_the_references_are_current(module: ModuleType, make: str, file: str) -> None:
    assert (DOCS / "reference" / file).read_text(encoding="utf-8") == getattr(module, make)(), (
        "run `make docs`"
    )
