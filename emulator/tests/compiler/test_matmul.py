"""Matrix products against torch: shapes that do not divide, transposed operands, batches, biases."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from neuroncore.graph import Value

aten = torch.ops.aten
X, Y, Z = (Value(-1, i) for i in range(3))
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
few = settings(max_examples=12, deadline=None, derandomize=True)
#: A product of K terms: torch accumulates in another order.
PRODUCTS = {torch.float32: 1e-3, torch.bfloat16: 0.2, torch.float16: 3e-2}
sizes = st.sampled_from([1, 3, 64, 128, 130, 300])


def values(shape, dtype, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def matrix(rows, cols, dtype, transposed, seed):
    return values((cols, rows), dtype, seed).t() if transposed else values((rows, cols), dtype, seed)


@few
@given(m=sizes, k=sizes, n=sizes, dtype=st.sampled_from(FLOATS), left=st.booleans(), right=st.booleans())
def test_mm(oracle, aten_call, m, k, n, dtype, left, right):
    inputs = [matrix(m, k, dtype, left, 1), matrix(k, n, dtype, right, 2)]
    oracle([aten_call(aten.mm.default, X, Y)], inputs, tolerance=PRODUCTS[dtype])


def test_more_columns_than_an_accumulator_and_more_depth_than_a_load(oracle, aten_call):
    inputs = [values((5, 2300), torch.bfloat16, 1) * 0.05, values((2300, 1700), torch.bfloat16, 2)]
    oracle([aten_call(aten.mm.default, X, Y)], inputs, tolerance=0.1)


@pytest.mark.parametrize("right", [False, True])
def test_more_depth_than_sbuf(oracle, aten_call, right):
    inputs = [values((5, 20_000), torch.bfloat16, 1) * 0.02, matrix(20_000, 130, torch.bfloat16, right, 2)]
    oracle([aten_call(aten.addmm.default, Z, X, Y)], [*inputs, values((130,), torch.bfloat16, 3)], tolerance=0.1)


def test_several_tiles_of_rows_that_are_turned_or_loaded_together(oracle, aten_call):
    y = values((300, 600), torch.bfloat16, 2)
    for turned in (False, True):
        oracle([aten_call(aten.mm.default, X, Y)], [matrix(900, 300, torch.bfloat16, turned, 1), y], tolerance=0.2)


@pytest.mark.parametrize("dtype", FLOATS)
def test_bmm(oracle, aten_call, dtype):
    x, y = values((3, 40, 64), dtype, 1), values((3, 64, 50), dtype, 2)
    oracle([aten_call(aten.bmm.default, X, Y)], [x, y], tolerance=PRODUCTS[dtype])
    oracle(
        [aten_call(aten.bmm.default, X, Y)],
        [x, values((3, 50, 64), dtype, 2).transpose(1, 2)],
        tolerance=PRODUCTS[dtype],
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bias", [True, False])
def test_linear(oracle, aten_call, dtype, bias):
    x, w, b = values((2, 9, 64), dtype, 1), values((130, 64), dtype, 2), values((130,), dtype, 3)
    args = (X, Y, Z) if bias else (X, Y)
    oracle([aten_call(aten.linear.default, *args)], [x, w, b][: len(args)], tolerance=PRODUCTS[dtype])


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0.5, 2.0), (0, 1)])
@pytest.mark.parametrize("bias", [(70,), (40, 70), (40, 1)])
def test_addmm(oracle, aten_call, beta, alpha, bias):
    inputs = [values(bias, torch.float32, 3), values((40, 90), torch.float32, 1), values((90, 70), torch.float32, 2)]
    oracle([aten_call(aten.addmm.default, X, Y, Z, beta=beta, alpha=alpha)], inputs, tolerance=1e-3)


def test_vectors(oracle, aten_call):
    a, x, y = values((40, 90), torch.float32, 1), values((90,), torch.float32, 2), values((90,), torch.float32, 3)
    oracle([aten_call(aten.mv.default, X, Y)], [a, x], tolerance=1e-3)
    oracle([aten_call(aten.dot.default, X, Y)], [x, y], tolerance=1e-3)


@pytest.mark.parametrize(
    ("left", "right"),
    [((40, 30), (30, 20)), ((2, 3, 40, 30), (30, 20)), ((2, 3, 40, 30), (2, 3, 30, 20)), ((30,), (30, 20))],
)
def test_matmul_of_any_rank(oracle, aten_call, left, right):
    oracle(
        [aten_call(aten.matmul.default, X, Y)],
        [values(left, torch.float32, 1), values(right, torch.float32, 2)],
        tolerance=1e-3,
    )
