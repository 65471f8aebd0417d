"""Elementwise functions the engines lack, recurrences, order and indices known beforehand, against torch."""

import pytest
import torch
from neuroncore.graph import Value

aten = torch.ops.aten
X, Y, Z = (Value(-1, i) for i in range(3))


def values(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize(
    ("name", "scale"),
    [("log1p", 1e-3), ("log1p", 0.9), ("expm1", 1e-3), ("expm1", 3.0), ("exp2", 3.0), ("log2", 0.0), ("log10", 0.0),
     ("erfc", 1.0), ("tan", 0.5), ("atan", 5.0), ("asin", 0.3), ("acos", 0.3), ("sinh", 2.0), ("sinh", 1e-3),
     ("cosh", 2.0), ("asinh", 5.0), ("round", 100.0), ("round", 1e7), ("elu", 2.0)],
)  # fmt: skip
def test_functions(oracle, aten_call, name, scale):
    x = (values(40, 30) * scale).clamp(-0.99, 1e9 if scale > 0.99 else 0.99) if scale else values(40, 30).abs() + 0.1
    x[0, :4] = torch.tensor([0.5, 0.0, 1.5, 2.5]) if name == "round" else x[0, :4]
    oracle([aten_call(getattr(aten, name).default, X)], [x])


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_rounded_division(oracle, aten_call, mode):
    x = torch.cat((values(20, 30) * 10, torch.arange(-300, 300).reshape(20, 30).float()))
    oracle([aten_call(aten.div.Tensor_mode, X, 7.0, rounding_mode=mode)], [x])
    whole = torch.arange(-300, 300, dtype=torch.int64)
    oracle([aten_call(aten.div.Scalar_mode, X, 7, rounding_mode=mode)], [whole])
    oracle([aten_call(aten.fmod.Scalar, X, 3.0)], [x])


def test_angle_and_length(oracle, aten_call):
    x, y = values(20, 30), values(20, 30, seed=1)
    oracle([aten_call(aten.atan2.default, X, Y)], [x, y])
    oracle([aten_call(aten.hypot.default, X, Y)], [x, y])


@pytest.mark.parametrize("shape", [(200, 40), (3, 9000), (7,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cumulative_sum(oracle, aten_call, shape, dtype):
    oracle([aten_call(aten.cumsum.default, X, -1)], [values(*shape, dtype=dtype) / 8], tolerance=5e-2)


def test_cumulative_sum_along_rows_and_product(oracle, aten_call):
    oracle([aten_call(aten.cumsum.default, X, 0)], [values(70, 5)], tolerance=1e-4)
    oracle([aten_call(aten.cumsum.default, X, 1)], [(values(5, 70) > 0).long()])
    oracle([aten_call(aten.cumprod.default, X, 1)], [values(5, 20) * 0.1 + 1], tolerance=1e-4)
    oracle([aten_call(aten.prod.dim_int, X, 1)], [values(5, 20) * 0.1 + 1], tolerance=1e-4)


@pytest.mark.parametrize("descending", [False, True])
def test_sort(oracle, aten_call, descending):
    x = torch.round(values(150, 37) * 4)  # with equal elements, which keep their order
    oracle([aten_call(aten.sort.stable, X, stable=True, dim=1, descending=descending)], [x])
    oracle([aten_call(aten.sort.stable, X, stable=True, dim=0, descending=descending)], [x])


def test_ranks(oracle, aten_call):
    x = values(20, 9)
    oracle([aten_call(aten.median.dim, X, 1)], [x])
    oracle([aten_call(aten.kthvalue.default, X, 3, 0, True)], [x])
    oracle([aten_call(aten.median.default, X)], [x])


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_extremes_are_the_first(oracle, aten_call, name):
    x = torch.round(values(140, 300) * 2)
    for dim in (0, 1, None):
        oracle([aten_call(getattr(aten, name).default, X, dim)], [x])


@pytest.mark.parametrize("scale", [2.0, 0.5, 1.625])
def test_known_indices_are_copies(oracle, aten_call, scale):
    count = int(8 * scale)
    index = [
        aten_call(aten.arange.start, 0, count),
        aten_call(aten._to_copy.default, Value(0, 0), dtype=torch.float32),
        aten_call(aten.mul.Tensor, Value(1, 0), 1 / scale),
        aten_call(aten._to_copy.default, Value(2, 0), dtype=torch.int64),
        aten_call(aten.unsqueeze.default, Value(3, 0), -1),
    ]
    x, g = values(2, 3, 8, 8), values(2, 3, count, count, seed=1)
    taken = oracle(
        [*index, aten_call(aten._unsafe_index.Tensor, X, [None, None, Value(4, 0), Value(3, 0)])], [x],
        outputs=[Value(5, 0)],
    )  # fmt: skip
    back = oracle(
        [*index, aten_call(aten._unsafe_index_put.default, X, [None, None, Value(4, 0), Value(3, 0)], Y, True)],
        [torch.zeros_like(x), g], outputs=[Value(5, 0)],
    )  # fmt: skip
    assert not taken.bound and not back.bound  # nothing is left that depends on data


def test_indices_with_axes_between(oracle, aten_call):
    x, i = values(6, 5, 7), torch.tensor([[4, 0, -1]])
    oracle([aten_call(aten.index.Tensor, X, [Y, None, Y])], [x, i])
    oracle([aten_call(aten.index_put.default, X, [Y, None, Y], Z, False)], [x, i[0], values(3, 5, seed=2)])
    oracle([aten_call(aten.index_put.default, X, [None, Y], Z, True)], [x, torch.tensor([4, 0, 4]), values(6, 3, 7)])


def test_rows_route_to_few_places(oracle, aten_call):
    """What a router of experts does: a handful of places in a short row."""
    x, i = values(140, 8), torch.stack([torch.randperm(8)[:2] for _ in range(140)])
    oracle([aten_call(aten.scatter.src, X, 1, Y, Z)], [x, i, values(140, 2, seed=1)])
    oracle([aten_call(aten.scatter_add.default, X, 1, Y, Z)], [x, i * 0 + 3, values(140, 2, seed=1)])
    oracle([aten_call(aten.scatter.value, X, 1, Y, 2.5)], [x, i])
    oracle([aten_call(aten.gather.default, X, 1, Y)], [x, i])


def test_integers_are_placed(oracle, aten_call):
    x, i = torch.arange(60).reshape(12, 5), torch.tensor([3, 1])
    oracle([aten_call(aten.index_put.default, X, [Y], Z)], [x, i, torch.full((2, 5), -7)])
    oracle([aten_call(aten.scatter.value, X, 1, Y, 9)], [x, torch.tensor([[3], [1]])])


def test_diagonals(oracle, aten_call):
    x = values(6, 9)
    for offset in (0, 2, -3):
        oracle([aten_call(aten.diagonal.default, X, offset), aten_call(aten.exp.default, Value(0, 0))], [x])
    oracle([aten_call(aten.diagonal_scatter.default, X, Y)], [x, values(6, seed=3)])
