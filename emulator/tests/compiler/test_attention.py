"""Attention and its gradient against torch."""

import pytest
import torch
from neuroncore.compiler import attend_forward, attention
from neuroncore.errors import VerifyError
from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.runtime import compile_graph

aten = torch.ops.aten
X, Y, Z, W = (Value(-1, i) for i in range(4))


def values(shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def reference(q, k, v, bias=None, dropout=0.0, causal=False, debug=False, scale=None):
    """What the fused op returns, computed by torch's plain functions."""
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = (q.float() @ k.float().transpose(-1, -2)) * factor
    if bias is not None:
        scores = scores.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else scores + bias
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    out = (torch.softmax(scores, -1).to(q.dtype).float() @ v.float()).to(q.dtype)
    return out, torch.logsumexp(scores, -1)


class Fused:
    """Stands in for the overload, which has no CPU kernel."""

    def __init__(self, name, function):
        self.name, self.function = name, function

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    def __str__(self):
        return self.name


def safe(q, k, v, bias):
    out, rows = reference(q, k, v, bias)
    return out.nan_to_num(), rows


SAFE = Fused("aten._scaled_dot_product_fused_attention_overrideable.default", safe)
FORWARD = Fused("aten._scaled_dot_product_fused_attention_overrideable.default", reference)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(1, 2, 40, 16), (2, 3, 130, 64), (1, 1, 70, 200)])
def test_forward(oracle, aten_call, shape, causal, dtype):
    q, k, v = (values(shape, dtype, i) for i in range(3))
    oracle([aten_call(FORWARD, X, Y, Z, None, 0.0, causal)], [q, k, v])


@pytest.mark.parametrize("room", ["for two heads", "for one head"])
@pytest.mark.parametrize("heads", [(8, 8), (16, 8)])
def test_forward_of_a_loop_over_heads(oracle, aten_call, monkeypatch, heads, room):
    monkeypatch.setattr(attend_forward, "_ROUND", 2)
    if room == "for one head":
        monkeypatch.setattr(attend_forward, "WORK_BYTES", 1 << 20)
    q, k, v = (values((2, n, 140, 16), seed=i) for i, n in enumerate((heads[0], heads[1], heads[1])))
    oracle([aten_call(FORWARD, X, Y, Z, None, 0.0, True)], [q, k, v])


def test_forward_of_heads_that_lie_between_rows(oracle, aten_call):
    q, k, v = (values((2, 33, 4, 16), seed=i).transpose(1, 2) for i in range(3))
    oracle([aten_call(FORWARD, X, Y, Z, None, 0.0, True, scale=0.3)], [q, k, v])


@pytest.mark.parametrize("causal", [False, True])
def test_forward_of_rows_that_share_partitions(oracle, aten_call, causal):
    q, k, v = (values((1, 1, 2048, 8), torch.bfloat16, i) for i in range(3))
    oracle([aten_call(FORWARD, X, Y, Z, None, 0.0, causal)], [q, k, v])


def test_forward_of_queries_that_share_key_heads(oracle, aten_call):
    q, k, v = values((2, 4, 300, 16)), values((2, 2, 300, 16), seed=1), values((2, 2, 300, 24), seed=2)
    oracle([aten_call(FORWARD, X, Y, Z)], [q, k, v])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(1, 600), (600, 1), (130, 1300), (1300, 130)])
def test_forward_of_other_lengths(oracle, aten_call, queries, keys, causal):
    q, k, v = values((1, 2, queries, 16)), values((1, 2, keys, 16), seed=1), values((1, 2, keys, 16), seed=2)
    oracle([aten_call(FORWARD, X, Y, Z, None, 0.0, causal)], [q, k, v])


def test_a_row_that_sees_nothing_is_zero(oracle, aten_call):
    q, k, v = (values((1, 1, 20, 16), seed=i) for i in range(3))
    mask = torch.ones(1, 1, 20, 20, dtype=torch.bool)
    mask[..., 4, :] = False
    outputs = [Value(0, 0)]
    oracle([aten_call(SAFE, X, Y, Z, W)], [q, k, v, mask], outputs=outputs)


def test_large_scores_do_not_overflow(oracle, aten_call):
    q, k, v = (values((1, 1, 1100, 16), seed=i) * 30 for i in range(3))
    oracle([aten_call(FORWARD, X, Y, Z, None, 0.0, True)], [q, k, v], tolerance=1e-3)


def test_scores_never_reach_hbm(oracle, aten_call):
    q, k, v = (values((1, 1, 1024, 8), seed=i) for i in range(3))
    executable = oracle([aten_call(FORWARD, X, Y, Z)], [q, k, v])
    tensors = 3 * q.numel() * 4
    assert executable.bytes_read == tensors
    assert executable.bytes_written == tensors // 3 + 1024 * 4


def test_a_causal_mask_skips_what_it_hides(graph_of, aten_call):
    from neuroncore.runtime import compile_graph

    q, k, v = (values((1, 1, 2048, 64), torch.bfloat16, i) for i in range(3))
    full, half = (
        compile_graph(graph_of([aten_call(FORWARD, X, Y, Z, None, 0.0, causal)], [q, k, v]))
        .instructions.column("opcode").to_pylist().count("nc_transpose")
        for causal in (False, True)
    )  # fmt: skip
    assert half < 0.65 * full


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_forward_with_a_mask(oracle, aten_call, kind):
    q, k, v = (values((2, 2, 20, 16), seed=i) for i in range(3))
    mask = values((2, 1, 20, 20), seed=4) > -1
    mask[..., 0] = True
    bias = mask if kind == "bool" else values((2, 1, 20, 20), seed=5)
    oracle([aten_call(FORWARD, X, Y, Z, W)], [q, k, v, bias])


def check_backward(oracle, aten_call, q, k, v, *, bias=None, causal=False, tolerance=1e-4):
    out, rows = reference(q, k, v, bias, causal=causal)
    g = values(out.shape, q.dtype, 9)

    def gradients(grad, q, k, v, *rest):
        leaves = [t.float().detach().requires_grad_() for t in (q, k, v)]
        result, _ = reference(*leaves, bias, causal=causal)
        return [t.to(q.dtype) for t in torch.autograd.grad(result, leaves, grad.float())]

    name = "aten._scaled_dot_product_fused_attention_overrideable_backward.default"
    inputs = [g, q, k, v, out, rows, *([] if bias is None else [bias])]
    arguments = [Value(-1, i) for i in range(6)]
    mask = [True, True, True, False]
    given = None if bias is None else Value(-1, 6)
    lengths = (q.shape[2], k.shape[2])
    rest = (None, None, *lengths, 0.0, causal, None, None)
    call = aten_call(Fused(name, gradients), *arguments[:4], given, mask, *arguments[4:], *rest)
    return oracle([call], inputs, tolerance=tolerance)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 2, 72, 16), (1, 3, 130, 64)])
def test_backward(oracle, aten_call, shape, causal, dtype):
    q, k, v = (values(shape, dtype, i) for i in range(3))
    tolerance = 1e-4 if dtype == torch.float32 else 6e-2
    check_backward(oracle, aten_call, q, k, v, causal=causal, tolerance=tolerance)


@pytest.mark.parametrize("causal", [False, True])
def test_backward_of_rows_that_share_partitions(oracle, aten_call, causal):
    q, k, v = (values((1, 1, 1100 if causal else 600, 8), torch.bfloat16, i) for i in range(3))
    check_backward(oracle, aten_call, q, k, v, causal=causal, tolerance=6e-2)


@pytest.mark.parametrize(("queries", "keys", "causal"), [(1, 600, False), (600, 1, True), (130, 600, True)])
def test_backward_of_other_lengths(oracle, aten_call, queries, keys, causal):
    q, k, v = values((1, 2, queries, 16)), values((1, 2, keys, 16), seed=1), values((1, 2, keys, 24), seed=2)
    check_backward(oracle, aten_call, q, k, v, causal=causal)


def test_backward_of_wide_heads_that_share_keys(oracle, aten_call):
    q, k, v = values((1, 4, 150, 160)), values((1, 2, 150, 160), seed=1), values((1, 2, 150, 96), seed=2)
    check_backward(oracle, aten_call, q, k, v)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_backward_with_a_mask(oracle, aten_call, kind):
    q, k, v = (values((2, 2, 140, 16), seed=i) for i in range(3))
    mask = values((2, 1, 140, 140), seed=4) > -1
    mask[..., 0] = True
    check_backward(oracle, aten_call, q, k, v, bias=mask if kind == "bool" else values((2, 1, 140, 140), seed=5))


def test_safe_softmax_of_masked_rows_is_zero(oracle, aten_call):
    x = values((40, 50))
    x[3] = -torch.inf
    x[5, 7:] = -torch.inf
    oracle([aten_call(aten._safe_softmax.default, X, -1)], [x])


@pytest.mark.parametrize("kind", ["causal", "all", "bias", "shared"])
def test_gradient_of_a_long_sequence_in_parts(oracle, aten_call, monkeypatch, kind):
    """Each part of the queries with each part of the keys; real lengths would take the machine hours."""
    monkeypatch.setattr(attention, "gradient_fits", lambda _bytes, queries, *_: queries <= 128)
    q, k, v = (values((1, 2, 300, 16), seed=i) for i in range(3))
    if kind == "shared":
        k, v = k[:, :1].contiguous(), v[:, :1].contiguous()
    bias = values((1, 1, 300, 300), seed=5) if kind == "bias" else None
    executable = check_backward(oracle, aten_call, q, k, v, bias=bias, causal=kind == "causal")
    assert max(t.elements for t in executable.program.tensors if t.kind == "temporary") < 300 * 300  # no scores


def test_backward_of_rows_that_leave_room_for_three_blocks_of_keys(oracle, aten_call):
    q, k, v = values((1, 1, 130, 160)), values((1, 1, 520, 160), seed=1), values((1, 1, 520, 160), seed=2)
    check_backward(oracle, aten_call, q, k, v)


@pytest.mark.parametrize(
    ("heads", "queries", "keys", "width", "causal", "dtype"),
    [
        (96, 512, 512, 64, False, "bf16"),
        (24, 512, 512, 128, True, "fp32"),
        (16, 1000, 1000, 256, True, "fp32"),
        (6, 1500, 777, 96, False, "fp32"),
        (3, 513, 2048, 80, False, "fp32"),
    ],
)
def test_backward_fits_and_its_order_is_right(heads, queries, keys, width, causal, dtype):
    """Too large for the machine here; compiling checks room in SBUF and every read of the order of issue."""
    q, k = TensorSpec((1, heads, queries, width), dtype), TensorSpec((1, heads, keys, width), dtype)
    rows = TensorSpec((1, heads, queries), "fp32")
    mask = [True, True, True, False]
    arguments = (X, Y, Z, W, None, mask, Value(-1, 4), Value(-1, 5), None, None, queries, keys, 0.0, causal, None, None)
    name = "aten._scaled_dot_product_fused_attention_overrideable_backward.default"
    node = Node(name, arguments, (), (q, k, k))
    graph = Graph("g", (q, q, k, k, q, rows), (node,), tuple(Value(0, n) for n in range(3)))
    assert compile_graph(graph).estimated_ns == 0


@pytest.mark.parametrize("shape", [(1, 2, 140, 140), (2, 1, 1, 140)])
def test_gradient_of_the_bias(oracle, aten_call, shape):
    q, k, v = (values((2, 2, 140, 16), seed=i) for i in range(3))
    bias = values(shape, seed=5)
    out, rows = reference(q, k, v, bias)
    g = values(out.shape, seed=9)

    def gradients(grad, q, k, v, bias, *rest):
        leaves = [t.detach().requires_grad_() for t in (q, k, v, bias)]
        return list(torch.autograd.grad(reference(*leaves)[0], leaves, grad))

    name = "aten._scaled_dot_product_fused_attention_overrideable_backward.default"
    arguments = [Value(-1, i) for i in range(7)]
    rest = (None, None, 140, 140, 0.0, False, None, None)
    call = aten_call(Fused(name, gradients), *arguments[:5], [True] * 4, *arguments[5:], *rest)
    oracle([call], [g, q, k, v, bias, out, rows], tolerance=1e-4)


def test_dropout_draws_its_bits():
    """Which weights drop out is random: that bits are drawn for them, in both directions, is what can be told."""
    q, rows = TensorSpec((1, 2, 140, 16), "bf16"), TensorSpec((1, 2, 140), "fp32")
    name = "aten._scaled_dot_product_fused_attention_overrideable"
    forward = Node(f"{name}.default", (X, X, X, None, 0.1), (), (q, rows))
    rest = (None, [True, True, True, False], X, Y, None, None, 140, 140, 0.1, False, None, None)
    backward = Node(f"{name}_backward.default", (X, X, X, X, *rest), (), (q, q, q))
    for node in (forward, backward):
        outputs = tuple(Value(0, i) for i in range(len(node.outputs)))
        executable = compile_graph(Graph("g", (q, rows), (node,), outputs))
        assert executable.estimated_ns == 0
        assert any(i.opcode == "rng" for i in executable.program.text())


@pytest.mark.parametrize("delays", [(0, 2, 9, 2, 2, 9, 1), (0, 2, 5, 2, 2, 9, 1)])
def test_an_order_that_overwrites_is_refused(monkeypatch, delays):
    """Two slots of scores, so phases that lie too far apart read what a later step has put there."""
    monkeypatch.setattr(attend_forward, "_DELAYS", delays)
    q = TensorSpec((1, 2, 1200, 64), "bf16")
    node = Node("aten._scaled_dot_product_fused_attention_overrideable.default", (X, X, X), (), (q,))
    with pytest.raises(VerifyError, match=r"would read another value of .* than the step by itself"):
        compile_graph(Graph("g", (q,), (node,), (Value(0, 0),)))
