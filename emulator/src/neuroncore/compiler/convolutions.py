"""Convolutions in primitives, their gradients, and what of them is a plain matrix product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

from neuroncore.compiler.decompose import tensor
from neuroncore.compiler.lowering import Builder, NotLowered, lowering
from neuroncore.compiler.views import View

#: Channels that groups share a product for: TensorE contracts as many at once, most of them zeros.
_BLOCK = 128


def _pair(values: Sequence[int]) -> tuple[int, int]:
    """Of one or two numbers, those of rows and columns."""
    return (values[0], values[1]) if len(values) == 2 else (1, values[0])


def _plane(view: View) -> View:
    """[n, c, width] as [n, c, 1, width]."""
    if len(view.shape) not in (3, 4):
        raise NotLowered(f"convolution over {len(view.shape) - 2} dimensions")
    return view.unsqueeze(2) if len(view.shape) == 3 else view


class _Geometry(TypedDict):
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]


def _geometry(rank: int, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> _Geometry:
    """Two numbers each, whatever was given."""
    filled = [tuple(v) * (rank if len(v) == 1 else 1) for v in (stride, padding, dilation)]
    s, p, d = (_pair(v) for v in filled)
    return {"stride": s, "padding": (0, p[1]) if rank == 1 else p, "dilation": d}


def _check(b: Builder, *views: View) -> None:
    if any(b.dtype(v) not in ("fp32", "bf16", "fp16") for v in views):
        raise NotLowered("convolution of " + ", ".join(b.dtype(v) for v in views))
    if len({b.dtype(v) for v in views}) > 1:
        raise NotLowered("convolution of different dtypes")
    if any(not v.elements for v in views):
        raise NotLowered("convolution of an empty tensor")


@lowering("convolution", "_convolution")
def _convolution(
    b: Builder,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_: Any,
) -> View:
    src, w, spec = tensor(b, x), tensor(b, weight), b.spec()
    rank = len(src.shape) - 2
    src, w = _plane(src), _plane(w)
    _check(b, src, w)
    shape = spec.shape if rank == 2 else (*spec.shape[:2], 1, spec.shape[2])
    given = _geometry(rank, stride, padding, dilation)
    if transposed:
        return b.reshape(
            _backward_data(b, src, w, shape, groups, given, spec.dtype, None if bias is None else tensor(b, bias)),
            spec.shape,
        )
    column = None if bias is None else tensor(b, bias)
    if groups == 1 and _patches(src, w, given):
        return b.reshape(_of_patches(b, src, w, shape, spec.dtype, column), spec.shape)
    if groups == 1:
        out = b.convolve("forward", src, w, shape, spec.dtype, bias=column, **given)
        return b.reshape(out, spec.shape)
    out = b.temp(shape, spec.dtype)
    for ins, outs, dense in _blocks(b, w, src.shape[1], groups):
        part = b.convolve(
            "forward", src.slice(1, *ins), dense, (shape[0], outs[1] - outs[0], *shape[2:]), spec.dtype,
            bias=None if column is None else column.slice(0, *outs), **given,
        )  # fmt: skip
        b.move(part, out.slice(1, *outs))
    return b.reshape(out, spec.shape)


# -- patches: a convolution whose windows tile the picture is a matrix product --------------------------------


def _patches(src: View, w: View, given: _Geometry) -> bool:
    """Whether windows lie side by side without padding, several elements each."""
    kernel = w.shape[2:]
    whole = all(n % k == 0 for n, k in zip(src.shape[2:], kernel, strict=True))
    return given["stride"] == kernel != (1, 1) and given["padding"] == (0, 0) and given["dilation"] == (1, 1) and whole


def _windows(view: View, kernel: tuple[int, ...]) -> View:
    """[n, c, y*i, x*j] as [n, y, x, c, i, j]."""
    n, c, height, width = view.shape
    i, j = kernel
    split = view.reshape((n, c, height // i, i, width // j, j))
    if split is None:  # every axis is split in two, which always can be seen
        s = view.strides
        split = View(view.buffer, (n, c, height // i, i, width // j, j), (s[0], s[1], s[2] * i, s[2], s[3] * j, s[3]),
                     view.offset)  # fmt: skip
    return split.permute((0, 2, 4, 1, 3, 5))


def _of_patches(b: Builder, src: View, w: View, shape: tuple[int, ...], dtype: str, bias: View | None) -> View:
    """[patches, elements of a patch] x [elements, channels], then channels to their place."""
    kernel = w.shape[2:]
    patches = b.copy(_windows(src, kernel))
    count, size = patches.elements // (w.elements // w.shape[0]), w.elements // w.shape[0]
    rows = b.reshape(patches, (1, count, size))
    filters = b.reshape(w, (w.shape[0], size)).permute((1, 0)).unsqueeze(0)
    product = b.contract(rows, filters, dtype if bias is None else "fp32")
    if bias is not None:
        product = b.map("add", product, bias, dtype=dtype)
    n, channels, height, width = shape
    return b.reshape(product, (n, height, width, channels)).permute((0, 3, 1, 2))


def _patch_gradients(
    b: Builder, g: View, src: View, w: View, wanted: Sequence[bool], dtypes: Sequence[str]
) -> list[View | None]:
    """Of the input and of the filters: products with the gradient, [patches, channels]."""
    kernel, size = w.shape[2:], w.elements // w.shape[0]
    last = g.permute((0, 2, 3, 1))
    rows = b.reshape(b.copy(last), (g.elements // g.shape[1], g.shape[1]))
    results: list[View | None] = [None, None]
    if wanted[0]:
        filters = b.reshape(w, (w.shape[0], size))
        product = b.contract(rows.unsqueeze(0), filters.unsqueeze(0), dtypes[0])
        out = b.temp(src.shape, dtypes[0])
        n, height, width = last.shape[:3]
        parts = b.reshape(product, (n, height, width, src.shape[1], *kernel))
        b.write("copy", (parts,), _windows(out, kernel))
        results[0] = out
    if wanted[1]:
        patches = b.reshape(b.copy(_windows(src, kernel)), (rows.shape[0], size))
        product = b.contract(rows.permute((1, 0)).unsqueeze(0), patches.unsqueeze(0), dtypes[1])
        results[1] = b.reshape(product, w.shape)
    return results


# -- groups --------------------------------------------------------------------------------------------------

#: First and last channel.
_Span = tuple[int, int]


def _together(channels: int, groups: int) -> int:
    """Groups that share a product: as many as fill TensorE's partitions and divide them all."""
    each = channels // groups
    return max(d for d in range(1, groups + 1) if groups % d == 0 and (d == 1 or d * each <= _BLOCK))


def _blocks(b: Builder, w: View, channels: int, groups: int) -> Iterator[tuple[_Span, _Span, View]]:
    """Channels in, channels out and filters of products that do several groups each, zeros between the groups."""
    outs, each = w.shape[0] // groups, w.shape[1]
    together = _together(channels, groups)
    for first in range(0, groups, together):
        ins = (first * each, (first + together) * each)
        results = (first * outs, (first + together) * outs)
        yield ins, results, _spread(b, w.slice(0, *results), together, outs)


def _spread(b: Builder, w: View, groups: int, outs: int) -> View:
    """[groups*outs, each, i, j] as [groups*outs, groups*each, i, j], zero between the groups."""
    if groups == 1:
        return w
    each, taps = w.shape[1], w.shape[2:]
    shape = (groups, outs, groups, each, *taps)
    own = b.map("equal", b.iota(shape, (-1, 0, 1, 0, 0, 0)), 0.0, dtype="uint8")
    filters = b.reshape(w, (groups, outs, 1, each, *taps)).expand(shape)
    spread = b.map("select", own, filters, 0.0, dtype=b.dtype(w), shape=shape)
    return b.reshape(spread, (groups * outs, groups * each, *taps))


def _own(w: View, groups: int) -> View:
    """What `_spread` put into its result: the blocks on the diagonal, [groups, outs, each, i, j]."""
    outs, each = w.shape[0] // groups, w.shape[1] // groups
    whole = w.reshape((groups, outs, groups, each, *w.shape[2:]))
    assert whole is not None
    return whole.diagonal(0, 0, 2).permute((4, 0, 1, 2, 3))


def _backward_data(
    b: Builder,
    g: View,
    w: View,
    shape: tuple[int, ...],
    groups: int,
    given: _Geometry,
    dtype: str,
    bias: View | None = None,
) -> View:
    """The gradient of the input: the gradient of the output, spread by the stride, convolved with turned filters."""
    if groups != 1:
        out = b.temp(shape, dtype)
        for ins, outs, dense in _blocks(b, w, shape[1], groups):
            part = _backward_data(
                b, g.slice(1, *outs), dense, (shape[0], ins[1] - ins[0], *shape[2:]), 1, given, dtype,
                None if bias is None else bias.slice(0, *ins),
            )  # fmt: skip
            b.move(part, out.slice(1, *ins))
        return out
    stride, padding, dilation = given["stride"], given["padding"], given["dilation"]
    border = tuple(d * (k - 1) - p for d, k, p in zip(dilation, w.shape[2:], padding, strict=True))
    return b.convolve(
        "gradient", g, w, shape, dtype, stride=(1, 1), padding=(border[0], border[1]), dilation=dilation,
        spread=stride, bias=bias,
    )  # fmt: skip


@lowering("convolution_backward")
def _convolution_backward(
    b: Builder,
    grad: Any,
    x: Any,
    weight: Any,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> list[View]:
    g, src, w = tensor(b, grad), tensor(b, x), tensor(b, weight)
    rank = len(src.shape) - 2
    g, src, w = _plane(g), _plane(src), _plane(w)
    _check(b, g, src, w)
    given = _geometry(rank, stride, padding, dilation)
    if transposed:
        return _transposed_gradients(b, g, src, w, given, groups, mask)
    products: list[View | None] = [None, None]
    if groups == 1 and _patches(src, w, given):
        products = _patch_gradients(b, g, src, w, mask[:2], [s.dtype for s in b.node.outputs[:2]])
    results = []
    for number, spec in enumerate(b.node.outputs):
        done = products[number] if number < len(products) else None
        if not mask[number] or not spec.elements:
            results.append(b.temp(spec.shape, spec.dtype))
        elif done is not None:
            results.append(b.reshape(done, spec.shape))
        elif number == 0:
            results.append(b.reshape(_backward_data(b, g, w, src.shape, groups, given, spec.dtype), spec.shape))
        elif number == 1:
            results.append(b.reshape(_backward_weight(b, src, g, w, spec.dtype, groups, given), spec.shape))
        else:
            results.append(b.reduce("add", g, (0, 2, 3), keepdim=False, dtype=spec.dtype))
    return results


def _backward_weight(b: Builder, src: View, g: View, w: View, dtype: str, groups: int, given: _Geometry) -> View:
    """The gradient of the filters; of several groups at once, of which the blocks on the diagonal are wanted."""
    if groups == 1:
        return b.convolve("weight", src, g, w.shape, dtype, **given)
    together = _together(src.shape[1], groups)
    outs, each = w.shape[0] // groups, w.shape[1]
    out = b.temp(w.shape, dtype)
    for first in range(0, groups, together):
        rows, columns = (first * outs, (first + together) * outs), (first * each, (first + together) * each)
        shape = (together * outs, together * each, *w.shape[2:])
        whole = b.convolve("weight", src.slice(1, *columns), g.slice(1, *rows), shape, dtype, **given)
        b.move(b.reshape(_own(whole, together), (together * outs, *w.shape[1:])), out.slice(0, *rows))
    return out


def _transposed_gradients(
    b: Builder, g: View, src: View, w: View, given: _Geometry, groups: int, mask: Sequence[bool]
) -> list[View]:
    """Of a transposed convolution: its input's is a convolution, its filters' has input and gradient exchanged."""
    if groups != 1:
        raise NotLowered("gradient of a transposed convolution of several groups")
    results = []
    for number, spec in enumerate(b.node.outputs):
        if not mask[number] or not spec.elements:
            results.append(b.temp(spec.shape, spec.dtype))
        elif number == 0:
            results.append(b.reshape(b.convolve("forward", g, w, src.shape, spec.dtype, **given), spec.shape))
        elif number == 1:
            results.append(b.reshape(b.convolve("weight", g, src, w.shape, spec.dtype, **given), spec.shape))
        else:
            results.append(b.reduce("add", g, (0, 2, 3), keepdim=False, dtype=spec.dtype))
    return results
