"""Reductions, softmax and norms against torch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from neuroncore.graph import Value

aten = torch.ops.aten
X, Y, Z, W = (Value(-1, i) for i in range(4))
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
few = settings(max_examples=10, deadline=None, derandomize=True)
#: Sums of many rounded numbers differ by more than one unit.
SUMS = {torch.float32: 1e-4, torch.bfloat16: 0.2, torch.float16: 2e-2}

cases = st.sampled_from(
    [((4, 512), (1,)), ((4, 512), (0,)), ((4, 512), (0, 1)), ((130, 33), (-1,)), ((130, 33), (0,)),
     ((6, 5, 40), (1, 2)),
     ((6, 5, 40), (0,)), ((6, 5, 40), (1,)), ((6, 5, 40), (0, 2)), ((300,), (0,)), ((3, 1, 4), (1,)), ((2, 9000), (1,))]
)  # fmt: skip


def values(shape, dtype, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("name", ["sum.dim_IntList", "mean.dim", "amax.default", "amin.default"])
@few
@given(case=cases, keepdim=st.booleans(), dtype=st.sampled_from(FLOATS))
def test_over_some_axes(oracle, aten_call, name, case, keepdim, dtype):
    shape, axes = case
    packet, overload = name.split(".")
    op = getattr(getattr(aten, packet), overload)
    oracle(
        [aten_call(op, X, list(axes), keepdim)],
        [values(shape, dtype)],
        tolerance=SUMS[dtype] if packet == "sum" else None,
    )


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_over_everything(oracle, aten_call, name):
    oracle([aten_call(getattr(aten, name).default, X)], [values((70, 90), torch.float32)], tolerance=1e-4)


def test_of_a_transposed_tensor(oracle, aten_call):
    x = values((90, 70), torch.float32).t()
    oracle([aten_call(aten.sum.dim_IntList, X, [1])], [x], tolerance=1e-4)
    oracle([aten_call(aten.amax.default, X, [0])], [x])


def test_var_and_norm(oracle, aten_call):
    x = values((30, 100), torch.float32)
    oracle([aten_call(aten.var.correction, X, [1], correction=1, keepdim=True)], [x], tolerance=1e-4)
    oracle([aten_call(aten.linalg_vector_norm.default, X, 2, [1])], [x], tolerance=1e-4)


def test_any_and_all(oracle, aten_call):
    x = values((30, 20), torch.float32) > 1
    oracle([aten_call(aten.any.dim, X, 1)], [x])
    oracle([aten_call(aten.all.default, X)], [x])


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
@few
@given(
    shape=st.sampled_from([(4, 512), (200, 65), (2, 3, 40)]),
    dim=st.sampled_from([-1, 0, 1]),
    dtype=st.sampled_from(FLOATS),
)
def test_softmax(oracle, aten_call, name, shape, dim, dtype):
    oracle([aten_call(getattr(aten, name).default, X, dim, False)], [values(shape, dtype)])


@pytest.mark.parametrize("name", ["_softmax_backward_data", "_log_softmax_backward_data"])
def test_softmax_gradients(oracle, aten_call, name):
    y = (
        torch.log_softmax(values((20, 30), torch.float32), -1)
        if "log" in name
        else torch.softmax(values((20, 30), torch.float32), -1)
    )
    oracle([aten_call(getattr(aten, name).default, X, Y, -1, torch.float32)], [values((20, 30), torch.float32, 1), y])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(4, 512), (150, 96), (2, 7, 64)])
def test_layer_norm(oracle, aten_call, shape, dtype):
    x, w, b = values(shape, dtype, 1), values(shape[-1:], dtype, 2), values(shape[-1:], dtype, 3)
    oracle([aten_call(aten.native_layer_norm.default, X, [shape[-1]], Y, Z, 1e-5)], [x, w, b])
    oracle([aten_call(aten.native_layer_norm.default, X, [shape[-1]], None, None, 1e-5)], [x])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(4, 512), (150, 96), (2, 7, 64)])
@pytest.mark.parametrize("eps", [1e-6, None])
def test_rms_norm(oracle, aten_call, shape, dtype, eps):
    x, w = values(shape, dtype, 1), values(shape[-1:], dtype, 2)
    oracle([aten_call(aten._fused_rms_norm.default, X, [shape[-1]], Y, eps)], [x, w])


def test_layer_norm_gradient(oracle, aten_call):
    x, w, b, g = (values(s, torch.float32, i) for i, s in enumerate([(50, 64), (64,), (64,), (50, 64)]))
    _, mean, rstd = aten.native_layer_norm.default(x, [64], w, b, 1e-5)
    mean_value, rstd_value, weight, bias = (Value(-1, i) for i in range(2, 6))
    call = aten_call(
        aten.native_layer_norm_backward.default, X, Y, [64], mean_value, rstd_value, weight, bias, [True, True, True]
    )
    oracle([call], [g, x, mean, rstd, w, b], tolerance=2e-4)


@pytest.mark.parametrize("name", ["sum.default", "max.default", "mean.default"])
@pytest.mark.parametrize("shape", [(300, 400), (1, 70000)])
def test_large_totals_use_all_partitions(oracle, aten_call, name, shape):
    packet, overload = name.split(".")
    executable = oracle(
        [aten_call(getattr(getattr(aten, packet), overload), X)], [values(shape, torch.float32)], tolerance=2e-3
    )
    assert executable.program_ns < 30_000


@pytest.mark.parametrize("axes", [[0], [0, 2], [1], [0, 1]])
@pytest.mark.parametrize("name", ["sum.dim_IntList", "amax.default"])
def test_of_large_tensors_over_leading_axes(oracle, aten_call, name, axes):
    packet, overload = name.split(".")
    x = values((20, 30, 40), torch.float32)
    oracle([aten_call(getattr(getattr(aten, packet), overload), X, axes)], [x], tolerance=1e-3)


def test_softmax_of_large_tensors_over_a_leading_axis(oracle, aten_call):
    oracle([aten_call(aten._softmax.default, X, 0, False)], [values((100, 200), torch.float32)])


def test_large_transposed_operand(oracle, aten_call):
    oracle(
        [aten_call(aten.add.Tensor, X, Y)],
        [values((200, 100), torch.float32), values((100, 200), torch.float32, 1).t()],
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(6000, 3), (512, 64), (4, 300, 40)])
def test_many_short_rows_share_partitions(oracle, aten_call, shape, dtype):
    x = values(shape, dtype)
    executable = oracle([aten_call(aten._softmax.default, X, -1, False)], [x])
    assert executable.instructions.num_rows < 60
    oracle([aten_call(aten.mean.dim, X, [-1], True)], [x])
    oracle([aten_call(aten._log_softmax.default, X, -1, False)], [x])
    w = values(shape[-1:], dtype, 1)
    oracle([aten_call(aten._fused_rms_norm.default, X, [shape[-1]], Y, 1e-6)], [x, w])
    oracle([aten_call(aten.native_layer_norm.default, X, [shape[-1]], Y, Y, 1e-6)], [x, w])


def test_short_rows_with_values_per_row(oracle, aten_call):
    x, row = values((6000, 4), torch.float32), values((6000, 1), torch.float32, 1)
    calls = [
        aten_call(aten.mul.Tensor, X, Y),
        aten_call(aten.sum.dim_IntList, Value(0, 0), [1], True),
        aten_call(aten.where.self, Z, Value(0, 0), Value(1, 0)),
    ]
    oracle(calls, [x, row, x > 0], outputs=(Value(1, 0), Value(2, 0)))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("shape", "dim"), [((5, 37), 1), ((1000,), 0), ((6, 9, 4), (0, 2)), ((3, 1), 1)])
def test_sums_of_large_integers_are_exact(oracle, aten_call, shape, dim, dtype):
    x = torch.randint(-(2**26), 2**26, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    x = x // x.numel()
    x.view(-1)[0] = 2**24 + 1
    dims = [dim] if isinstance(dim, int) else list(dim)
    oracle([aten_call(aten.sum.dim_IntList, X, dims)], [x])
