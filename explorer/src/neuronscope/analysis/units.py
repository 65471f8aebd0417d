"""Numbers as people read them: three significant digits with a unit. Exact nanoseconds belong to JSON, not here."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

__all__ = [
    "count_word",
    "format_bytes",
    "format_ns",
    "format_percent",
    "format_rate",
    "format_ratio",
    "format_share",
    "plural",
    "significant",
]

_TIME_UNITS = ((1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s"))
_BYTE_UNITS = ((1, "B"), (1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"), (1 << 40, "TiB"))
_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def significant(value: float | Decimal) -> str:
    """`value` with three significant digits and no exponent, halves rounded away from zero: 388, 60.9, 2.36, 0.104."""
    number = Decimal(value)
    if number == 0:
        return "0"
    for _ in range(2):  # rounding up may add a digit in front: 99.96 is 100, not 100.0
        number = number.quantize(Decimal(1).scaleb(min(number.adjusted() - 2, 0)), ROUND_HALF_UP)
    return f"{number:f}"


def _scaled(value: float, units: tuple[tuple[int, str], ...]) -> str:
    for index, (size, unit) in enumerate(units):
        text = significant(Decimal(value) / size)
        last = index + 1 == len(units)
        if last or abs(float(text)) < units[index + 1][0] / size:
            return f"{text} {unit}"
    raise AssertionError("units is empty")


def format_ns(nanoseconds: float) -> str:
    """A duration: `388 us`, `2.36 ms`; whole nanoseconds below one microsecond."""
    if abs(nanoseconds) < 1_000 and nanoseconds == int(nanoseconds):
        return f"{int(nanoseconds)} ns"
    return _scaled(nanoseconds, _TIME_UNITS)


def format_bytes(size: float) -> str:
    """A size in binary units: `36.9 KiB`."""
    if abs(size) < 1024 and size == int(size):
        return f"{int(size)} B"
    return _scaled(size, _BYTE_UNITS)


def format_rate(per_second: float, unit: str) -> str:
    """A rate in decimal units: `78.6 TFLOP/s`, `362 GB/s`."""
    return _scaled(
        per_second,
        tuple((10**power, f"{prefix}{unit}") for power, prefix in ((0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T"))),
    )


def format_share(share: float | None) -> str:
    """A share for tables, three significant digits at most: `49.5 %`; `-` when there is no denominator."""
    if share is None:
        return "-"
    return f"{share * 100:.1f} %" if abs(share) < 0.9995 else f"{share * 100:.0f} %"


def format_percent(share: float) -> str:
    """A share for sentences, whole percents: `95 %`; never `0 %` for something and never `100 %` for less than all."""
    percent = round(share * 100)
    if percent == 0 and share != 0:
        return "less than 1 %" if share > 0 else "-1 %"
    if percent == 100 and share < 1:
        return "more than 99 %"
    return f"{percent} %"


def format_ratio(ratio: float) -> str:
    """A ratio, two decimals while they say something: `6.01×`, `0.79×`; else three digits: `0.00328×`."""
    return f"{significant(ratio) if ratio and not 0.1 <= ratio < 100 else f'{ratio:.2f}'}×"


def count_word(number: int) -> str:
    """`six` for 6; digits above twelve."""
    return _WORDS[number] if 0 <= number < len(_WORDS) else f"{number:,}"


def plural(number: int, noun: str) -> str:
    """`1 execution`, `6 executions`, `2 copies`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1] + 'ies' if noun.endswith('y') else noun + 's'}"
