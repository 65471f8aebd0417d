"""Convolutions, batch normalization and pooling against torch."""

import pytest
import torch
from neuroncore.graph import Value

aten = torch.ops.aten
X, Y, Z, W, V = (Value(-1, i) for i in range(5))

#: images, channels, outputs, height, width, filter, stride, padding, dilation
CASES = [
    (2, 3, 8, 12, 10, 3, 1, 1, 1),
    (2, 3, 8, 13, 11, 7, 2, 3, 1),
    (1, 16, 20, 9, 9, 1, 1, 0, 1),
    (3, 130, 140, 6, 5, 3, 1, 1, 1),
    (1, 8, 8, 30, 40, 3, 2, 1, 1),
    (1, 4, 6, 16, 16, 3, 1, 2, 2),
    (1, 4, 6, 9, 9, 2, 2, 0, 1),
]


def values(shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_convolution(oracle, aten_call, case, dtype):
    n, c, o, h, w, k, s, p, d = case
    x, f, bias = values((n, c, h, w), dtype), values((o, c, k, k), dtype, 1), values((o,), dtype, 2)
    rest = ([s, s], [p, p], [d, d], False, [0, 0], 1)
    tolerance = 2e-4 if dtype == torch.float32 else 0.1
    oracle([aten_call(aten.convolution.default, X, Y, Z, *rest)], [x, f, bias], tolerance=tolerance)


def test_convolution_in_groups_and_over_lines(oracle, aten_call):
    x, f = values((2, 8, 6, 6)), values((4, 4, 3, 3), seed=1)
    oracle([aten_call(aten.convolution.default, X, Y, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 2)], [x, f],
           tolerance=1e-4)  # fmt: skip
    x, f = values((2, 8, 30)), values((4, 8, 5), seed=1)
    oracle([aten_call(aten.convolution.default, X, Y, None, [2], [2], [1], False, [0], 1)], [x, f], tolerance=1e-4)


def test_large_planes_are_cut_in_blocks(oracle, aten_call):
    x, f = values((1, 4, 20, 700)), values((4, 4, 3, 3), seed=1)
    oracle([aten_call(aten.convolution.default, X, Y, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)], [x, f],
           tolerance=1e-4)  # fmt: skip


def test_transposed_convolution(oracle, aten_call):
    x, f, bias = values((2, 6, 5, 7)), values((6, 4, 3, 3), seed=1), values((4,), seed=2)
    rest = ([2, 2], [1, 1], [1, 1], True, [1, 1], 1)
    oracle([aten_call(aten.convolution.default, X, Y, Z, *rest)], [x, f, bias], tolerance=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_gradients(oracle, aten_call, case):
    n, c, o, h, w, k, s, p, d = case
    x, f = values((n, c, h, w)), values((o, c, k, k), seed=1)
    rest = ([s, s], [p, p], [d, d], False, [0, 0], 1)
    g = values(aten.convolution.default(x, f, None, *rest).shape, seed=2)
    call = aten_call(aten.convolution_backward.default, X, Y, Z, [o], *rest, [True, True, True])
    oracle([call], [g, x, f], tolerance=1e-3)


@pytest.mark.parametrize("shape", [(4, 6, 5, 7), (3, 20), (2, 130, 4)])
def test_batch_norm(oracle, aten_call, shape):
    channels = shape[1]
    x, w, b = values(shape), values((channels,), seed=1), values((channels,), seed=2)
    mean, var = values((channels,), seed=3), values((channels,), seed=4).abs() + 0.5
    for training in (True, False):
        call = aten_call(aten.native_batch_norm.default, X, Y, Z, W, V, training, 0.1, 1e-5)
        outputs = tuple(Value(0, i) for i in range(3 if training else 1))
        oracle([call], [x, w, b, mean.clone(), var.clone()], outputs=outputs, tolerance=1e-4)


def test_batch_norm_gradient(oracle, aten_call):
    x, w, g = values((4, 6, 5, 7)), values((6,), seed=1), values((4, 6, 5, 7), seed=2)
    _, mean, rstd = aten.native_batch_norm.default(x, w, None, None, None, True, 0.1, 1e-5)
    names = [Value(-1, i) for i in range(5)]
    call = aten_call(
        aten.native_batch_norm_backward.default, *names[:3], None, None, *names[3:], True, 1e-5, [True, True, True]
    )
    oracle([call], [g, x, w, mean, rstd], tolerance=2e-4)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [((3, 3), (2, 2), (1, 1)), ((2, 2), (), (0, 0))])
def test_max_pool(oracle, aten_call, kernel, stride, padding):
    x = values((2, 3, 12, 14))
    oracle([aten_call(aten.max_pool2d_with_indices.default, X, kernel, stride, padding)], [x])
    y, indices = aten.max_pool2d_with_indices.default(x, kernel, stride, padding)
    g = values(y.shape, seed=3)
    rest = (kernel, stride, padding, (1, 1), False)
    oracle([aten_call(aten.max_pool2d_with_indices_backward.default, X, Y, *rest, Z)], [g, x, indices], tolerance=1e-4)


def test_average_pools(oracle, aten_call):
    x = values((2, 3, 12, 12))
    oracle([aten_call(aten.avg_pool2d.default, X, [3, 3], [2, 2], [1, 1])], [x])
    oracle([aten_call(aten._adaptive_avg_pool2d.default, X, [4, 3])], [x])
    g = values((2, 3, 4, 3), seed=1)
    oracle([aten_call(aten._adaptive_avg_pool2d_backward.default, X, Y)], [g, x])


@pytest.mark.parametrize("groups", [3, 6, 12])
@pytest.mark.parametrize("kernel", [1, 3])
def test_groups(oracle, aten_call, groups, kernel):
    """Depthwise ones and wider: forward, both gradients; and one whose groups take more than one product."""
    x, w = values((2, 12, 7, 6)), values((24, 12 // groups, kernel, kernel), seed=1)
    given = [1], [kernel // 2], [1]
    oracle([aten_call(aten.convolution.default, X, Y, None, *given, False, [0], groups)], [x, w], tolerance=1e-4)
    g = values((2, 24, 7, 6), seed=2)
    oracle(
        [aten_call(aten.convolution_backward.default, Z, X, Y, [24], *given, False, [0], groups, [True] * 3)],
        [x, w, g], tolerance=1e-3,
    )  # fmt: skip


def test_many_depthwise_channels(oracle, aten_call):
    x, w = values((1, 160, 5, 5)), values((160, 1, 3, 3), seed=1)
    oracle([aten_call(aten.convolution.default, X, Y, None, [1], [1], [1], False, [0], 160)], [x, w], tolerance=1e-4)


@pytest.mark.parametrize("kernel", [2, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_patches_are_a_product(oracle, aten_call, kernel, bias):
    x, w, column = values((2, 3, 8, 12)), values((10, 3, kernel, kernel), seed=1), values((10,), seed=3)
    given = [kernel], [0], [1]
    oracle(
        [aten_call(aten.convolution.default, X, Y, Z if bias else None, *given, False, [0], 1)],
        [x, w, column] if bias else [x, w], tolerance=1e-4,
    )  # fmt: skip
    g = values((2, 10, 8 // kernel, 12 // kernel), seed=2)
    oracle(
        [aten_call(aten.convolution_backward.default, Z, X, Y, [10], *given, False, [0], 1, [True, True, True])],
        [x, w, g], outputs=[Value(0, i) for i in range(3)], tolerance=1e-3,
    )  # fmt: skip


def test_gradients_of_a_transposed_convolution(oracle, aten_call):
    x, w = values((2, 5, 6, 6)), values((5, 4, 3, 3), seed=1)
    given = [2], [1], [1]
    g = values((2, 4, 12, 12), seed=2)
    oracle(
        [aten_call(aten.convolution_backward.default, Z, X, Y, [4], *given, True, [1], 1, [True, True, True])],
        [x, w, g], outputs=[Value(0, i) for i in range(3)], tolerance=1e-3,
    )  # fmt: skip
