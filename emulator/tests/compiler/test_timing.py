"""What a user may rely on about program times: they follow shape, dtype and op, stay near the limits, never vary."""

import os
import subprocess
import sys

import pytest
import torch
from neuroncore.graph import Value
from neuroncore.runtime import compile_graph
from neuroncore.targets import load_target
from neuroncore.timing import bounds

aten = torch.ops.aten
X, Y = Value(-1, 0), Value(-1, 1)
SHAPES = [(4, 512), (128, 512), (512, 512), (1024, 1024), (2048, 2048), (4096, 4096)]
OPS = ["mul", "add", "rsqrt", "mean", "rms_norm", "mm"]


def graph(graph_of, call, name, shape, dtype):
    rows, cols = shape
    x = torch.empty(shape, dtype=dtype, device="meta")
    calls = {
        "mul": lambda: ([call(aten.mul.Tensor, X, Y)], [x, x]),
        "add": lambda: ([call(aten.add.Tensor, X, Y)], [x, x]),
        "rsqrt": lambda: ([call(aten.rsqrt.default, X)], [x]),
        "mean": lambda: ([call(aten.mean.dim, X, [-1], True)], [x]),
        "mm": lambda: ([call(aten.mm.default, X, Y)], [x, torch.empty((cols, cols), dtype=dtype, device="meta")]),
    }
    if name == "rms_norm":
        from neuroncore.graph import Graph, Node, TensorSpec

        dtype_name = {torch.bfloat16: "bf16", torch.float32: "fp32"}[dtype]
        inputs = (TensorSpec(shape, dtype_name), TensorSpec((cols,), dtype_name))
        outputs = (TensorSpec(shape, dtype_name), TensorSpec((rows, 1), "fp32"))
        node = Node("aten._fused_rms_norm.default", (X, (cols,), Y, 1e-6), (), outputs)
        return Graph("rms", inputs, (node,), (Value(0, 0), Value(0, 1)))
    return graph_of(*calls[name]())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", OPS)
def test_time_grows_with_bytes_and_flops(graph_of, aten_call, name, dtype):
    executables = [compile_graph(graph(graph_of, aten_call, name, shape, dtype)) for shape in SHAPES]
    times = [e.program_ns for e in executables]
    assert times == sorted(times), dict(zip(SHAPES, times, strict=True))
    assert all(e.estimated_ns == 0 for e in executables)
    largest = executables[-1]
    limit = bounds(largest.program, load_target("trn2")).roofline_ns
    assert limit <= largest.program_ns <= 1.5 * limit


@pytest.mark.parametrize("name", OPS)
def test_no_schedule_beats_the_roofline_or_loses_to_running_everything_in_turn(graph_of, aten_call, name):
    for shape in SHAPES[:4]:
        executable = compile_graph(graph(graph_of, aten_call, name, shape, torch.bfloat16))
        limits = bounds(executable.program, load_target("trn2"))
        assert limits.roofline_ns <= executable.program_ns <= limits.serial_ns


@pytest.mark.parametrize("name", ["mul", "add", "rsqrt", "mean"])
def test_small_ops_take_a_few_microseconds(graph_of, aten_call, name):
    time = compile_graph(graph(graph_of, aten_call, name, (4, 512), torch.bfloat16)).program_ns
    assert 3_000 <= time <= 8_000


def test_mean_takes_about_as_long_as_mul(graph_of, aten_call):
    mul, mean = (
        compile_graph(graph(graph_of, aten_call, n, (4, 512), torch.bfloat16)).program_ns for n in ("mul", "mean")
    )
    assert mean - mul <= 3_000


def test_fp32_takes_longer_than_bf16(graph_of, aten_call):
    for name in OPS:
        half, full = (
            compile_graph(graph(graph_of, aten_call, name, (2048, 2048), d)).program_ns
            for d in (torch.bfloat16, torch.float32)
        )
        assert half < full


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_every_generation_compiles_the_same_ops(graph_of, aten_call, target):
    for name in OPS:
        assert compile_graph(graph(graph_of, aten_call, name, (256, 512), torch.bfloat16), target).program_ns > 0


_SCRIPT = """
import hashlib, sys
from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.runtime import compile_graph
x = TensorSpec((300, 513), "bf16")
row = TensorSpec((300, 1), "bf16")
a = Value(-1, 0)
nodes = (Node("aten.mul.Tensor", (a, a), (), (x,)), Node("aten.mean.dim", (Value(0, 0), (-1,), True), (), (row,)),
         Node("aten.rsqrt.default", (Value(1, 0),), (), (row,)), Node("aten.mul.Tensor", (a, Value(2, 0)), (), (x,)))
graphs = [Graph(sys.argv[1], (x,), nodes, (Value(3, 0),))]
w = TensorSpec((513,), "bf16")
weights = tuple(Value(-1, i) for i in range(1, 6))
many = [Node("aten.mul.Tensor", (a, weights[0]), (), (x,))]
many += [Node("aten.add.Tensor", (Value(i, 0), weight), (), (x,)) for i, weight in enumerate(weights[1:])]
graphs.append(Graph(sys.argv[1], (x, w, w, w, w, w), tuple(many), (Value(4, 0),)))
linear = Node("aten.linear.default", (a, Value(-1, 1), Value(-1, 2)), (), (TensorSpec((300, 40), "bf16"),))
scaled = Node("aten.mul.Tensor", (Value(0, 0), Value(-1, 3)), (), (TensorSpec((300, 40), "bf16"),))
v = TensorSpec((40,), "bf16")
graphs.append(Graph(sys.argv[1], (x, TensorSpec((40, 513), "bf16"), v, v), (linear, scaled), (Value(1, 0),)))
square = TensorSpec((3072, 1024), "bf16")
product = Node("aten.linear.default", (a, Value(-1, 1)), (), (TensorSpec((3072, 3072), "bf16"),))
graphs.append(Graph(sys.argv[1], (square, square), (product,), (Value(0, 0),)))
for e in map(compile_graph, graphs):
    print(e.hash, e.program_ns, e.instructions.num_rows, e.bytes_read)
    if len(sys.argv) > 2:
        print(hashlib.sha256(e.neff).hexdigest(), e.instructions.to_pydict()["offset_ns"][-5:])
"""


def test_two_processes_give_the_same_hash_and_nanoseconds():
    def run(seed, name):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        result = subprocess.run(
            [sys.executable, "-c", _SCRIPT, name], env=environment, capture_output=True, text=True, check=True
        )
        return result.stdout

    assert run("1", "region 0/0") == run("2", "region 1/0")


def test_two_folders_and_hash_seeds_give_the_same_bytes(tmp_path):
    def run(seed):
        folder = tmp_path / seed
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", _SCRIPT, "region 0/0", "bytes"]
        return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True).stdout

    assert run("3") == run("4")
