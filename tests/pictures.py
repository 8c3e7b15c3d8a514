"""What is in a picture: lines of pixels of a PNG file, marks of a plot in SVG."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from xml.etree import ElementTree


def png(path: Path) -> tuple[int, int, int]:
    """Width, height, and how many different lines of pixels there are beyond one: next to none if it is blank."""
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    packed, place = b"", 8
    while place < len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        if content[place + 4 : place + 8] == b"IDAT":
            packed += content[place + 8 : place + 8 + length]
        place += length + 12
    raw = zlib.decompress(packed)
    size = len(raw) // height
    return width, height, len({raw[i * size : (i + 1) * size] for i in range(height)}) - 1


def marks(svg: str, kind: str) -> int:
    """How many marks of this kind (``line``, ``area``, ``symbol``, ..) a plot has, axes and legends aside."""
    groups = [group.attrib.get("class", "").split() for group in ElementTree.fromstring(svg).iter()]
    assert any("role-mark" in names for names in groups), "not a plot of Vega's"
    return sum(
        len(list(group))
        for group in ElementTree.fromstring(svg).iter()
        if {f"mark-{kind}", "role-mark"} <= set(group.attrib.get("class", "").split())
    )
