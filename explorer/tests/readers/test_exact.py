"""Times and ids from text, exactly."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from neuronscope.readers.exact import TextColumn, int64, int64_column, nanoseconds


def parse(*texts: str) -> list[int | None]:
    times = nanoseconds(TextColumn.join([text.encode() for text in texts]))
    return [int(ns) if ok else None for ns, ok in zip(times.ns, times.valid, strict=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1759000000000123.456", 1_759_000_000_000_123_456),
        ('"1747103412345700.999"', 1_747_103_412_345_700_999),
        ("3.1", 3_100),
        ("1e3", 1_000_000),
        ("2.5E+1", 25_000),
        ("-79.000", -79_000),
        ("0", 0),
        ("12.77012757357446", 12_770),
        ("0.9996", 1_000),
        ("2305843009213693", 2_305_843_009_213_693_000),
        ("9223372036854775", None),
        ("-9e18", None),
        ("99999999999999999999", None),
        ("nan", None),
        ("", None),
        ('"soon"', None),
        ("1.2.3", None),
        (".", None),
    ],
)
def test_microseconds_become_nanoseconds_without_a_float(text: str, expected: int | None) -> None:
    assert parse(text, "1.5") == [expected, 1_500]


@given(st.lists(st.decimals(min_value=-(10**15), max_value=10**15, places=6), max_size=30))
def test_every_decimal_is_rounded_half_up_as_decimal_does(values: list[Decimal]) -> None:
    expected = [int((v * 1000).to_integral_value(rounding=ROUND_HALF_UP)) for v in values]
    assert parse(*(format(v, "f") for v in values)) == expected


def test_ids_of_any_json_type_become_int64() -> None:
    assert int64_column([1, 2, 3]).tolist() == [1, 2, 3]
    assert int64_column([1, "7", None, "0x1f", 2.0, 2.5, True, 2**70]).tolist() == [1, 7, -1, 31, 2, -1, -1, -1]
    assert int64_column([]).dtype == np.int64
    assert int64(9_007_199_254_740_993) == 9_007_199_254_740_993
    assert int64("1747103412345678121") == 1_747_103_412_345_678_121
