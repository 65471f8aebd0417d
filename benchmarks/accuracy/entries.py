"""A file of published measurements, read into `Entry` objects; nothing in it is trusted.

The form (that of the project's reference data): `{"measurements": [{"id", "workload", "shapes", "dtype", "generation",
"value", "unit", "measures", "source", "split", …}]}`. Only workload, value and unit are needed; an entry without a
split is a test, one without a generation is trn2's. An entry with a type or a value that means nothing becomes a
`Malformed` with the reason; the file is refused only if no list of entries is in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["DEFAULT", "Entry", "Malformed", "MeasurementsError", "Skip", "read"]

#: Published measurements that the repository ships: facts with their sources.
DEFAULT = Path(__file__).parent / "measurements.json"

_SECONDS = {
    "ns": 1e-9, "nanoseconds": 1e-9, "us": 1e-6, "usec": 1e-6, "microsecond": 1e-6, "microseconds": 1e-6, "ms": 1e-3,
    "msec": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
}  # fmt: skip
#: What a rate counts, by the first letters of its word: one over it is the time of one item.
_ITEMS = (
    "img", "image", "tok", "inf", "seq", "sample", "sentence", "request", "iter", "it", "exec", "step", "call",
    "frame", "query", "queries",
)  # fmt: skip
_RATE = re.compile(r"([a-z]+)\s*(?:/|per)\s*(?:s|sec|second|seconds)\b")
#: Names of dtypes that public sources use, in ours; underscores left out.
_DTYPES = {
    "fp32": "fp32", "float32": "fp32", "f32": "fp32", "float": "fp32", "fp32r": "fp32", "tf32": "fp32",
    "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16", "f16": "fp16", "half": "fp16",
    "fp8": "fp8_e4m3", "float8": "fp8_e4m3", "f8": "fp8_e4m3", "fp8e4": "fp8_e4m3", "float8e4": "fp8_e4m3",
    "fp8e4m3": "fp8_e4m3", "float8e4m3": "fp8_e4m3", "float8e4m3fn": "fp8_e4m3", "fp8exp4": "fp8_e4m3",
    "f8e4m3": "fp8_e4m3", "f8e4m3fn": "fp8_e4m3", "fp8e5": "fp8_e5m2", "float8e5": "fp8_e5m2",
    "fp8e5m2": "fp8_e5m2", "float8e5m2": "fp8_e5m2", "f8e5m2": "fp8_e5m2",
    "uint8": "uint8", "u8": "uint8", "int8": "int8", "i8": "int8", "int16": "int16", "int32": "int32",
}  # fmt: skip
#: Texts that say nothing.
_NOTHING = {"", "-", "?", "na", "none", "null", "unknown", "notstated", "unstated", "default"}
#: Target files by the generation's names in public sources, the more telling ones first.
_GENERATIONS = (
    (r"trn3|trainium ?3|neuron ?core-?v4", "trn3"),
    (r"trn2|trainium ?2|neuron ?core-?v3", "trn2"),
    (r"inf2|inferentia ?2", "inf2"),
    (r"trn1|trainium ?1|neuron ?core-?v2", "trn1"),
)


class MeasurementsError(ValueError):
    """The file is no list of measurements."""


class Skip(Exception):  # noqa: N818 - a reason, not an error
    """An entry that is not predicted, and why: the text is counted in the report.

    Attributes:
        family: the entry's, where it is another than that of the module that raises it.
    """

    def __init__(self, reason: str, family: str = "") -> None:
        super().__init__(reason)
        self.family = family


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
        found = _RATE.search(self.unit.lower())
        return found is not None and found.group(1).startswith(_ITEMS)

    @property
    def published_ns(self) -> float:
        """The figure as the time of one execution (or one item of a rate).

        Raises:
            Skip: a unit that is no time.
        """
        if self.rate:
            return 1e9 / self.value
        unit = self.unit.lower().replace("\u00b5", "u").replace("\u03bc", "u")
        if not _RATE.search(unit):  # bytes or operations per second are no time
            for word in re.findall(r"[a-z]+", unit):
                if word in _SECONDS:
                    return self.value * _SECONDS[word] * 1e9
        raise Skip(f"unit {self.unit!r} is no time")

    def in_unit(self, time_ns: float, published_ns: float | None = None) -> float:
        """A time in the entry's own unit; `published_ns` where one execution is not one item of its rate."""
        published = self.published_ns if published_ns is None else published_ns
        return self.value * published / time_ns if self.rate else self.value * time_ns / published

    @property
    def target(self) -> str:
        """The target file of its generation; trn2 where the publication names none.

        Raises:
            Skip: a generation there is no target for.
        """
        name = self.generation.lower()
        for pattern, target in _GENERATIONS:
            if re.search(pattern, name):
                return target
        if "not stated" in name or re.sub(r"[^a-z0-9?]", "", name) in {*_NOTHING, "trainium"}:
            return "trn2"
        raise Skip(f"generation {self.generation!r} has no target")

    def number(self, *names: str, default: int | None = None) -> int:
        """A positive integer of `shapes` under one of several names; numbers in text count.

        Raises:
            Skip: missing without a default, or no positive integer.
        """
        for name in names:
            value = self.get(name)
            if value is not None:
                return _integer(value, name)
        if default is None:
            raise Skip(f"shapes lack {names[0]}")
        return default

    def get(self, name: str) -> Any:
        """A value of `shapes`, None if missing; names of words count in any case and with any separator."""
        value = self.shapes.get(name)
        if value is None and len(name) > 2:
            plain = _plain(name)
            value = next((v for k, v in self.shapes.items() if _plain(str(k)) == plain and v is not None), None)
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A yes or no of `shapes`."""
        value = self.get(name)
        return default if value is None else value is True or str(value).lower() in ("true", "1", "yes")

    def word(self, *names: str, default: str = "") -> str:
        """A text of `shapes`, without the class of an enumeration (`NormType.RMS_NORM` gives `RMS_NORM`)."""
        value = next((v for v in map(self.get, names) if v is not None), None)
        return default if value is None else str(value).rsplit(".", 1)[-1]

    def element(self, default: str = "") -> str:
        """Its dtype in our names, the first one that `dtype` mentions; `default` where the entry says nothing.

        Raises:
            Skip: a dtype of another name, or none and no default.
        """
        named = ""
        if re.search(r"possibly|perhaps|uncertain", self.dtype.lower()):
            raise Skip("a dtype that is not certain")
        for text in (self.dtype, str(self.shapes.get("dtype") or "")):
            for word in re.findall(r"[a-z][a-z0-9_]*", text.lower()):
                plain = word.replace("_", "")
                if plain in _DTYPES:
                    return _DTYPES[plain]
            named = named or (text if re.sub(r"[^a-z0-9?]", "", text.lower()) not in _NOTHING else "")
        if named or not default:
            raise Skip(f"dtype {named or self.dtype!r} is unknown")
        return default


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


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


#: No published figure is as large, whatever its unit.
_LARGEST = 1e30
_TEXTS = ("workload", "dtype", "generation", "unit", "measures", "split")
#: Texts that an entry may leave out, and what it then means.
_DEFAULTS = {"dtype": "", "generation": "", "measures": "", "split": "test"}


def read(path: Path) -> tuple[list[Entry], list[Malformed]]:
    """Entries of a file, and those that can't be used.

    Raises:
        MeasurementsError: unreadable, no JSON, or no list of measurements.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
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
    name = str(row.get("id") or f"#{number}")
    if name in seen:
        return Malformed(name, "malformed: id occurs twice")
    seen.add(name)
    texts: dict[str, str] = {}
    for key in _TEXTS:
        text = _DEFAULTS.get(key) if row.get(key) is None else row[key]
        if not isinstance(text, str):
            return Malformed(name, f"malformed: {key} is no text")
        texts[key] = text
    shapes = {} if row.get("shapes") is None else row["shapes"]
    if not isinstance(shapes, dict):
        return Malformed(name, "malformed: shapes is no object")
    value = row.get("value")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < _LARGEST:
        return Malformed(name, "malformed: value is no positive number")
    if texts["split"] not in ("test", "calibrate"):
        return Malformed(name, "malformed: split is not test or calibrate")
    known = {"id", "shapes", "value", *_TEXTS}
    extra = {key: value for key, value in row.items() if key not in known}
    return Entry(id=name, shapes=shapes, value=float(value), extra=extra, **texts)
