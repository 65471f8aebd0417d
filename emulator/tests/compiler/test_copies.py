"""Views cost nothing; copies, concatenations and gathers move the right elements."""

import pytest
import torch
from neuroncore.graph import Value

aten = torch.ops.aten
X, Y = Value(-1, 0), Value(-1, 1)
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)


def values(shape, dtype, seed=0):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (x * 100).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_cat_and_stack(oracle, aten_call, dtype, dim):
    x, y = values((3, 5, 40), dtype, 1), values((3, 5, 40), dtype, 2)
    oracle([aten_call(aten.cat.default, [X, Y, X], dim)], [x, y])
    oracle([aten_call(aten.stack.default, [X, Y], dim)], [x, y])


@pytest.mark.parametrize("dtype", DTYPES)
def test_contiguous_copies_of_views(oracle, aten_call, dtype):
    clone = aten_call(aten.clone.default, Value(0, 0), memory_format=torch.contiguous_format)
    x = values((2, 10, 4, 16), dtype)
    oracle([aten_call(aten.permute.default, X, [0, 2, 1, 3]), clone], [x])
    oracle([aten_call(aten.slice.Tensor, X, 1, 2, 9, 3), clone], [x])
    oracle([aten_call(aten.select.int, X, 1, -1), clone], [x])
    oracle([aten_call(aten.transpose.int, X, 0, 3), clone], [x])
    oracle([aten_call(aten.expand.default, X, [3, 4, 6]), clone], [values((4, 1), dtype)])


def test_dense_copy_of_many_sizes(oracle, aten_call):
    for n in (1, 7, 128, 1009, 100003):
        oracle([aten_call(aten.clone.default, X)], [values((n,), torch.float32)])


def test_repeat_and_pad(oracle, aten_call):
    oracle([aten_call(aten.repeat.default, X, [2, 3, 1])], [values((5, 6), torch.float32)])
    oracle([aten_call(aten.constant_pad_nd.default, X, [1, 2, 0, 3], 0.5)], [values((5, 6), torch.float32)])


def test_embedding_gathers_rows(oracle, aten_call):
    table = values((37, 96), torch.bfloat16)
    index = torch.randint(0, 37, (5, 70), generator=torch.Generator().manual_seed(1))
    oracle([aten_call(aten.embedding.default, X, Y)], [table, index])


def test_a_graph_of_views_has_no_instructions(graph_of, aten_call):
    from neuroncore.runtime import compile_graph

    calls = [
        aten_call(aten.t.default, X),
        aten_call(aten.unsqueeze.default, Value(0, 0), 0),
        aten_call(aten.view.default, X, [512, 4]),
    ]
    executable = compile_graph(graph_of(calls, [values((4, 512), torch.float32)], [Value(1, 0), Value(2, 0)]))
    assert (executable.program_ns, len(executable.instructions), executable.bytes_read) == (0, 0, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool])
@pytest.mark.parametrize("shape", [(130, 300), (1500, 20), (20, 1100), (64, 64)])
def test_large_transpositions_turn_on_chip(oracle, aten_call, dtype, shape):
    clone = aten_call(aten.clone.default, Value(0, 0), memory_format=torch.contiguous_format)
    executable = oracle([aten_call(aten.t.default, X), clone], [values(shape, dtype)])
    if shape[0] * shape[1] >= 4096:
        assert "nc_transpose" in executable.instructions.column("opcode").to_pylist()


def test_64_bit_copies_are_exact(oracle, aten_call):
    x = torch.arange(2**60, 2**60 + 6000).reshape(60, 100)
    clone = aten_call(aten.clone.default, Value(0, 0), memory_format=torch.contiguous_format)
    oracle([aten_call(aten.t.default, X), clone], [x])
    oracle([aten_call(aten.cat.default, [X, X], 1)], [x])
