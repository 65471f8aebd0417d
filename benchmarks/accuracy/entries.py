"""A file of published measurements, read into `Entry` objects; nothing in it is trusted.

The form (that of the project's reference data): `{"measurements": [{"id", "workload", "shapes", "dtype", "generation",
"value", "unit", "measures", "source", "split", …}]}`. An entry that lacks one of these, or gives it a type or a value
that means nothing, becomes a `Malformed` with the reason; the file is refused only if no list of entries is in it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["DEFAULT", "Entry", "Malformed", "MeasurementsError", "Skip", "read"]

#: Published measurements that the repository ships: facts with their sources.
DEFAULT = Path(__file__).parent / "measurements.json"

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
#: Units of a rate: one over it is the time of one item.
_RATES = ("img/s", "tok/s", "tokens/s", "inf/s", "seq/s")
_DTYPES = {
    "fp32": "fp32", "float32": "fp32", "f32": "fp32", "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16",
    "float16": "fp16", "f16": "fp16", "half": "fp16", "fp8": "fp8_e4m3", "float8_e4m3": "fp8_e4m3", "uint8": "uint8",
    "int8": "int8",
}  # fmt: skip


class MeasurementsError(ValueError):
    """The file is no list of measurements."""


class Skip(Exception):  # noqa: N818 - a reason, not an error
    """An entry that is not predicted, and why: the text is counted in the report."""


@dataclass(frozen=True)
class Malformed:
    """An entry that can't be used."""

    id: str
    reason: str


@dataclass(frozen=True)
class Entry:
    """One published measurement.

    Attributes:
        id: unique in its file; used for nothing but naming the entry.
        workload: what ran, in the publication's words.
        shapes: sizes and options by name.
        dtype: as published, possibly empty.
        generation: as published.
        value, unit: the published figure.
        measures: what was timed.
        split: "calibrate" (may fit a parameter) or "test".
        extra: all other fields.
    """

    id: str
    workload: str
    shapes: Mapping[str, Any]
    dtype: str
    generation: str
    value: float
    unit: str
    measures: str
    split: str
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fitted(self) -> bool:
        """Whether a parameter may have been fitted on it."""
        return self.split != "test"

    @property
    def rate(self) -> bool:
        """Whether the figure is items per second."""
        return self.unit.split(" ")[0] in _RATES

    @property
    def published_ns(self) -> float:
        """The figure as the time of one execution (or one item of a rate).

        Raises:
            Skip: a unit that is no time.
        """
        if self.rate:
            return 1e9 / self.value
        for word in re.findall(r"[a-z]+", self.unit):
            if word in _SECONDS:
                return self.value * _SECONDS[word] * 1e9
        raise Skip(f"unit {self.unit!r} is no time")

    def in_unit(self, time_ns: float) -> float:
        """A time in the entry's own unit."""
        return self.value * self.published_ns / time_ns if self.rate else self.value * time_ns / self.published_ns

    @property
    def target(self) -> str:
        """The target file of its generation; trn2 where the publication names none.

        Raises:
            Skip: a generation there is no target for.
        """
        name = self.generation.lower()
        for known in ("trn1", "inf2", "trn2", "trn3"):
            if known in name:
                return known
        if "not stated" in name or not name:
            return "trn2"
        raise Skip(f"generation {self.generation!r} has no target")

    def number(self, *names: str, default: int | None = None) -> int:
        """A positive integer of `shapes` under one of several names; numbers in text count.

        Raises:
            Skip: missing without a default, or no positive integer.
        """
        for name in names:
            if self.shapes.get(name) is not None:
                return _integer(self.shapes[name], name)
        if default is None:
            raise Skip(f"shapes lack {names[0]}")
        return default

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A yes or no of `shapes`."""
        value = self.shapes.get(name)
        return default if value is None else value is True or str(value).lower() in ("true", "1", "yes")

    def word(self, name: str, default: str = "") -> str:
        """A text of `shapes`, without the class of an enumeration (`NormType.RMS_NORM` gives `RMS_NORM`)."""
        value = self.shapes.get(name)
        return default if value is None else str(value).rsplit(".", 1)[-1]

    def element(self, default: str = "") -> str:
        """Its dtype in our names, the first one that `dtype` mentions.

        Raises:
            Skip: none known and no default.
        """
        for text in (self.dtype, str(self.shapes.get("dtype", ""))):
            for word in re.findall(r"[a-z]+\d+(?:_e\dm\d)?", text.lower()):
                if word in _DTYPES:
                    return _DTYPES[word]
        if not default:
            raise Skip(f"dtype {self.dtype!r} is unknown")
        return default


_CALL = re.compile(r"ceilalign\(\s*(\d+)\s*,\s*(\d+)\s*\)")


def _integer(value: Any, name: str) -> int:
    if isinstance(value, str):
        aligned = _CALL.fullmatch(value.strip())
        if aligned:
            size, step = map(int, aligned.groups())
            value = -(-size // step) * step if step else 0
        elif value.strip().isdigit():
            value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 40:
        raise Skip(f"shapes.{name} is no positive integer")
    return value


_TEXTS = ("workload", "dtype", "generation", "unit", "measures", "split")


def read(path: Path) -> tuple[list[Entry], list[Malformed]]:
    """Entries of a file, and those that can't be used.

    Raises:
        MeasurementsError: unreadable, no JSON, or no list of measurements.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MeasurementsError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise MeasurementsError(f"{path}: not JSON ({error})") from None
    rows = data.get("measurements") if isinstance(data, dict) else data
    if not isinstance(rows, list):
        raise MeasurementsError(f"{path}: needs a list of entries under the key 'measurements'")
    entries: list[Entry] = []
    malformed: list[Malformed] = []
    seen: set[str] = set()
    for number, row in enumerate(rows):
        result = _entry(row, number, seen)
        if isinstance(result, Entry):
            entries.append(result)
        else:
            malformed.append(result)
    return entries, malformed


def _entry(row: Any, number: int, seen: set[str]) -> Entry | Malformed:
    if not isinstance(row, dict):
        return Malformed(f"#{number}", "malformed: entry is no object")
    name = row.get("id")
    if not isinstance(name, str) or not name:
        return Malformed(f"#{number}", "malformed: no id")
    if name in seen:
        return Malformed(name, "malformed: id occurs twice")
    seen.add(name)
    for key in _TEXTS:
        if not isinstance(row.get(key), str):
            return Malformed(name, f"malformed: {key} is no text")
    if not isinstance(row.get("shapes"), dict):
        return Malformed(name, "malformed: shapes is no object")
    value = row.get("value")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        return Malformed(name, "malformed: value is no positive number")
    if row["split"] not in ("test", "calibrate"):
        return Malformed(name, "malformed: split is not test or calibrate")
    known = {"id", "shapes", "value", *_TEXTS}
    texts = {key: row[key] for key in _TEXTS}
    extra = {key: value for key, value in row.items() if key not in known}
    return Entry(id=name, shapes=row["shapes"], value=float(value), extra=extra, **texts)
