"""Elementwise ops against torch: every function, dtype and way two operands can lie in memory."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from neuroncore.graph import Value

aten = torch.ops.aten
X, Y, Z = (Value(-1, i) for i in range(3))
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
few = settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

shapes = st.sampled_from([(1,), (7,), (4, 512), (3, 5), (130, 9), (1009,), (2, 3, 40), (1, 1, 1), (128, 64)])
dtypes = st.sampled_from(FLOATS)


def values(shape, dtype, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def strided(shape, dtype, how, seed):
    """A tensor of `shape` that is dense, transposed, every second column, or broadcast along an axis."""
    if how == "transposed" and len(shape) > 1:
        return values((*shape[:-2], shape[-1], shape[-2]), dtype, seed).transpose(-1, -2)
    if how == "every second":
        return values((*shape[:-1], 2 * shape[-1]), dtype, seed)[..., ::2]
    if how == "row":
        return values((*shape[:-1], 1), dtype, seed)
    if how == "column":
        return values(shape[-1:], dtype, seed)
    if how == "single":
        return values((), dtype, seed)
    return values(shape, dtype, seed)


layouts = st.sampled_from(["dense", "transposed", "every second", "row", "column", "single"])
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"]


@pytest.mark.parametrize("name", BINARY)
@few
@given(shape=shapes, dtype=dtypes, left=layouts, right=layouts)
def test_two_tensors(oracle, aten_call, name, shape, dtype, left, right):
    packet = getattr(aten, name)
    op = packet.default if name in ("maximum", "minimum") else packet.Tensor
    x, y = strided(shape, dtype, left, 1), strided(shape, dtype, right, 2)
    if name == "div":
        y = y.abs() + 0.5
    oracle([aten_call(op, X, Y)], [x, y])


@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh", "silu", "gelu", "relu", "neg", "abs", "erf", "sin", "sign"])
@few
@given(shape=shapes, dtype=dtypes, how=layouts)
def test_functions(oracle, aten_call, name, shape, dtype, how):
    oracle([aten_call(getattr(aten, name).default, X)], [strided(shape, dtype, how, 3)])


@pytest.mark.parametrize("name", ["log", "sqrt", "rsqrt", "reciprocal"])
@few
@given(shape=shapes, dtype=dtypes, how=layouts)
def test_functions_of_positive_numbers(oracle, aten_call, name, shape, dtype, how):
    oracle([aten_call(getattr(aten, name).default, X)], [strided(shape, dtype, how, 4).abs() + 0.1])


@pytest.mark.parametrize("scalar", [0.5, 2, -3.0])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "lt", "ge"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_tensor_and_a_number(oracle, aten_call, name, scalar, dtype):
    oracle([aten_call(getattr(aten, name).Scalar, X, scalar)], [values((5, 33), dtype)])


@pytest.mark.parametrize("exponent", [2, 3, 0.5, -1, -0.5, 4, 0, 1.7])
def test_powers(oracle, aten_call, exponent):
    oracle([aten_call(aten.pow.Tensor_Scalar, X, exponent)], [values((5, 33), torch.float32).abs() + 0.1])


def test_alpha_scales_the_second_operand(oracle, aten_call):
    x, y = values((6, 10), torch.float32, 1), values((6, 10), torch.float32, 2)
    oracle([aten_call(aten.add.Tensor, X, Y, alpha=2.5)], [x, y])
    oracle([aten_call(aten.sub.Tensor, X, Y, alpha=3)], [x, y])
    oracle([aten_call(aten.rsub.Scalar, X, 1.5)], [x])


@pytest.mark.parametrize("bounds", [(-0.5, 0.5), (None, 0.2), (0.1, None)])
def test_clamp(oracle, aten_call, bounds):
    oracle([aten_call(aten.clamp.default, X, *bounds)], [values((9, 20), torch.bfloat16)])


@few
@given(dtype=dtypes, left=layouts, right=layouts)
def test_where_chooses_by_mask(oracle, aten_call, dtype, left, right):
    mask = values((12, 30), torch.float32) > 0
    x, y = strided((12, 30), dtype, left, 1), strided((12, 30), dtype, right, 2)
    oracle([aten_call(aten.where.self, X, Y, Z)], [mask, x, y])


def test_masked_fill(oracle, aten_call):
    mask = values((30,), torch.float32) > 0
    oracle([aten_call(aten.masked_fill.Scalar, X, Y, -1e4)], [values((12, 30), torch.float32), mask])


def test_integers_are_exact_beyond_24_bits(oracle, aten_call):
    x = torch.arange(2**28, 2**28 + 300, dtype=torch.int32).reshape(10, 30)
    oracle([aten_call(aten.add.Tensor, X, Y)], [x, torch.full((10, 30), 3, dtype=torch.int32)])
    oracle([aten_call(aten.add.Scalar, X, 1)], [x])


def test_64_bit_integers_are_computed_in_32_and_stored_in_64(oracle, aten_call):
    x = torch.arange(-150, 150, dtype=torch.int64).reshape(10, 30)
    oracle([aten_call(aten.mul.Tensor, X, Y)], [x, x.flip(0)])
    oracle([aten_call(aten.lt.Scalar, X, 3)], [x])


def test_casts(oracle, aten_call):
    x = values((20, 40), torch.float32)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        oracle([aten_call(aten._to_copy.default, X, dtype=dtype)], [x])
    oracle([aten_call(aten._to_copy.default, X, dtype=torch.float32)], [x.to(torch.bfloat16)])


def test_in_place_writes_the_first_input(oracle, aten_call):
    x, y = values((40, 50), torch.float32, 1), values((40, 50), torch.float32, 2)
    executable = oracle([aten_call(aten.mul_.Tensor, X, Y)], [x, y])
    assert [t.kind for t in executable.program.tensors] == ["inout", "input"]
    oracle([aten_call(aten.add_.Scalar, X, 2.0)], [values((40, 50), torch.bfloat16)])
    oracle([aten_call(aten.fill_.Scalar, X, 3.0)], [values((40, 50), torch.bfloat16)])


def test_in_place_reads_itself_through_another_view(oracle, aten_call):
    x = values((40, 40), torch.float32)
    graph_input = x.clone()
    transposed = Value(0, 0)
    oracle(
        [aten_call(aten.t.default, X), aten_call(aten.add.Tensor, X, transposed)],
        [graph_input],
        mutates=((0, Value(1, 0)),),
    )


def test_constants(oracle, aten_call):
    oracle([aten_call(aten.full.default, [5, 7], 2.5, dtype=torch.bfloat16)], [values((1,), torch.float32)])
    oracle([aten_call(aten.zeros_like.default, X)], [values((300, 5), torch.float32)])


def test_foreach_works_on_lists(oracle, aten_call):
    x, y = values((40, 50), torch.float32, 1), values((7,), torch.float32, 2)
    oracle([aten_call(aten._foreach_mul.Scalar, [X, Y], 2.0)], [x, y])
    oracle([aten_call(aten._foreach_add.List, [X, Y], [X, Y], alpha=0.5)], [x, y])


@pytest.mark.parametrize("name", ["sigmoid_backward", "tanh_backward"])
def test_gradients_of_activations(oracle, aten_call, name):
    g, y = values((30, 20), torch.float32, 1), torch.sigmoid(values((30, 20), torch.float32, 2))
    oracle([aten_call(getattr(aten, name).default, X, Y)], [g, y])


@pytest.mark.parametrize("name", ["silu_backward", "gelu_backward"])
def test_gradients_of_smooth_units(oracle, aten_call, name):
    oracle(
        [aten_call(getattr(aten, name).default, X, Y)],
        [values((30, 20), torch.float32, 1), values((30, 20), torch.float32, 2)],
    )


def test_gradient_of_relu(oracle, aten_call):
    g, x = values((30, 20), torch.float32, 1), values((30, 20), torch.float32, 2)
    oracle([aten_call(aten.threshold_backward.default, X, Y, 0)], [g, x])


def test_out_variants_write_the_given_tensor(oracle, aten_call):
    x, y, out = (values((30, 20), torch.float32, i) for i in range(3))
    executable = oracle([aten_call(aten.mul.out, X, Y, out=Z)], [x, y, out], mutates=((2, Value(0, 0)),))
    assert [t.kind for t in executable.program.tensors] == ["input", "input", "inout"]
