"""`fedassay flower site`: which of the site's columns plays which role."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import call, refused
from fedassay.crypto.identity import Identity, key_to_text
from fedassay.kernel.sites import SiteFile
from fedassay.privacy.randomness import SecureRandomness


@pytest.fixture
def options(tmp_path: Path) -> list[object]:
    """Everything but the columns."""
    keys = {name: Identity.draw(SecureRandomness()) for name in ("coordinator", "a")}
    keys["a"].save(tmp_path / "a.key")
    lines = [f'{name} = "{key_to_text(identity.public)}"' for name, identity in keys.items()]
    (tmp_path / "roster.toml").write_text("\n".join(["[roster]", *lines, ""]))
    np.savez(tmp_path / "rows.npz", labels=[1, 0], z=[[0.5, 1.0], [2.0, 3.0]], own=[3.5, 4.5])
    return [
        *("flower", "site", "--out", tmp_path / "site.toml", "--name", "a", "--data", tmp_path / "rows.npz"),
        *("--key", tmp_path / "a.key", "--roster", tmp_path / "roster.toml", "--trust-model", "secure-sum"),
    ]


def columns(*given: str) -> list[str]:
    return [text for one in given for text in ("--column", one)]


def test_a_site_names_any_role(capsys: Any, options: list[object], tmp_path: Path) -> None:
    code, _, err = call(capsys, *options, *columns("class=labels", "logits=z", "conformity=own"))
    assert (code, err) == (0, "")
    site = SiteFile.read(tmp_path / "site.toml")
    assert site.columns == {"class": "labels", "logits": "z", "conformity": "own"}
    (batch,) = site.open().site.rows().batches()
    assert batch["logits"].tolist() == [[0.5, 1.0], [2.0, 3.0]]
    assert batch["class"].tolist() == [1, 0]
    assert batch["conformity"].tolist() == [3.5, 4.5]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["logit=z"], "column role: got 'logit', expected one of score, label"),
        (["class=z", "logits=z"], "got 'z' as class and as logits, expected two different columns"),
        (["logits=z", "logits=own"], "--column: got logits twice"),
        (["logits"], "--column: got 'logits', expected ROLE=COLUMN"),
    ],
)
def test_mistakes_write_nothing(
    capsys: Any, options: list[object], tmp_path: Path, given: list[str], words: str
) -> None:
    err = refused(capsys, *options, *columns(*given))
    assert words in err
    assert not (tmp_path / "site.toml").exists()
