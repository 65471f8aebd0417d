"""Conditions of `diff --fail-on`: a tiny language for "when is B worse than A".

```
condition  := all ("or" all)*
all        := test ("and" test)*
test       := METRIC (">" | ">=" | "<" | "<=") NUMBER [UNIT]
UNIT       := "%" | "ns" | "us" | "ms" | "s" | "B" | "KiB" | "MiB" | "GiB"
```

A test is about the *change* from A to B: `device_time > 5%` is true when B takes over 5 % more device time than A,
`gaps > 200us` when its gaps are over 200 us longer, `executions > 0` when it has more of them. Nothing is evaluated as
code.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from neuronscope.formats.errors import NeuronscopeError

__all__ = ["METRICS", "Condition", "ConditionError", "Test", "parse"]

METRICS = {
    "device_time": "ns",
    "span": "ns",
    "busy": "ns",
    "gaps": "ns",
    "launch": "ns",
    "program": "ns",
    "executions": "",
    "copies": "",
    "bytes": "B",
    "self_cpu": "ns",
    "calls": "",
    "op_device_time": "ns",
    "op_self_cpu": "ns",
}
"""Metrics of a test and the unit of their values. `op_device_time` is any operator path; without device work it is
`op_self_cpu`, and `self_cpu`, `span` and `calls` are those of the operators on the host."""

_UNITS = {
    "ns": ("ns", 1),
    "us": ("ns", 1_000),
    "µs": ("ns", 1_000),
    "ms": ("ns", 1_000_000),
    "s": ("ns", 1_000_000_000),
    "B": ("B", 1),
    "KiB": ("B", 1 << 10),
    "MiB": ("B", 1 << 20),
    "GiB": ("B", 1 << 30),
}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_TOKEN = re.compile(r"\s*(?:(?P<number>[-+]?\d+(?:\.\d+)?)|(?P<word>[A-Za-zµ_]+)|(?P<sign>>=|<=|>|<|%))")
_EXAMPLE = "as in `device_time > 5%` or `gaps > 200us or executions > 0`"


class ConditionError(NeuronscopeError, ValueError):
    """The condition can't be read; the message shows where and what was expected."""


@dataclass(frozen=True)
class Test:
    """One comparison of a metric's change; `relative`: `value` is a share of A's value, else in the metric's unit."""

    metric: str
    sign: str
    value: float
    relative: bool
    text: str

    def holds(self, before: float, after: float) -> bool:
        """Whether the change from `before` to `after` meets the test."""
        change = after - before
        limit = self.value * abs(before) if self.relative else self.value
        return _COMPARE[self.sign](change, limit)


@dataclass(frozen=True)
class Condition:
    """Alternatives of tests that must all hold."""

    alternatives: tuple[tuple[Test, ...], ...]
    text: str

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics it needs, each once."""
        return tuple(dict.fromkeys(test.metric for tests in self.alternatives for test in tests))


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.kind = self.value = ""
        self.begin = 0
        self.advance()

    def advance(self) -> None:
        """Read the next token."""
        rest = self.text[self.at :]
        self.begin = self.at + len(rest) - len(rest.lstrip())
        if not rest.strip():
            self.kind, self.value = "end", ""
            return
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            self.kind, self.value = "", rest.strip()[0]
            self.fail("a metric, a comparison or a number")
        else:
            self.kind, self.value = str(match.lastgroup), match[str(match.lastgroup)]
            self.at = match.end()

    def fail(self, expected: str) -> None:
        found = f"`{self.value}`" if self.value else "the end"
        raise ConditionError(f"--fail-on {self.text!r}: expected {expected} at column {self.begin + 1}, found {found}")

    def take(self, kind: str, expected: str, allowed: tuple[str, ...] | None = None) -> str:
        if self.kind != kind or (allowed is not None and self.value not in allowed):
            self.fail(expected)
        value = self.value
        self.advance()
        return value


def parse(text: str) -> Condition:
    """Read a condition.

    Raises:
        ConditionError: it is none; says at which column and what would fit.
    """
    if not text.strip():
        raise ConditionError(f"--fail-on is empty: give a condition, {_EXAMPLE}")
    reader = _Reader(text)
    alternatives = [_all(reader)]
    while reader.kind == "word" and reader.value == "or":
        reader.advance()
        alternatives.append(_all(reader))
    if reader.kind != "end":
        reader.fail("`and`, `or` or the end")
    return Condition(tuple(alternatives), text)


def _all(reader: _Reader) -> tuple[Test, ...]:
    tests = [_test(reader)]
    while reader.kind == "word" and reader.value == "and":
        reader.advance()
        tests.append(_test(reader))
    return tuple(tests)


def _test(reader: _Reader) -> Test:
    begin = reader.begin
    metric = reader.take("word", f"a metric ({', '.join(METRICS)})", tuple(METRICS))
    sign = reader.take("sign", "one of > >= < <=", tuple(_COMPARE))
    value = float(reader.take("number", "a number"))
    relative = reader.kind == "sign" and reader.value == "%"
    if relative:
        value /= 100
        end = reader.at
        reader.advance()
    elif reader.kind == "word" and reader.value not in ("and", "or"):
        unit = METRICS[metric]
        fitting = tuple(name for name, (kind, _) in _UNITS.items() if kind == unit)
        end = reader.at
        value *= _UNITS[reader.take("word", f"% or {', '.join(fitting) or 'nothing'}", fitting)][1]
    else:
        end = reader.begin
        if METRICS[metric] == "ns" and value:
            reader.fail("% or a unit of time (ns, us, ms, s)")
    return Test(metric, sign, value, relative, reader.text[begin:end].strip())
