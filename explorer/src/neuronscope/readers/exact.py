"""Exact numbers from JSON text, for whole columns at once: times in microseconds → integer nanoseconds, ids → int64.

A double at 1.7e15 us has steps of 0.25 us, so times never pass through a float. The usual form, digits with an optional
fraction, is parsed with numpy over all rows; signs, exponents and oversized numbers go one by one through `Decimal`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64 = npt.NDArray[Any]  # whole numbers; of a large trace often held in fewer bits
Bools = npt.NDArray[np.bool_]

_INT64_MAX = 2**63 - 1
MAX_NS = 2**61  # of a time, a duration and the base each, so that their sum fits
LONGEST_NS = 2**53
NS_AS_US = 10**17  # a time of more microseconds lies beyond the year 5138: its writer meant nanoseconds
_POINT = (ord(".") - 48) % 256  # less than the digit 0
_PLAIN_DIGITS = 15  # an integer part this long, in us, is below 2^63 ns


@dataclass(frozen=True)
class TextColumn:
    """JSON texts of one field, back to back in one buffer; a missing field has length 0."""

    data: npt.NDArray[np.uint8]
    offsets: Int64

    @classmethod
    def join(cls, values: Sequence[Any]) -> TextColumn:
        """From buffers (bytes or `msgspec.Raw`)."""
        offsets = np.zeros(len(values) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
        return cls(np.frombuffer(b"".join(values), np.uint8), offsets)

    @classmethod
    def join_short(cls, values: Sequence[Any]) -> TextColumn:
        """The same from JSON texts of few bytes each: to look for separators among them is faster than to ask each."""
        if not values:
            return cls.join(values)
        data = np.frombuffer(b"\0".join(values) + b"\0", np.uint8)
        separators = np.flatnonzero(data == 0)
        if len(separators) != len(values):  # no JSON: damaged texts may hold anything
            return cls.join(values)
        offsets = np.zeros(len(values) + 1, np.int64)
        np.subtract(separators, np.arange(len(values)), out=offsets[1:])
        return cls(data[data != 0], offsets)

    @property
    def lengths(self) -> Int64:
        """Bytes of each text."""
        return np.diff(self.offsets)

    def binary(self) -> pa.Array:
        """The texts as an Arrow array of bytes, without copying."""
        buffers = [None, pa.py_buffer(self.offsets.astype(np.int32, copy=False)), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary(), len(self.offsets) - 1, buffers)

    def text(self, row: int) -> str:
        """One text."""
        return bytes(self.data[self.offsets[row] : self.offsets[row + 1]]).decode("utf-8", "replace")


@dataclass(frozen=True)
class Times:
    """Parsed times; where `valid` is False the text was missing or no time, and `ns` is 0."""

    ns: Int64
    valid: Bools


def nanoseconds(column: TextColumn) -> Times:
    """Microseconds as JSON numbers or strings → nanoseconds, rounded half up past the third decimal."""
    starts, lengths = column.offsets[:-1].copy(), column.lengths.copy()
    count = len(lengths)
    value = np.zeros(count, np.int64)
    if not count or not len(column.data):
        return Times(value, np.zeros(count, np.bool_))
    alike = _alike(column, lengths)
    if alike is not None:
        return Times(alike, np.ones(count, np.bool_))
    data = np.concatenate((column.data, np.zeros(1, np.uint8)))
    quoted = (lengths >= 2) & (data[starts] == 34)
    starts += quoted
    lengths -= 2 * quoted
    fraction = np.zeros(count, np.int64)  # digits after the point, counted to 4
    whole = np.zeros(count, np.int64)
    dot = np.zeros(count, np.bool_)
    odd = lengths > 40
    up = np.zeros(count, np.bool_)
    longest = min(int(lengths.max()), 40)
    for position in range(longest):
        inside = lengths > position
        char = data[np.where(inside, starts + position, len(data) - 1)]
        digit = char - np.uint8(48)
        is_digit = inside & (digit < 10)
        is_dot = char == 46
        odd |= inside & ~is_digit & ~is_dot | (is_dot & dot)
        take = is_digit & (fraction < 3) & (whole <= _PLAIN_DIGITS)
        value = np.where(take, value * 10 + digit, value)
        up |= is_digit & (fraction == 3) & (digit >= 5)
        fraction += is_digit & dot & (fraction < 4)
        whole += is_digit & ~dot
        dot |= is_dot
    odd |= (whole > _PLAIN_DIGITS) & (lengths > 0)
    odd |= (whole == 0) & (lengths > 0)
    value = value * np.array([1000, 100, 10, 1, 1], np.int64)[fraction] + up
    valid = (lengths > 0) & ~odd
    odd |= valid & (value > MAX_NS)
    valid &= ~odd
    value[~valid] = 0
    for row in np.flatnonzero(odd):
        parsed = exact_nanoseconds(column.text(int(row)))
        if parsed is not None:
            value[row], valid[row] = parsed, True
    return Times(value, valid)


def _alike(column: TextColumn, lengths: Int64) -> Int64 | None:
    """Nanoseconds of texts that are all of one length with the point at one place, as most of a trace's times are."""
    length = int(lengths[0])
    if not 0 < length <= _PLAIN_DIGITS + 4 or lengths.min() != length or lengths.max() != length:
        return None
    digits = column.data.reshape(-1, length) - np.uint8(48)
    points = np.flatnonzero(digits[0] == _POINT)
    whole = int(points[0]) if len(points) else length
    decimals = max(length - whole - 1, 0)
    if not 0 < whole <= _PLAIN_DIGITS or decimals > 3:
        return None
    if len(points):
        if (digits[:, whole] != _POINT).any():
            return None
        digits = np.delete(digits, whole, axis=1)
    if (digits > 9).any():
        return None
    value = np.zeros(len(digits), np.int64)
    for place in np.ascontiguousarray(digits.T):
        value *= 10
        value += place
    value *= 10 ** (3 - decimals)
    return None if value.max() > MAX_NS else value


def exact_nanoseconds(text: str) -> int | None:
    """One time in microseconds → nanoseconds; None when it is no number or beyond `MAX_NS`."""
    try:
        number = Decimal(text.strip().strip('"').strip())
        if not number.is_finite() or abs(number) * 1000 > MAX_NS:
            return None
        return int((number * 1000).to_integral_value(rounding="ROUND_HALF_UP"))
    except (InvalidOperation, ValueError):
        return None


def too_long(start: Int64, end: Int64) -> Bools:
    """Intervals whose length can't be meant: see `longest`."""
    length = end - start
    return np.asarray(length > longest(float(length.sum(dtype=np.float64)), len(length)))


def longest(total: float, count: int) -> int:
    """The longest duration that can be meant: 104 days; less where the sum (`total`) of all would not fit 64 bits."""
    return min(LONGEST_NS, MAX_NS // count) if count and total > MAX_NS else LONGEST_NS


def nanoseconds_meant(text: str) -> int | None:
    """A time that is in nanoseconds although the format wants microseconds; None when it is no such time."""
    try:
        number = Decimal(text.strip().strip('"').strip())
        if not number.is_finite() or not NS_AS_US <= number <= MAX_NS:
            return None
        return int(number.to_integral_value(rounding="ROUND_HALF_UP"))
    except (InvalidOperation, ValueError):
        return None


def int64(value: object, default: int = -1) -> int:
    """An id of any JSON type as int64; `default` when it is none."""
    if isinstance(value, bool) or value is None:
        return default
    if isinstance(value, str):
        text = value.strip()
        try:
            value = int(text, 16) if text.lower().startswith("0x") else int(text)
        except ValueError:
            return default
    if isinstance(value, float):
        if not abs(value) <= 2**62 or int(value) != value:  # not a number is not <= anything
            return default
        value = int(value)
    if isinstance(value, int) and -_INT64_MAX <= value <= _INT64_MAX:
        return value
    return default


def int64_column(values: Sequence[object], default: int = -1) -> Int64:
    """A column of ids of any JSON type as int64."""
    try:
        column = np.array(values if len(values) else [], dtype=None)
    except (ValueError, OverflowError):
        column = np.array([], dtype=object)
    if len(column) == len(values) and column.dtype.kind == "i":
        return column.astype(np.int64)
    return np.array([int64(value, default) for value in values], np.int64)
