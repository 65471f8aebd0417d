"""Attention in primitives: products of the scores, a softmax between them, and their gradients."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

from neuroncore.compiler.attend import fits
from neuroncore.compiler.attend_gradient import gradient_fits
from neuroncore.compiler.decompose import axis_last, tensor
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.views import View
from neuroncore.graph import DTYPE_BYTES

#: SBUF of the smallest target, per partition: what an attention kernel may rely on.
_SBUF_BYTES = 176 * 1024
#: Stands for minus infinity where masked scores are exponentiated: finite, so that no difference of two is undefined.
_MASKED = -3.0e38


def _turned(view: View) -> View:
    """The last two axes exchanged."""
    rank = len(view.shape)
    return view.permute((*range(rank - 2), rank - 1, rank - 2))


def _heads(b: Builder, query: View, other: View) -> View:
    """Keys or values with as many heads as the queries; shared ones are read again, not copied."""
    if len(query.shape) != 4 or len(other.shape) != 4:
        raise NotLowered("attention on tensors that are not [batch, heads, length, width]")
    batch, heads, length, width = other.shape
    if heads == query.shape[1]:
        return other
    if query.shape[1] % heads:
        raise NotLowered("query heads are no multiple of key heads")
    shared = other.unsqueeze(2).expand((batch, heads, query.shape[1] // heads, length, width))
    return b.reshape(shared, (batch, query.shape[1], length, width))


def _scores(b: Builder, query: View, key: View, bias: Any, *, causal: bool, scale: float | None) -> View:
    """Scores: scale * Q K^T + bias, masked, fp32 [batch, heads, queries, keys]."""
    factor = 1.0 / sqrt(query.shape[-1]) if scale is None else float(scale)
    shape = (*query.shape[:-1], key.shape[-2])
    scores = b.reshape(b.contract(query, _turned(key), "fp32"), shape)
    scores = b.map("multiply", scores, factor)
    if bias is not None:
        mask = tensor(b, bias)
        if b.dtype(mask) == "bool":
            scores = b.map("select", mask, scores, _MASKED, shape=shape)
        else:
            # A bias of minus infinity stays one: its row has other scores, or the softmax is undefined in torch too.
            scores = b.map("max", b.map("add", scores, mask), _MASKED)
    if causal:
        ahead = b.map("greater", b.iota(shape, (0, 0, -1, 1)), 0.0, dtype="uint8")
        scores = b.map("select", ahead, _MASKED, scores, shape=shape)
    return scores


def _attends(b: Builder, q: View, k: View, v: View, scale: float, *, biased: bool) -> bool:
    """Whether the attention kernels take these operands; what they can't is done in separate products."""
    if any(len(view.shape) != 4 or not view.elements for view in (q, k, v)) or scale <= 0.0:
        return False
    dtypes = {b.dtype(view) for view in (q, k, v)}
    sizes = k.shape[2], q.shape[3], v.shape[3]
    return (
        len(dtypes) == 1
        and dtypes <= {"fp32", "bf16", "fp16"}
        and q.shape[1] % k.shape[1] == 0
        and fits(_SBUF_BYTES, *sizes, DTYPE_BYTES[b.dtype(q)], biased=biased)
    )


def _rowwise(b: Builder, view: View) -> View:
    """A tensor whose rows are contiguous."""
    return view if view.strides[-1] == 1 or view.shape[-1] == 1 else b.copy(view)


def _on_chip(
    b: Builder, q: View, k: View, v: View, bias: Any, *, causal: bool, scale: float | None
) -> list[View] | None:
    factor = 1.0 / sqrt(q.shape[-1]) if scale is None else float(scale)
    if not _attends(b, q, k, v, factor, biased=bias is not None):
        return None
    shape = (*q.shape[:3], v.shape[3])
    out, rows = b.rows(shape, b.spec().dtype), b.temp(q.shape[:3], "fp32")
    mask = None if bias is None else tensor(b, bias).expand((*q.shape[:3], k.shape[2]))
    q, k, v = (_rowwise(b, view) for view in (q, k, v))
    b.attend(q, k, v, out, rows, factor, causal=causal, bias=mask)
    results = [b.reshape(out, b.spec().shape)]
    for number, spec in enumerate(b.node.outputs[1:]):
        # Lengths and seeds follow the second result; without dropout nobody reads them.
        wanted = number == 0 and prod(spec.shape) == rows.elements
        results.append(b.reshape(rows, spec.shape) if wanted else b.temp(spec.shape, spec.dtype))
    return results


@lowering("_scaled_dot_product_fused_attention_overrideable")
def _attention(
    b: Builder,
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    scale: float | None = None,
) -> list[View]:
    if dropout:
        raise NotLowered("attention with dropout")
    q = tensor(b, query)
    onchip = _on_chip(b, q, tensor(b, key), tensor(b, value), bias, causal=causal, scale=scale)
    if onchip is not None:
        return onchip
    k, v = _heads(b, q, tensor(b, key)), _heads(b, q, tensor(b, value))
    scores = _scores(b, q, k, bias, causal=causal, scale=scale)
    largest = b.reduce("max", scores, (-1,), keepdim=True)
    powers = b.map("exp", b.map("subtract", scores, largest))
    total = b.reduce("add", powers, (-1,), keepdim=True)
    weights = b.map("multiply", powers, b.map("reciprocal", total), dtype=b.dtype(q))
    logsumexp = b.map("add", largest, b.map("log", total))
    results = [b.reshape(b.contract(weights, v, b.spec().dtype), b.spec().shape)]
    for number, spec in enumerate(b.node.outputs[1:]):
        # Lengths and seeds follow the second result; without dropout nobody reads them.
        wanted = number == 0 and prod(spec.shape) == prod(q.shape[:-1])
        results.append(b.reshape(logsumexp, spec.shape) if wanted else b.temp(spec.shape, spec.dtype))
    return results


def _gradient_on_chip(
    b: Builder, views: tuple[View, ...], logsumexp: Any, bias: Any, *, causal: bool, scale: float | None
) -> list[View] | None:
    g, q, k, v, y = views
    factor = 1.0 / sqrt(q.shape[-1]) if scale is None else float(scale)
    size = DTYPE_BYTES[b.dtype(q)]
    if not _attends(b, q, k, v, factor, biased=bias is not None) or not gradient_fits(
        _SBUF_BYTES, q.shape[2], q.shape[3], v.shape[3], size
    ):
        return None
    if {b.dtype(g), b.dtype(y)} != {b.dtype(q)}:
        return None
    mask = None if bias is None else tensor(b, bias).expand((*q.shape[:3], k.shape[2]))
    rows = b.reshape(tensor(b, logsumexp), q.shape[:3])
    shared = q.shape[1] // k.shape[1]
    batch, heads, length = k.shape[:3]
    dq = b.rows(q.shape, b.spec(0).dtype)
    # Query heads that share keys give parts of their gradients, added afterwards.
    wide = [b.rows((batch, heads * shared, length, t.shape[3]), b.dtype(q)) for t in (k, v)]
    ins = tuple(_rowwise(b, view) for view in (g, q, k, v, y))
    b.attend_gradient((*ins, rows), (dq, *wide), factor, causal=causal, bias=mask)
    results = [b.reshape(dq, b.spec(0).shape)]
    for number, view in enumerate(wide, 1):
        spec = b.spec(number)
        if shared > 1:
            parts = b.reshape(view, (batch, heads, shared, length, view.shape[3]))
            whole = b.reduce("add", parts, (2,), keepdim=False, dtype=spec.dtype)
        else:
            whole = view
        results.append(b.reshape(whole, spec.shape))
    return results + [b.temp(spec.shape, spec.dtype) for spec in b.node.outputs[3:]]


@lowering("_scaled_dot_product_fused_attention_overrideable_backward")
def _attention_backward(
    b: Builder,
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    wanted: Any,
    out: Any,
    logsumexp: Any,
    _cum_q: Any,
    _cum_k: Any,
    _max_q: Any,
    _max_k: Any,
    dropout: float,
    causal: bool,
    *_seeds: Any,
    scale: float | None = None,
) -> list[View]:
    if dropout:
        raise NotLowered("attention with dropout")
    g, q, k, v, y = (tensor(b, t) for t in (grad, query, key, value, out))
    if wanted[3] and bias is not None and b.node.outputs[3].elements:
        raise NotLowered("gradient of the attention bias")
    onchip = _gradient_on_chip(b, (g, q, k, v, y), logsumexp, bias, causal=causal, scale=scale)
    if onchip is not None:
        return onchip
    if k.shape[1] != q.shape[1]:
        raise NotLowered("gradient of attention with shared key heads")
    factor = 1.0 / sqrt(q.shape[-1]) if scale is None else float(scale)
    dtype = b.dtype(q)
    rows = b.reshape(tensor(b, logsumexp), (*q.shape[:-1], 1))
    scores = _scores(b, q, k, bias, causal=causal, scale=scale)
    weights = b.map("exp", b.map("subtract", scores, rows))
    shape = weights.shape
    narrow = b.map("copy", weights, dtype=dtype)
    dv = b.contract(_turned(narrow), g, b.spec(2).dtype)
    dweights = b.reshape(b.contract(g, _turned(v), "fp32"), shape)
    inner = b.reduce("add", b.map("multiply", g, y), (-1,), keepdim=True)
    difference = b.map("subtract", dweights, inner)
    dscores = b.map("multiply", b.map("multiply", difference, weights), factor, dtype=dtype)
    dq = b.contract(dscores, k, b.spec(0).dtype)
    dk = b.contract(_turned(dscores), q, b.spec(1).dtype)
    results = [b.reshape(view, b.spec(i).shape) for i, view in enumerate((dq, dk, dv))]
    return results + [b.temp(spec.shape, spec.dtype) for spec in b.node.outputs[3:]]


@lowering("_safe_softmax")
def _safe_softmax(b: Builder, x: Any, dim: int, dtype: Any = None) -> View:
    """A softmax whose rows of minus infinities are zero."""
    view = tensor(b, x)
    if not view.shape:
        raise NotLowered("softmax of a scalar")
    view, back = axis_last(b, view, dim)
    largest = b.map("max", b.reduce("max", view, (-1,), keepdim=True), _MASKED)
    powers = b.map("exp", b.map("subtract", view, largest))
    total = b.map("max", b.reduce("add", powers, (-1,), keepdim=True), 1e-30)
    return b.map("multiply", powers, b.map("reciprocal", total), dtype=b.spec().dtype).permute(back)
