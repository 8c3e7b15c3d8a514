"""What a ServerApp tells the person who submitted it, through the run's log: marked lines of JSON.

The result itself travels so too, in numbered parts, and is believed only if its SHA-256 is the one announced:
the submitting machine needs no access to the coordinator's disk.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fedassay.errors import ProtocolError

MARK = "FEDASSAY "
_PART = 24_000
_LARGEST = 1 << 28

Event = dict[str, Any]


def line(kind: str, **fields: Any) -> str:
    """An event as a line of a log."""
    return MARK + json.dumps({"event": kind, **fields})


def event_in(text: str) -> Event | None:
    """The event in a line of a log, if there is one."""
    _, mark, content = text.partition(MARK)
    if not mark:
        return None
    try:
        event = json.loads(content)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def result_lines(document: str, *, path: str) -> Iterator[str]:
    """The lines that carry a result: its parts, then its hash and where it lies at the coordinator."""
    packed = base64.b64encode(zlib.compress(document.encode())).decode()
    parts = [packed[start : start + _PART] for start in range(0, len(packed), _PART)]
    for index, part in enumerate(parts):
        yield line("part", index=index, data=part)
    digest = hashlib.sha256(document.encode()).hexdigest()
    yield line("result", parts=len(parts), sha256=digest, path=path)


@dataclass
class Inbox:
    """Puts a result together from the events of a log.

    Examples
    --------
    >>> inbox = Inbox()
    >>> for text in result_lines("the result", path="/somewhere"):
    ...     inbox.add(event_in("INFO: " + text))
    >>> inbox.document
    'the result'
    """

    document: str | None = None
    _parts: dict[int, str] = field(default_factory=dict, repr=False)

    def add(self, event: Event | None) -> None:
        """Take one event; `document` is there once the result is complete, or `ProtocolError`."""
        if event is None:
            return
        if event["event"] == "part":
            self._parts[int(event["index"])] = str(event["data"])
        elif event["event"] == "result":
            self.document = self._complete(event)

    def _complete(self, event: Event) -> str:
        try:
            packed = "".join(self._parts[index] for index in range(int(event["parts"])))
            unpacking = zlib.decompressobj()
            data = unpacking.decompress(base64.b64decode(packed), _LARGEST)
        except (KeyError, ValueError, zlib.error):
            data = b""
        if hashlib.sha256(data).hexdigest() != event.get("sha256"):
            raise ProtocolError(
                f"result: what came through the log is not what was written; fetch {event.get('path')} from "
                f"the coordinator's machine and compare its SHA-256 with {event.get('sha256')}."
            )
        return data.decode()
