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


def _kept(b: Builder, weights: View, dropout: float) -> View:
    """Zero for weights that are dropped, else what makes up for those.

    Forward and backward each draw as many bits; on the machine they are other bits, as a program has no seed.
    """
    kept = b.map("less", b.random(weights.shape), (1.0 - dropout) * 2.0**32)
    return b.map("multiply", kept, 0.0 if dropout == 1 else 1.0 / (1.0 - dropout))


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
    q = tensor(b, query)
    if not dropout:
        onchip = _on_chip(b, q, tensor(b, key), tensor(b, value), bias, causal=causal, scale=scale)
        if onchip is not None:
            return onchip
    k, v = _heads(b, q, tensor(b, key)), _heads(b, q, tensor(b, value))
    scores = _scores(b, q, k, bias, causal=causal, scale=scale)
    largest = b.reduce("max", scores, (-1,), keepdim=True)
    powers = b.map("exp", b.map("subtract", scores, largest))
    total = b.reduce("add", powers, (-1,), keepdim=True)
    if dropout:
        powers = b.map("multiply", powers, _kept(b, powers, dropout))
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
    part = _part_length(b, q, k, v)
    if part is None or not _attends(b, q, k.slice(2, 0, part), v.slice(2, 0, part), factor, biased=bias is not None):
        return None
    if {b.dtype(g), b.dtype(y)} != {b.dtype(q)} or (causal and q.shape[2] != k.shape[2] and part < q.shape[2]):
        return None
    mask = None if bias is None else tensor(b, bias).expand((*q.shape[:3], k.shape[2]))
    rows = b.reshape(tensor(b, logsumexp), q.shape[:3])
    batch, _, length = k.shape[:3]
    ins = tuple(_rowwise(b, view) for view in (g, q, k, v, y))
    # Query heads that share keys give parts of their gradients, added afterwards.
    shapes = (q.shape, *((batch, q.shape[1], length, t.shape[3]) for t in (k, v)))
    if part >= q.shape[2]:
        outs = tuple(b.rows(shape, d) for shape, d in zip(shapes, (b.spec(0).dtype, *[b.dtype(q)] * 2), strict=True))
        b.attend_gradient((*ins, rows), (outs[0], outs[1], outs[2]), factor, causal=causal, bias=mask)
    else:
        outs = _in_parts(b, ins, rows, shapes, mask, factor, part, causal=causal)
    results = [b.reshape(b.map("copy", outs[0], dtype=b.spec(0).dtype), b.spec(0).shape) if part < q.shape[2]
               else b.reshape(outs[0], b.spec(0).shape)]  # fmt: skip
    for number, view in ((1, outs[1]), (2, outs[2])):
        spec = b.spec(number)
        whole = _by_group(b, view, k.shape, q.shape[1], spec.dtype)
        if b.dtype(whole) != spec.dtype:
            whole = b.map("copy", whole, dtype=spec.dtype)
        results.append(b.reshape(whole, spec.shape))
    return results + [b.temp(spec.shape, spec.dtype) for spec in b.node.outputs[3:]]


def _part_length(b: Builder, q: View, k: View, v: View) -> int | None:
    """Queries that a gradient kernel takes at once: all, or parts of a length that leaves none much shorter."""
    if any(len(view.shape) != 4 for view in (q, k, v)):
        return None
    size = DTYPE_BYTES[b.dtype(q)]
    for pieces in range(1, 65):
        part = -(-q.shape[2] // (pieces * 128)) * 128 if pieces > 1 else q.shape[2]
        if gradient_fits(_SBUF_BYTES, part, q.shape[3], v.shape[3], size):
            return part if pieces == 1 or part >= 128 else None
    return None


def _in_parts(
    b: Builder,
    ins: tuple[View, ...],
    rows: View,
    shapes: tuple[tuple[int, ...], ...],
    mask: View | None,
    factor: float,
    part: int,
    *,
    causal: bool,
) -> tuple[View, ...]:
    """Gradients of a long sequence: of every part of the queries with every part of the keys, added in fp32.

    With the sums of the whole softmax at hand each pair is independent; of causal attention those behind the diagonal
    see all of each other, those on it are causal themselves, the others nothing.
    """
    g, q, k, v, y = ins
    totals: list[dict[int, View]] = [{}, {}, {}]
    starts = [range(0, n, part) for n in (q.shape[2], k.shape[2])]
    for a in starts[0]:
        for c in starts[1]:
            if causal and c > a:
                continue
            some = tuple(t.slice(2, s, s + part) for t, s in ((g, a), (q, a), (k, c), (v, c), (y, a), (rows, a)))
            dq = b.dense(some[1].shape, "fp32")
            dk, dv = (b.dense((*shape[:2], some[2].shape[2], shape[3]), "fp32") for shape in shapes[1:])
            bias = None if mask is None else mask.slice(2, a, a + part).slice(3, c, c + part)
            b.attend_gradient(some, (dq, dk, dv), factor, causal=causal and a == c, bias=bias)
            for total, place, value in zip(totals, (a, c, c), (dq, dk, dv), strict=True):
                total[place] = b.map("add", total[place], value) if place in total else value
    outs = []
    for total, shape in zip(totals, shapes, strict=True):
        out = b.dense(shape, "fp32")
        for place, value in total.items():
            b.move(value, out.slice(2, place, place + value.shape[2]))
        outs.append(out)
    return tuple(outs)


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
    g, q, k, v, y = (tensor(b, t) for t in (grad, query, key, value, out))
    of_bias = bool(wanted[3]) and bias is not None and bool(b.node.outputs[3].elements)
    if not dropout and not of_bias:
        onchip = _gradient_on_chip(b, (g, q, k, v, y), logsumexp, bias, causal=causal, scale=scale)
        if onchip is not None:
            return onchip
    # Scores in HBM: they are a result (the gradient of the bias), or drop out.
    shared = k.shape
    k, v = _heads(b, q, k), _heads(b, q, v)
    factor = 1.0 / sqrt(q.shape[-1]) if scale is None else float(scale)
    dtype = b.dtype(q)
    rows = b.reshape(tensor(b, logsumexp), (*q.shape[:-1], 1))
    scores = _scores(b, q, k, bias, causal=causal, scale=scale)
    weights = b.map("exp", b.map("subtract", scores, rows))
    shape = weights.shape
    kept = _kept(b, weights, dropout) if dropout else None
    narrow = b.map("copy", weights if kept is None else b.map("multiply", weights, kept), dtype=dtype)
    dv = b.contract(_turned(narrow), g, b.spec(2).dtype)
    dweights = b.reshape(b.contract(g, _turned(v), "fp32"), shape)
    if kept is not None:
        dweights = b.map("multiply", dweights, kept)
    inner = b.reduce("add", b.map("multiply", g, y), (-1,), keepdim=True)
    biased = b.map("multiply", b.map("subtract", dweights, inner), weights)
    dscores = b.map("multiply", biased, factor, dtype=dtype)
    dq = b.contract(dscores, k, b.spec(0).dtype)
    dk = b.contract(_turned(dscores), q, b.spec(1).dtype)
    results = [b.reshape(dq, b.spec(0).shape)]
    for number, view in ((1, dk), (2, dv)):
        results.append(b.reshape(_by_group(b, view, shared, q.shape[1], b.spec(number).dtype), b.spec(number).shape))
    if of_bias:
        spec = b.spec(3)
        wide = (1,) * (len(shape) - len(spec.shape)) + spec.shape
        axes = tuple(a for a, (n, m) in enumerate(zip(wide, shape, strict=True)) if n != m)
        total = b.reduce("add", biased, axes, keepdim=True, dtype=spec.dtype) if axes else biased
        results.append(b.map("copy", b.reshape(total, spec.shape), dtype=spec.dtype))
    return results + [b.temp(spec.shape, spec.dtype) for spec in b.node.outputs[len(results) :]]


def _by_group(b: Builder, view: View, shared: tuple[int, ...], heads: int, dtype: str) -> View:
    """Gradients of keys or values, those of heads that share them added up."""
    batch, groups, length = shared[:3]
    if groups == heads:
        return view
    parts = b.reshape(view, (batch, groups, heads // groups, length, view.shape[-1]))
    return b.reduce("add", parts, (2,), keepdim=False, dtype=dtype)


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
