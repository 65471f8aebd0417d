"""Concatenations of short parts, stacks and every-other elements: computed part by part, moved together."""

import pytest
import torch
from neuroncore.compiler import dump
from neuroncore.graph import Value

aten = torch.ops.aten
X, Y, Z = (Value(-1, i) for i in range(3))


def values(*shape, dtype=torch.bfloat16, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rotary(aten_call, width):
    half = width // 2
    return [
        aten_call(aten.slice.Tensor, X, 3, half, width),
        aten_call(aten.neg.default, Value(0, 0)),
        aten_call(aten.slice.Tensor, X, 3, 0, half),
        aten_call(aten.cat.default, [Value(1, 0), Value(2, 0)], 3),
        aten_call(aten.mul.Tensor, Value(3, 0), Z),
        aten_call(aten.mul.Tensor, X, Y),
        aten_call(aten.add.Tensor, Value(5, 0), Value(4, 0)),
    ]


def test_rotary_embedding_is_one_kernel(oracle, aten_call, graph_of):
    calls = rotary(aten_call, 64)
    inputs = [values(2, 3, 130, 64), values(1, 1, 130, 64, seed=1), values(1, 1, 130, 64, seed=2)]
    executable = oracle(calls, inputs)
    assert dump(graph_of(calls, inputs), "fuse").count("  kernel ") == 1
    # Halves are moved together: a transfer per tile for each operand and the result, none for a half.
    moved = executable.bytes_read + executable.bytes_written
    assert moved == 4 * inputs[0].numel() * 2


def test_a_concatenation_that_is_read_whole_too_stays(oracle, aten_call):
    calls = rotary(aten_call, 64)
    inputs = [values(2, 3, 130, 64), values(1, 1, 130, 64, seed=1), values(1, 1, 130, 64, seed=2)]
    oracle(
        [*calls, aten_call(aten.sum.dim_IntList, Value(3, 0), [3])], inputs, outputs=[Value(6, 0), Value(7, 0)],
        tolerance=0.1,
    )  # fmt: skip


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64])
def test_stack(oracle, aten_call, dim, dtype):
    parts = [(values(70, 40, seed=i) * 9).to(dtype) for i in range(3)]
    oracle([aten_call(aten.stack.default, [X, Y, Z], dim)], parts)


def test_stack_is_as_fast_as_its_bytes(oracle, aten_call):
    parts = [values(256, 512, seed=i) for i in range(4)]
    executable = oracle([aten_call(aten.stack.default, [Value(-1, i) for i in range(4)], -1)], parts)
    assert executable.program_ns < 20_000  # a transfer per element would take 400 us


@pytest.mark.parametrize("sizes", [(5, 9), (1, 1), (3, 200), (16, 16)])
def test_cat_of_short_rows(oracle, aten_call, sizes):
    x, y = values(300, sizes[0]), values(300, sizes[1], seed=1)
    oracle([aten_call(aten.cat.default, [X, Y], 1)], [x, y])
    oracle([aten_call(aten.cat.default, [X, Y, X], 1), aten_call(aten.exp.default, Value(0, 0))], [x, y])


def test_every_other_element(oracle, aten_call):
    x = values(300, 64)
    even, odd = (aten_call(aten.slice.Tensor, X, 1, first, 64, 2) for first in (0, 1))
    oracle([even, odd, aten_call(aten.sub.Tensor, Value(0, 0), Value(1, 0))], [x])
    oracle([even, aten_call(aten.sum.dim_IntList, Value(0, 0), [1])], [x], tolerance=0.1)


def test_parts_of_a_reduction_over_rows(oracle, aten_call):
    """Several short rows in a partition: what is reduced keeps its rows apart."""
    x = values(600, 32)
    half = aten_call(aten.slice.Tensor, X, 1, 16, 32)
    oracle([half, aten_call(aten._softmax.default, Value(0, 0), 1, False)], [x])
