"""Whole graphs: fused as far as the layouts permit, and right."""

import pytest
import torch
from neuroncore.graph import Value

aten = torch.ops.aten


def values(shape, dtype, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rms_norm(call, last=-1):
    """The walk-through's naive RMSNorm: six ATen ops."""
    x, w = Value(-1, 0), Value(-1, 1)
    return [
        call(aten.mul.Tensor, x, x),
        call(aten.mean.dim, Value(0, 0), [last], True),
        call(aten.add.Tensor, Value(1, 0), 1e-6),
        call(aten.rsqrt.default, Value(2, 0)),
        call(aten.mul.Tensor, x, Value(3, 0)),
        call(aten.mul.Tensor, Value(4, 0), w),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(4, 512), (300, 96), (2, 70, 64)])
def test_rms_norm_reads_its_input_once_and_writes_once(oracle, aten_call, shape, dtype):
    x, w = values(shape, dtype, 1), values(shape[-1:], dtype, 2)
    executable = oracle(rms_norm(aten_call), [x, w])
    size = x.element_size()
    tiles_of_weight = min(128, x.numel() // shape[-1])  # the weight is repeated for every partition
    assert executable.bytes_written == x.numel() * size
    assert executable.bytes_read == x.numel() * size + tiles_of_weight * w.numel() * size


def test_compiled_rms_norm_beats_its_ops_one_by_one(graph_of, aten_call):
    from neuroncore.runtime import compile_graph

    x, w = values((512, 512), torch.bfloat16, 1), values((512,), torch.bfloat16, 2)
    whole = compile_graph(graph_of(rms_norm(aten_call), [x, w]))
    row = values((512, 1), torch.bfloat16)
    a, b = Value(-1, 0), Value(-1, 1)
    singles = [
        ([aten_call(aten.mul.Tensor, a, a)], [x]),
        ([aten_call(aten.mean.dim, a, [-1], True)], [x]),
        ([aten_call(aten.add.Tensor, a, 1e-6)], [row]),
        ([aten_call(aten.rsqrt.default, a)], [row.abs()]),
        ([aten_call(aten.mul.Tensor, a, b)], [x, row]),
        ([aten_call(aten.mul.Tensor, a, b)], [x, w]),
    ]
    parts = [compile_graph(graph_of(calls, inputs)) for calls, inputs in singles]
    assert whole.program_ns < sum(p.program_ns for p in parts) / 2
    assert whole.bytes_read < sum(p.bytes_read for p in parts) / 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softmax_written_out(oracle, aten_call, dtype):
    x = Value(-1, 0)
    calls = [
        aten_call(aten.amax.default, x, [-1], True),
        aten_call(aten.sub.Tensor, x, Value(0, 0)),
        aten_call(aten.exp.default, Value(1, 0)),
        aten_call(aten.sum.dim_IntList, Value(2, 0), [-1], True),
        aten_call(aten.div.Tensor, Value(2, 0), Value(3, 0)),
    ]
    executable = oracle(calls, [values((200, 96), dtype)])
    size = 4 if dtype == torch.float32 else 2
    assert executable.bytes_read == executable.bytes_written == 200 * 96 * size


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mlp_with_bias_and_gelu(oracle, aten_call, dtype):
    x, w1, b1, w2, b2 = (Value(-1, i) for i in range(5))
    calls = [
        aten_call(aten.t.default, w1),
        aten_call(aten.addmm.default, b1, x, Value(0, 0)),
        aten_call(aten.gelu.default, Value(1, 0)),
        aten_call(aten.t.default, w2),
        aten_call(aten.addmm.default, b2, Value(2, 0), Value(3, 0)),
    ]
    scale = 0.1
    inputs = [values((140, 96), dtype, 1), values((200, 96), dtype, 2) * scale, values((200,), dtype, 3)]
    inputs += [values((96, 200), dtype, 4) * scale, values((96,), dtype, 5)]
    executable = oracle(calls, inputs, tolerance=5e-2 if dtype == torch.bfloat16 else 1e-4)
    # Bias and gelu run on the way out of PSUM: between the two products there is one temporary.
    assert [t.kind for t in executable.program.tensors].count("temporary") == 1


def test_much_arithmetic_behind_a_product(oracle, aten_call):
    """GpSimd helps with it, but not with what is still in PSUM."""
    x, w, a, b = (Value(-1, i) for i in range(4))
    calls = [
        aten_call(aten.mm.default, x, w),
        aten_call(aten.mul.Tensor, Value(0, 0), a),
        aten_call(aten.mul.Tensor, Value(0, 0), b),
        aten_call(aten.add.Tensor, Value(1, 0), Value(2, 0)),
        aten_call(aten.mul.Tensor, Value(3, 0), a),
    ]
    inputs = [values((130, 32), torch.float32, 1), values((32, 700), torch.float32, 2)]
    inputs += [values((130, 700), torch.float32, seed) for seed in (3, 4)]
    oracle(calls, inputs, tolerance=1e-4)


def test_attention_scores(oracle, aten_call):
    q, k, v = (Value(-1, i) for i in range(3))
    calls = [
        aten_call(aten.transpose.int, k, -2, -1),
        aten_call(aten.bmm.default, q, Value(0, 0)),
        aten_call(aten.mul.Scalar, Value(1, 0), 0.125),
        aten_call(aten._softmax.default, Value(2, 0), -1, False),
        aten_call(aten.bmm.default, Value(3, 0), v),
    ]
    oracle(calls, [values((2, 70, 64), torch.float32, i) for i in range(3)], tolerance=1e-4)


def test_inputs_updated_by_a_graph(oracle, aten_call):
    p, g = Value(-1, 0), Value(-1, 1)
    calls = [aten_call(aten.mul.Scalar, g, 0.1), aten_call(aten.sub.Tensor, p, Value(0, 0))]
    executable = oracle(
        calls,
        [values((40, 50), torch.float32, 1), values((40, 50), torch.float32, 2)],
        outputs=(),
        mutates=((0, Value(1, 0)),),
    )
    assert [t.kind for t in executable.program.tensors] == ["inout", "input"]


def test_two_results_of_one_pass(oracle, aten_call):
    x = Value(-1, 0)
    calls = [aten_call(aten.exp.default, x), aten_call(aten.neg.default, Value(0, 0))]
    executable = oracle(calls, [values((40, 50), torch.float32)], outputs=(Value(0, 0), Value(1, 0)))
    assert executable.bytes_read == 40 * 50 * 4
