"""Bytes on the wire: MessagePack with one extension type for arrays, and nothing that executes.

A message is a mapping with string keys; values are None, bool, int, float, str, bytes, lists, mappings and
one- or two-dimensional arrays. An array is extension type 1: one byte for the dtype, one for the number of
dimensions, each dimension as a little-endian uint32, then the little-endian elements.

Sizes are checked before anything is parsed; a message that is not exactly of this form is a `ProtocolError`.
"""

from __future__ import annotations

import struct
from typing import Any

import msgpack
import numpy as np

from fedassay.errors import ProtocolError
from fedassay.protocol.vocabulary import Message

LARGEST_MESSAGE = 1 << 28
"""No message may be longer (256 MiB)."""

DEEPEST_NESTING = 16

MOST_CONTAINERS, MOST_ITEMS = 1 << 18, 1 << 24
"""Lists and mappings in one message, and what all of them hold: an empty mapping is one byte on the wire and a hundred
in memory.
"""

_ARRAY = 1
_DTYPES = {1: "<i8", 2: "<u8", 3: "<f8", 4: "|u1"}
_CODES = {np.dtype(text): code for code, text in _DTYPES.items()}


def encode(message: Message) -> bytes:
    """The bytes of a message.

    Examples
    --------
    >>> decode(encode({"leg": 1, "values": np.arange(3)}))
    {'leg': 1, 'values': array([0, 1, 2])}
    """
    data: bytes = msgpack.packb(message, default=_pack_array, use_bin_type=True, strict_types=True)
    if len(data) > LARGEST_MESSAGE:
        raise ProtocolError(f"message of {len(data):,} bytes: expected at most {LARGEST_MESSAGE:,}.")
    return data


def decode(data: bytes, *, largest: int = LARGEST_MESSAGE) -> Message:
    """The message that these bytes stand for, or `ProtocolError`."""
    if len(data) > largest:
        raise ProtocolError(f"message of {len(data):,} bytes: expected at most {largest:,}.")
    try:
        limits = _Limits()
        message = msgpack.unpackb(
            data,
            ext_hook=_unpack_array,
            object_pairs_hook=limits.mapping,
            list_hook=limits.items,
            max_array_len=MOST_ITEMS,
            max_map_len=MOST_ITEMS,
            raw=False,
            strict_map_key=True,
        )
    except ProtocolError:
        raise
    except Exception as error:  # msgpack raises a dozen types for malformed input; all mean the same here
        raise ProtocolError("message: the bytes are not a fedassay message.") from error
    if not isinstance(message, dict):
        raise ProtocolError("message: expected a mapping.")
    _check(message, depth=0)
    return message


def _pack_array(value: Any) -> msgpack.ExtType:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, np.ndarray) and value.dtype in _CODES and 1 <= value.ndim <= 2:
        dtype = np.dtype(_DTYPES[_CODES[value.dtype]])
        head = struct.pack(f"<BB{value.ndim}I", _CODES[value.dtype], value.ndim, *value.shape)
        return msgpack.ExtType(_ARRAY, head + np.ascontiguousarray(value, dtype=dtype).tobytes())
    raise TypeError(f"cannot put {type(value).__name__} into a message")


def _unpack_array(code: int, data: bytes) -> np.ndarray[Any, Any]:
    if code != _ARRAY or len(data) < 2 or data[0] not in _DTYPES or data[1] not in (1, 2):
        raise ProtocolError("message: unknown extension type.")
    dimensions = data[1]
    start = 2 + 4 * dimensions
    if len(data) < start:
        raise ProtocolError("message: an array is cut short.")
    shape = struct.unpack_from(f"<{dimensions}I", data, 2)
    dtype = np.dtype(_DTYPES[data[0]])
    size = dtype.itemsize
    for length in shape:
        size *= length
    if size != len(data) - start:
        raise ProtocolError("message: an array's shape does not match its bytes.")
    return np.frombuffer(data, dtype=dtype, offset=start).reshape(shape)


class _Limits:
    """Counts of a message while it is parsed, so that few bytes cannot become a large message."""

    def __init__(self) -> None:
        self._containers = self._items = 0

    def items(self, items: list[Any]) -> list[Any]:
        """A list, counted."""
        self._containers += 1
        self._items += len(items)
        if self._containers > MOST_CONTAINERS or self._items > MOST_ITEMS:
            raise ProtocolError("message: it holds more lists, mappings or items than any message needs.")
        return items

    def mapping(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        """A mapping, counted; its keys are different."""
        mapping = dict(self.items(pairs))
        if len(mapping) != len(pairs):
            raise ProtocolError("message: a key stands twice in one mapping.")
        return mapping


def _check(value: Any, *, depth: int) -> None:
    if depth > DEEPEST_NESTING:
        raise ProtocolError(f"message: nested deeper than {DEEPEST_NESTING} levels.")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ProtocolError("message: a key is not a string.")
            _check(item, depth=depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth=depth + 1)
    elif not (value is None or isinstance(value, bool | int | float | str | bytes | np.ndarray)):
        raise ProtocolError(f"message: unexpected {type(value).__name__}.")
