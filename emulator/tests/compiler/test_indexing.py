"""Gathers, scatters, masks and orders against torch."""

import pytest
import torch
from neuroncore.graph import Value

aten = torch.ops.aten
X, Y, Z, W = (Value(-1, i) for i in range(4))


def values(shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def indices(shape, top, seed=0, low=0):
    return torch.randint(low, top, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_index_select(oracle, aten_call, dim):
    x = values((6, 7, 8))
    oracle([aten_call(aten.index_select.default, X, dim, Y)], [x, indices((5,), 6)])


def test_rows_of_64_bit_integers_move_whole(oracle, aten_call):
    x = indices((40, 9), 2**40, seed=1)
    oracle([aten_call(aten.index_select.default, X, 0, Y)], [x, indices((300,), 40)])


def test_index(oracle, aten_call):
    x = values((6, 7, 8))
    oracle([aten_call(aten.index.Tensor, X, [Y])], [x, indices((4, 3), 6, low=-6)])
    oracle([aten_call(aten.index.Tensor, X, [Y, Z])], [x, indices((5,), 6), indices((5,), 7)])
    oracle([aten_call(aten.index.Tensor, X, [None, Y])], [x, indices((5,), 7)])


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather(oracle, aten_call, dim):
    x = values((6, 7, 8))
    oracle([aten_call(aten.gather.default, X, dim, Y)], [x, indices((5, 6, 7), 6)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("padding", [-1, 3])
def test_embedding_gradient_adds_repeated_rows(oracle, aten_call, dtype, padding):
    g, index = values((2, 100, 40), dtype), indices((2, 100), 30)
    call = aten_call(aten.embedding_dense_backward.default, X, Y, 30, padding, False)
    oracle([call], [g, index], tolerance=1e-4 if dtype == torch.float32 else 0.1)


def test_embedding_gradient_of_wide_rows(oracle, aten_call):
    g, index = values((200, 700)), indices((200,), 150)
    oracle([aten_call(aten.embedding_dense_backward.default, X, Y, 150, -1, False)], [g, index], tolerance=1e-4)


def test_index_add_and_copy(oracle, aten_call):
    x, src = values((50, 3, 4)), values((200, 3, 4), seed=1)
    oracle([aten_call(aten.index_add.default, X, 0, Y, Z, alpha=2)], [x, indices((200,), 50), src], tolerance=1e-4)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1))[:20]
    oracle([aten_call(aten.index_copy.default, X, 0, Y, Z)], [x, order, src[:20]])


def test_index_put(oracle, aten_call):
    x, src = values((20, 6)), values((30, 6), seed=1)
    oracle([aten_call(aten.index_put.default, X, [Y], Z, True)], [x, indices((30,), 20), src], tolerance=1e-4)
    rows, columns = torch.arange(10), indices((10,), 6)
    oracle([aten_call(aten.index_put.default, X, [Y, Z], W)], [x, rows, columns, values((10,), seed=2)])


def test_scatter(oracle, aten_call):
    x, src, index = values((6, 9)), values((6, 5), seed=1), indices((6, 5), 9)
    oracle([aten_call(aten.scatter_add.default, X, 1, Y, Z)], [x, index, src], tolerance=1e-4)
    distinct = torch.stack([torch.randperm(9, generator=torch.Generator().manual_seed(i))[:5] for i in range(6)])
    oracle([aten_call(aten.scatter.src, X, 1, Y, Z)], [x, distinct, src])
    oracle([aten_call(aten.scatter.value, X, 1, Y, 2.5)], [x, index])


def test_gradients_of_parts(oracle, aten_call):
    oracle([aten_call(aten.select_backward.default, X, [3, 4, 5], 1, 2)], [values((3, 5))])
    oracle([aten_call(aten.slice_backward.default, X, [3, 8, 5], 1, 1, 7, 2)], [values((3, 3, 5))])


@pytest.mark.parametrize("name", ["triu", "tril"])
@pytest.mark.parametrize("diagonal", [0, 1, -3])
def test_triangles(oracle, aten_call, name, diagonal):
    oracle([aten_call(getattr(aten, name).default, X, diagonal)], [values((2, 9, 140))])
    oracle([aten_call(getattr(aten, name).default, X, diagonal)], [values((9, 7))])


@pytest.mark.parametrize(
    ("overload", "args", "dtype"),
    [("default", (5,), torch.int64), ("start", (3, 900), torch.int64),
     ("start_step", (2**30, 2**30 + 700, 7), torch.int64),
     ("start_step", (0.5, 9.0, 0.25), torch.float32), ("default", (300,), torch.float32),
     ("start_step", (10, -20, -3), torch.int64)],
)  # fmt: skip
def test_arange(oracle, aten_call, overload, args, dtype):
    oracle([aten_call(getattr(aten.arange, overload), *args, dtype=dtype)], [])


def test_eye_and_flip(oracle, aten_call):
    oracle([aten_call(aten.eye.m, 9, 12)], [])
    oracle([aten_call(aten.flip.default, X, [0, 2])], [values((3, 4, 5))])


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_of_extremes(oracle, aten_call, name):
    x = values((20, 30, 7))
    for dim in (0, 1, -1, None):
        oracle([aten_call(getattr(aten, name).default, X, dim)], [x])
    x = torch.zeros(5, 9)
    x[:, 3:6] = 1.0 if name == "argmax" else -1.0
    oracle([aten_call(getattr(aten, name).default, X, 1, True)], [x])


def test_extremes_with_their_places(oracle, aten_call):
    for op in (aten.max.dim, aten.min.dim):
        oracle([aten_call(op, X, 1)], [values((20, 30, 7))])
        oracle([aten_call(op, X, -1, True)], [values((140, 30))])


def test_cumulative_sums(oracle, aten_call):
    oracle([aten_call(aten.cumsum.default, X, -1)], [values((5, 200))], tolerance=1e-4)
    oracle([aten_call(aten.cumsum.default, X, 0)], [values((30, 4, 5))], tolerance=1e-4)
    oracle([aten_call(aten.cumsum.default, X, 1)], [(values((4, 60)) > 0).long()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("shape", "k", "dim"), [((4, 5), 3, -1), ((130, 40), 9, 1), ((3, 50, 7), 8, 1)])
@pytest.mark.parametrize("largest", [True, False])
def test_topk(oracle, aten_call, shape, k, dim, largest, dtype):
    count = torch.Size(shape).numel()
    # Distinct in every row also in bf16, or the order of equal values would be a matter of taste.
    x = (torch.randperm(count, generator=torch.Generator().manual_seed(0)).view(shape) % 251).to(dtype)
    x = x.argsort(dim).to(dtype) - 3
    oracle([aten_call(aten.topk.default, X, k, dim, largest)], [x])


def test_topk_of_a_row_longer_than_an_instruction_takes(oracle, aten_call):
    x = torch.randperm(40_000, generator=torch.Generator().manual_seed(1)).float().view(2, 20_000)
    oracle([aten_call(aten.topk.default, X, 11)], [x])
