"""Arrow columns as numbers and as names, whatever type they arrived in.

A value that is not what its column should hold becomes NaN (a number) or null (a name): finding it, counting
it and saying so is the business of `schema` and `scan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

# What Arrow's text-to-double cast accepts. The cast is all or nothing, so rows that would stop it are
# taken out first.
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_TRUTH = {"true": 1.0, "false": 0.0}
_MISSING = arrow_csv.ConvertOptions().null_values
_NAMEABLE = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_decimal,
)

_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def plain(array: Any) -> Any:
    """Return the same values without dictionary encoding or an extension type around them."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array


def is_text(array: Any) -> bool:
    """Return whether the values are text."""
    kind = array.type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_list(array: Any) -> bool:
    """Return whether each value is a list."""
    return any(fits(array.type) for fits in _LISTS)


def values_per_row(array: Any) -> int:
    """Return the number of values that a row holds, on average and rounded down, but at least one.

    Examples
    --------
    >>> values_per_row(pa.array([[1, 2, 3], [4, 5, 6]])), values_per_row(pa.array([1, 2]))
    (3, 1)
    """
    chunks = [plain(chunk) for chunk in getattr(array, "chunks", [array])]
    return max(
        [1, *(len(chunk.flatten()) // len(chunk) for chunk in chunks if len(chunk) and is_list(chunk))]
    )


def is_single(array: Any) -> bool:
    """Return whether the values are floats of 32 bits."""
    return bool(pa.types.is_float32(plain(array).type))


def as_decimals(numbers: Numbers) -> Numbers:
    """Return floats of 32 bits as the decimals of up to seven digits that they stand for; others unchanged.

    In a column of 32 bits, 3.9 is 3.9000000953674316, which is not a value up to 3.9.

    Examples
    --------
    >>> as_decimals(np.array([np.float32(3.9), np.float32(1) / 3, np.nan], dtype=np.float64))
    array([3.9       , 0.33333334,        nan])
    """
    with np.errstate(all="ignore"):
        digits = 6 - np.floor(np.log10(np.abs(numbers)))
        scale = 10.0 ** np.clip(np.nan_to_num(digits, posinf=0.0, neginf=0.0), -22, 22)
        decimals = np.rint(numbers * scale) / scale
        return np.where(decimals.astype(np.float32) == numbers.astype(np.float32), decimals, numbers)


def to_numbers(array: Any) -> Numbers:
    """Convert each value to a float, NaN where it is missing or not a number.

    Text counts as the number that it spells. Truth values, dates and nested values are not numbers.

    Examples
    --------
    >>> to_numbers(pa.array(["0.5", " 1e-3", "no", None]))
    array([0.5  , 0.001,   nan,   nan])
    """
    array, kind = plain(array), plain(array).type
    try:
        if is_text(array):
            floats = _parse(pc.cast(array, pa.large_string()))
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            floats = pc.cast(array, pa.float64(), safe=False)
        else:
            return np.full(len(array), np.nan)
    except pa.ArrowMemoryError:
        raise
    except pa.ArrowException:
        return np.full(len(array), np.nan)
    values: Numbers = floats.to_numpy(zero_copy_only=False)
    return values


def _parse(text: Any) -> Any:
    try:
        return pc.cast(text, pa.float64())
    except pa.ArrowInvalid:
        trimmed = pc.utf8_trim_whitespace(text)
        spells = pc.match_substring_regex(trimmed, _NUMBER)
        return pc.cast(pc.if_else(spells, trimmed, pa.scalar(None, pa.large_string())), pa.float64())


def to_truth(array: Any) -> Numbers:
    """Convert as `to_numbers`, and read truth values, also spelled out in any case, as 0 and 1.

    Examples
    --------
    >>> to_truth(pa.array(["True", "false", "0", "1.0", "yes"]))
    array([ 1.,  0.,  0.,  1., nan])
    """
    array = plain(array)
    if pa.types.is_boolean(array.type):
        return to_numbers(pc.cast(array, pa.int8()))
    values = to_numbers(array)
    if not is_text(array) or not np.isnan(values).any():
        return values
    word = pc.utf8_lower(pc.utf8_trim_whitespace(pc.cast(array, pa.large_string())))
    truth = [
        pc.is_in(word, value_set=pa.array([spelled], pa.large_string())).to_numpy(zero_copy_only=False)
        for spelled in _TRUTH
    ]
    return np.select(truth, list(_TRUTH.values()), default=values)


def is_missing(array: Any) -> NDArray[np.bool_]:
    """Return the mask of the values that are missing.

    Examples
    --------
    >>> is_missing(pa.array([0.5, None, float("nan")])).tolist(), is_missing(pa.array(["0.5", "NA", " "])).tolist()
    ([False, True, True], [False, True, True])
    """
    array = plain(array)
    gaps = pc.is_null(array, nan_is_null=True)
    if is_text(array):
        text = pc.utf8_trim_whitespace(pc.cast(array, pa.large_string()))
        gaps = pc.or_(gaps, pc.is_in(text, value_set=pa.array(_MISSING, pa.large_string())))
    found: NDArray[np.bool_] = gaps.to_numpy(zero_copy_only=False)
    return found


@dataclass(frozen=True, kw_only=True)
class LocalClients:
    """Client of each row of a batch: a position in `names`, or -1 where none is given."""

    codes: NDArray[np.int32]
    names: Any
    """A `pyarrow.LargeStringArray`, without nulls."""


def to_clients(array: Any) -> LocalClients:
    """Convert values to client names.

    Missing or empty names, names with NUL bytes, fractions and nested values get the code -1.

    A whole number stored as a float names the same client as the integer: data frames turn integers into
    floats when a column once had gaps.

    Examples
    --------
    >>> found = to_clients(pa.array([7.0, None, 7.0, 0.5]))
    >>> found.codes.tolist(), found.names.to_pylist()
    ([0, -1, 0, -1], ['7'])
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    try:
        encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        named = _to_names(plain(encoded.dictionary))
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, TypeError):  # values without an order or a text form
        return LocalClients(
            codes=np.full(len(array), -1, dtype=np.int32), names=pa.array([], pa.large_string())
        )
    # Several dictionary entries may name one client (7 and 7.0), and some name none.
    names = named.drop_null().unique()
    meaning = (
        pc.fill_null(pc.index_in(named, value_set=names, skip_nulls=True), -1).to_numpy().astype(np.int32)
    )
    entries = pc.fill_null(pc.cast(encoded.indices, pa.int64()), len(meaning)).to_numpy()
    return LocalClients(codes=np.append(meaning, np.int32(-1))[entries], names=names)


def _to_names(values: Any) -> Any:
    """Return a text for each value, null where it cannot name a client."""
    kind = values.type
    if pa.types.is_floating(kind):
        floats = pc.cast(values, pa.float64())
        whole = pc.and_(pc.is_finite(floats), pc.equal(floats, pc.floor(floats)))
        whole = pc.and_(whole, pc.less(pc.abs(floats), 2.0**53))
        values = pc.cast(pc.if_else(whole, floats, pa.scalar(None, pa.float64())), pa.int64())
    elif is_text(values) or _is_bytes(kind):
        values = _decoded(values)
    elif not any(fits(kind) for fits in _NAMEABLE):
        return pa.nulls(len(values), pa.large_string())
    names = pc.cast(values, pa.large_string())
    no_name = pc.or_(pc.equal(pc.binary_length(names), 0), pc.match_substring(names, "\0"))
    return pc.if_else(no_name, pa.scalar(None, pa.large_string()), names)


def _decoded(values: Any) -> Any:
    """Decode bytes as text, null where they are not UTF-8; a damaged file may hold such "text" too."""
    raw = pc.cast(values, pa.large_binary())
    try:
        return pc.cast(raw, pa.large_string())
    except pa.ArrowInvalid:
        return pa.array([_utf8(value) for value in raw.to_pylist()], pa.large_string())


def _utf8(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _is_bytes(kind: Any) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    )
