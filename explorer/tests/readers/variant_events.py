"""Events that the variants of `damaged_variants.py` and `vendor_variants.py` are made of, and their list."""

from __future__ import annotations

import json
from typing import Any

Event = dict[str, Any]
Variant = tuple[str, bytes, str, dict[str, Any]]


def slice_(name: str, ts: Any, dur: Any, cat: str = "cpu_op", pid: Any = 1, tid: Any = 1, **args: Any) -> Event:
    event: Event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return event | ({"args": args} if args else {})


def op(name: str = "aten::mm", ts: Any = 100, dur: Any = 50, external: Any = 1, tid: Any = 1, **args: Any) -> Event:
    return slice_(name, ts, dur, tid=tid, **{"External id": external, **args})


def call(
    ts: Any = 110,
    correlation: Any = 1,
    name: str = "cudaLaunchKernel",
    dur: Any = 5,
    cat: str = "cuda_runtime",
    **args: Any,
) -> Event:
    return slice_(name, ts, dur, cat, correlation=correlation, **args)


def kernel(
    name: str = "gemm",
    ts: Any = 200,
    dur: Any = 10,
    correlation: Any = 1,
    device: Any = 0,
    stream: Any = 7,
    cat: str = "kernel",
    **args: Any,
) -> Event:
    ids = {"device": device, "stream": stream, "correlation": correlation}
    return slice_(name, ts, dur, cat, device, stream, **ids, **args)


def half(ph: str, name: str, ts: Any, **more: Any) -> Event:
    """One end of a pair, or a mark."""
    return {"ph": ph, "name": name, "pid": 1, "tid": 1, "ts": ts, **more}


BASE = [op(), call(), kernel()]
TEXTS = [json.dumps(event) for event in BASE]


def doc(events: list[Event], **header: Any) -> str:
    return json.dumps({"schemaVersion": 1, **header, "traceEvents": events})


def raw(*events: str, head: str = '{"schemaVersion":1,"traceEvents":[', tail: str = "]}") -> str:
    return head + ",\n".join(events) + tail


FULL = raw(*TEXTS)


def data(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


class Variants(list[Variant]):
    def add(self, name: str, content: str | bytes, file: str = "trace.json", **right: Any) -> None:
        self.append((name, data(content), file, right))
