"""Files are replaced as a whole; what is no file, or only a name for one, stays what it is."""

from __future__ import annotations

import os
import tty
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest

from fedassay.artefacts.apply import write_batches
from fedassay.errors import UsageError
from fedassay.protocol.files import replacement, write_atomically

TEXT = "measured\n"


def save(path: Path) -> None:
    write_atomically(path, TEXT)


def save_rows(path: Path) -> None:
    write_batches(path, iter([pa.record_batch({"measured": [1]})]), label="rows")


def read(path: Path) -> str:
    return path.read_text().replace('"measured"\n1\n', TEXT)


WRITERS = pytest.mark.parametrize("write", [save, save_rows])
Write = Callable[[Path], None]


@WRITERS
@pytest.mark.parametrize("before", [None, "older and longer"])
def test_a_file_is_replaced_as_a_whole(tmp_path: Path, write: Write, before: str | None) -> None:
    path = tmp_path / "out.csv"
    if before is not None:
        path.write_text(before)
        os.link(path, tmp_path / "kept")  # would change with it if it were overwritten in place
    write(path)
    assert read(path) == TEXT
    assert before is None or (tmp_path / "kept").read_text() == before
    assert {one.name for one in tmp_path.iterdir()} <= {"out.csv", "kept"}


@WRITERS
@pytest.mark.parametrize("there", [True, False])
def test_the_file_behind_a_link_is_replaced_and_the_link_stays(
    tmp_path: Path, write: Write, there: bool
) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "target"
    if there:
        target.write_text("older")
    (tmp_path / "first.csv").symlink_to("elsewhere/target")
    (tmp_path / "second.csv").symlink_to("first.csv")
    write(tmp_path / "second.csv")
    assert os.readlink(tmp_path / "second.csv") == "first.csv"
    assert os.readlink(tmp_path / "first.csv") == "elsewhere/target"
    assert read(target) == TEXT
    assert [one.name for one in target.parent.iterdir()] == ["target"]


@WRITERS
def test_a_pipe_is_written_to(tmp_path: Path, write: Write) -> None:
    path, heard = tmp_path / "pipe.csv", []
    os.mkfifo(path)
    (tmp_path / "link.csv").symlink_to(path)
    for name in (path, tmp_path / "link.csv"):
        # Not blocking, so that the test ends if nothing is ever written to the pipe.
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        write(name)
        heard.append(os.read(reading, 1000).decode())
        os.close(reading)
    assert path.is_fifo()
    assert [one.replace('"measured"\n1\n', TEXT) for one in heard] == [TEXT, TEXT]


def test_a_device_is_written_to() -> None:
    """A terminal of our own: where it stands, no other file can be put, whoever runs this test."""
    ours, terminal = os.openpty()
    tty.setraw(terminal)
    path = Path(os.ttyname(terminal))
    write_atomically(path, TEXT)
    assert path.is_char_device()
    assert os.read(ours, 1000).decode() == TEXT
    os.close(terminal)
    os.close(ours)


def test_what_an_open_descriptor_leads_to_is_written_to() -> None:
    """As `--json >(command)` of a shell gives it."""
    reading, writing = os.pipe()
    told: list[bytes] = []
    listener = Thread(target=lambda: told.append(os.read(reading, 1000)), daemon=True)
    listener.start()
    write_atomically(Path(f"/dev/fd/{writing}"), TEXT)
    listener.join()
    assert told == [TEXT.encode()]
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("wrong", [OSError(28, "No space left on device"), ValueError("something else")])
def test_after_an_error_the_file_is_as_before(tmp_path: Path, wrong: Exception) -> None:
    path = tmp_path / "out.json"
    path.write_text("before")

    def fail() -> None:
        with replacement(path) as partial:
            partial.write_text("half")
            raise wrong

    with pytest.raises(UsageError if isinstance(wrong, OSError) else ValueError) as caught:
        fail()
    if isinstance(wrong, OSError):
        assert str(caught.value) == (
            f"{path}: cannot be written (No space left on device); make room and run it again."
        )
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["no folder", "a folder", "a loop", "below a file"])
def test_what_cannot_be_written_is_one_sentence(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out"
    if kind == "no folder":
        path = path / "out"
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a loop":
        path.symlink_to(path)
    else:
        path.write_text("a file")
        path = path / "out"
    with pytest.raises(UsageError, match=r"out: cannot be written \(.+\); give .+\."):
        write_atomically(path, TEXT)
    assert not list(tmp_path.rglob("*.partial"))
