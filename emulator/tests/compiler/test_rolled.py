"""Rolled programs: loops in the text, the same instructions as when every round is written out."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuroncore.compiler import PASSES, Compiled, attend_forward
from neuroncore.compiler.tile import Tiler
from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.isa import Loop
from neuroncore.isa.synchronize import synchronize
from neuroncore.targets import load_target
from neuroncore.timing import simulate

TRN2 = load_target("trn2")


def spec(shape, strides=None, dtype="bf16"):
    if strides is None:
        strides, step = [], 1
        for size in reversed(shape):
            strides.insert(0, step)
            step *= size
    return TensorSpec(tuple(shape), dtype, tuple(strides))


def compiled(graph, *, unrolled=False):
    value = graph
    for step in PASSES:
        value = Tiler(value, TRN2, unrolled=unrolled).run() if step.name == "tile" else step.run(value, TRN2)
        step.check(value, TRN2)
    assert isinstance(value, Compiled)
    return value.program


def op(target, inputs, args, output):
    return Graph(target, tuple(inputs), (Node(target, args, (), (output,)),), (Value(0, 0),))


A, B = Value(-1, 0), Value(-1, 1)


def add(shape, permuted):
    """x + y, x with its first two axes exchanged in memory where `permuted`."""
    x = spec(shape)
    if permuted:
        first, second, *rest = shape
        strides = spec((second, first, *rest)).strides
        x = spec(shape, (strides[1], strides[0], *strides[2:]))
    return op("aten.add.Tensor", (x, spec(shape)), (A, B), spec(shape))


def softmax(rows, columns):
    return op(
        "aten._softmax.default",
        (spec((rows, columns), dtype="fp32"),),
        (A, 1, False),
        spec((rows, columns), dtype="fp32"),
    )


def total(rows, columns):
    return op("aten.sum.dim_IntList", (spec((rows, columns)),), (A, (1,)), spec((rows,)))


def matmul(m, k, n, turned):
    """x @ y, y given as [n, k] where `turned`."""
    y = spec((k, n), (1, k)) if turned else spec((k, n))
    return op("aten.mm.default", (spec((m, k)), y), (A, B), spec((m, n)))


def bmm(batch, m, k, n):
    return op("aten.bmm.default", (spec((batch, m, k)), spec((batch, k, n))), (A, B), spec((batch, m, n)))


def convolution(images, channels, size, outs, stride):
    node = Node(
        "aten.convolution.default",
        (A, B, None, (stride, stride), (1, 1), (1, 1), False, (0, 0), 1),
        (),
        (spec((images, outs, (size - 1) // stride + 1, (size - 1) // stride + 1)),),
    )
    return Graph("conv", (spec((images, channels, size, size)), spec((outs, channels, 3, 3))), (node,), (Value(0, 0),))


def attention(heads, length):
    q = spec((1, heads, length, 64))
    outputs = (q, spec((1, heads, length), dtype="fp32"))
    name = "aten._scaled_dot_product_fused_attention_overrideable.default"
    node = Node(name, (A, A, A, None, 0.0, True), (), outputs)
    return Graph("attention", (q,), (node,), (Value(0, 0), Value(0, 1)))


graphs = st.one_of(
    st.builds(
        add, st.tuples(st.integers(1, 12), st.sampled_from([7, 128, 384, 512]), st.integers(1, 600)), st.booleans()
    ),
    st.builds(softmax, st.integers(1, 9000), st.sampled_from([8, 100, 3000])),
    st.builds(total, st.integers(1, 3000), st.sampled_from([16, 4096, 70000])),
    st.builds(matmul, st.integers(1, 3000), st.sampled_from([64, 128, 600, 2304]), st.integers(1, 2000), st.booleans()),
    st.builds(bmm, st.integers(1, 12), st.integers(1, 1200), st.sampled_from([32, 256]), st.integers(1, 300)),
    st.builds(
        convolution,
        st.integers(1, 16),
        st.sampled_from([3, 160]),
        st.sampled_from([8, 40]),
        st.sampled_from([16, 200]),
        st.integers(1, 2),
    ),
)


@settings(max_examples=60, deadline=None)
@given(graphs)
def test_loops_are_the_rounds_written_out(graph):
    rolled, written = compiled(graph), compiled(graph, unrolled=True)
    assert synchronize(rolled).body == synchronize(written).body


@pytest.mark.parametrize(
    "graph",
    [
        add((4096, 512, 64), False),
        add((8192, 512, 64), True),
        softmax(100_000, 1000),
        total(300_000, 1024),
        matmul(8192, 8192, 8192, True),
        matmul(8192, 8192, 8192, False),
        bmm(64, 1024, 512, 1024),
        convolution(256, 64, 56, 64, 1),
        attention(32, 4096),
    ],
    ids=["add", "add of a permuted", "softmax", "sum", "linear", "mm", "bmm", "convolution", "attention"],
)
def test_programs_stay_short_however_long_they_run(graph):
    program = compiled(graph)
    assert program.executed > 2_000
    assert sum(1 for _ in program.text()) < min(program.executed / 2, 40_000)
    assert any(isinstance(item, Loop) for item in program.body)


def test_a_loop_over_heads_is_the_rounds_written_out(monkeypatch):
    monkeypatch.setattr(attend_forward, "_ROUND", 8)
    graph = attention(12, 600)
    rolled = compiled(graph)
    assert any(isinstance(item, Loop) for item in rolled.body)
    assert synchronize(rolled).body == synchronize(compiled(graph, unrolled=True)).body


def test_a_large_matmul_is_simulated_at_its_own_bound():
    timeline = simulate(compiled(matmul(8192, 8192, 8192, True)), TRN2)
    peak_ns = 2 * 8192**3 / TRN2.peak_flops_per_second("bf16") * 1e9
    assert peak_ns < timeline.program_ns < 2 * peak_ns


def test_a_program_costs_the_same_rolled_or_written_out():
    for graph in (matmul(1500, 600, 700, True), softmax(5000, 100)):
        rolled = compiled(graph)
        assert simulate(rolled, TRN2).program_ns == simulate(replace(rolled.expand()), TRN2).program_ns


FASTER = {
    "hbm_bytes_per_second": 2.0, "dma_engine_bytes_per_second": 1.3, "tensor_clock_hz": 1.5, "vector_clock_hz": 1.5,
    "scalar_clock_hz": 1.2, "semaphore_ns": 0.5, "dma_start_ns": 0.5, "dge_fixed_ns": 0.1,
}  # fmt: skip


@pytest.mark.parametrize("graph", [matmul(512, 1024, 1024, True), softmax(3000, 1000), attention(4, 512)],
                         ids=["linear", "softmax", "attention"])  # fmt: skip
def test_faster_hardware_runs_compiled_kernels_no_slower(graph):
    program = compiled(graph)
    before = simulate(program, TRN2).program_ns
    for field, factor in FASTER.items():
        faster = replace(TRN2, **{field: getattr(TRN2, field) * factor})
        # A thousandth: transfers of two queues may meet where they did not (see `neuroncore.timing`).
        assert simulate(program, faster).program_ns <= 1.001 * before, field
