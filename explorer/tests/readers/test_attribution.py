"""Device time to module, region, source line and stack: against a walk over all ranges, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from neuronscope.readers.attribution import Ranges, module_label, source_label
from neuronscope.store import Profile

Ingest = Callable[..., Profile]
NAMES = [
    "nn.Module: A_0",
    "nn.Module: B_1",
    "model.py(12): forward",
    "torch/nn/modules/module.py(9): call",
    "<built-in>",
]


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[int, int, int, int]]:
    """Ranges (thread, start, end, name) that nest in each thread, touching and empty ones included."""
    found: list[tuple[int, int, int, int]] = []

    def fill(thread: int, low: int, high: int, depth: int) -> None:
        at = low
        while at < high and draw(st.integers(0, 3)):
            start = draw(st.integers(at, high - 1))
            end = draw(st.integers(start + 1, high))
            found.append((thread, start, end, draw(st.integers(0, len(NAMES) - 1))))
            if depth < 4:
                fill(thread, start, end, depth + 1)
            at = end

    for thread in range(draw(st.integers(1, 2))):
        fill(thread, 0, draw(st.integers(1, 40)), 0)
    return found


@given(trees(), st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 45)), min_size=1, max_size=20))
def test_paths_equal_a_walk_over_all_ranges(
    tree: list[tuple[int, int, int, int]], asked: list[tuple[int, int]]
) -> None:
    columns = [np.array(column, np.int64) for column in zip(*tree, strict=True)] or [np.zeros(0, np.int64)] * 4
    ranges = Ranges(*columns, NAMES)
    thread, at = (np.array(column, np.int64) for column in zip(*asked, strict=True))
    inner = ranges.innermost(thread, at)
    got = {label: ranges.paths(inner, label, ";").tolist() for label in (str, module_label)}
    sources = ranges.last(inner, source_label).tolist()
    for index, (where, when) in enumerate(asked):
        # A range is open from its start up to and with its end, as an arrow binds, unless another began there.
        around = [row for row in tree if row[0] == where and row[1] <= when <= row[2]]
        started = [row for row in around if row[2] > when]
        if any(row[2] == when for row in around):
            continue  # at the very end either answer will do
        around = sorted(started, key=lambda row: (row[1], -row[2]))
        for label, texts in got.items():
            assert texts[index] == ";".join(text for text in (label(NAMES[row[3]]) for row in around) if text)
        lines = [text for text in (source_label(NAMES[row[3]]) for row in around) if text]
        assert sources[index] == (lines[-1] if lines else "")


def test_no_ranges_at_all() -> None:
    none = np.zeros(0, np.int64)
    ranges = Ranges(none, none, none, none, [])
    inner = ranges.innermost(np.array([0]), np.array([5]))
    assert inner.tolist() == [-1] and ranges.paths(inner, str, ";").tolist() == [""]


def x(cat: str, name: str, ts: float, dur: float, tid: int = 1, pid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def trained() -> list[dict[str, Any]]:
    """A linear layer forward (twice launched), and its backward on another thread."""
    return [
        x("user_annotation", "ProfilerStep#1", 0, 200),
        x("user_annotation", "forward", 10, 60),
        x("python_function", "train.py(5): <module>", 5, 180, tid=0, pid=0),
        x("python_function", "nn.Module: Net_0", 11, 50, tid=0, pid=0),
        x("python_function", "net.py(7): forward", 12, 48, tid=0, pid=0),
        x("python_function", "nn.Module: Linear_0", 13, 40, tid=0, pid=0),
        x("cpu_op", "aten::linear", 15, 30, **{"External id": 1}),
        x("cpu_op", "aten::addmm", 17, 20, **{"External id": 2}),
        x("cuda_runtime", "cudaLaunchKernel", 18, 2, correlation=1),
        x("cuda_runtime", "cudaGraphLaunch", 25, 2, correlation=2),
        x("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 90, 40, tid=2, **{"External id": 3}),
        x("cpu_op", "aten::mm", 95, 20, tid=2, **{"External id": 4}),
        x("cuda_runtime", "cudaLaunchKernel", 96, 2, tid=2, correlation=3),
        {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 1, "tid": 1, "ts": 15},
        {"ph": "f", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 1, "tid": 2, "ts": 90, "bp": "e"},
        x("kernel", "gemm", 30, 5, tid=7, pid=0, device=0, stream=7, correlation=1),
        x("kernel", "graph_a", 40, 5, tid=7, pid=0, device=0, stream=7, correlation=2),
        x("kernel", "graph_b", 46, 5, tid=7, pid=0, device=0, stream=7, correlation=2),
        x("kernel", "gemm_bwd", 110, 9, tid=7, pid=0, device=0, stream=7, correlation=3),
        x("kernel", "stray", 150, 9, tid=7, pid=0, device=0, stream=7, correlation=99),
    ]


def test_forward_graph_and_backward_work_find_their_module(ingest: Ingest) -> None:
    rows = {row["name"]: row for row in ingest(trained()).table("Execution").to_pylist()}
    for name in ("gemm", "graph_a", "graph_b"):  # all kernels of a graph belong to its launch
        row = rows[name]
        assert (row["op"], row["module_path"], row["region"]) == ("aten::addmm", "Net_0.Linear_0", "forward")
        assert row["source"] == "net.py:7" and row["step"] == 1
        assert row["stack"] == "train.py(5): <module>;nn.Module: Net_0;net.py(7): forward;nn.Module: Linear_0"
    assert rows["gemm"]["launch_ts"] == 18_000 and rows["stray"]["launch_ts"] == -1
    backward = rows["gemm_bwd"]
    assert (backward["op"], backward["module_path"]) == ("aten::mm", "Net_0.Linear_0")
    assert (backward["region"], backward["source"], backward["stack"]) == ("", "", "")
    assert (rows["stray"]["op"], rows["stray"]["module_path"]) == ("", "")
