"""Matrix products in primitives: contractions of views, whatever their strides."""

from __future__ import annotations

from math import prod
from typing import Any

from neuroncore.compiler.decompose import matrix_product, tensor
from neuroncore.compiler.lowering import Builder, NotLowered, broadcast, lowering
from neuroncore.compiler.views import View
from neuroncore.graph import TensorSpec


@lowering("mm", "bmm")
def _mm(b: Builder, x: Any, y: Any) -> View:
    return matrix_product(b, tensor(b, x), tensor(b, y), b.spec().dtype)


def _affine(b: Builder, bias: Any, x: View, y: View, beta: Any, alpha: Any) -> View:
    dtype = b.spec().dtype
    plain = bias is None or beta == 0
    product = matrix_product(b, x, y, dtype if plain and alpha == 1 else "fp32")
    if alpha != 1:
        product = b.map("multiply", product, float(alpha), dtype=dtype if plain else "fp32")
    if plain:
        return product
    addend = b.arg(bias)
    if beta != 1:
        addend = b.map("multiply", addend, float(beta))
    return b.map("add", product, addend, dtype=dtype)


@lowering("addmm", "baddbmm")
def _addmm(b: Builder, bias: Any, x: Any, y: Any, beta: Any = 1, alpha: Any = 1) -> View:
    return _affine(b, bias, tensor(b, x), tensor(b, y), beta, alpha)


@lowering("mv")
def _mv(b: Builder, x: Any, y: Any) -> View:
    return matrix_product(b, tensor(b, x), tensor(b, y).unsqueeze(1), b.spec().dtype).squeeze((1,))


@lowering("addmv")
def _addmv(b: Builder, bias: Any, x: Any, y: Any, beta: Any = 1, alpha: Any = 1) -> View:
    column = tensor(b, bias).unsqueeze(-1)
    product = matrix_product(b, tensor(b, x), tensor(b, y).unsqueeze(1), "fp32")
    scaled = b.map("multiply", product, float(alpha)) if alpha != 1 else product
    addend = b.map("multiply", column, float(beta)) if beta != 1 else column
    return b.map("add", scaled, addend, dtype=b.spec().dtype).squeeze((1,))


@lowering("dot", "vdot")
def _dot(b: Builder, x: Any, y: Any) -> View:
    product = b.map("multiply", tensor(b, x), tensor(b, y))
    return b.reduce("add", product, (0,), keepdim=False, dtype=b.spec().dtype)


@lowering("linear")
def _linear(b: Builder, x: Any, weight: Any, bias: Any = None) -> View:
    view, w = tensor(b, x), tensor(b, weight)
    rows = b.reshape(view, (prod(view.shape[:-1]), view.shape[-1]))
    flat = TensorSpec((rows.shape[0], w.shape[0]), b.spec().dtype)
    product = matrix_product(b, rows, w.permute((1, 0)), "fp32" if bias is not None else flat.dtype)
    if bias is not None:
        product = b.map("add", product, b.arg(bias), dtype=flat.dtype)
    return b.reshape(product, b.spec().shape)


@lowering("matmul")
def _matmul(b: Builder, x: Any, y: Any) -> View:
    left, right, dtype = tensor(b, x), tensor(b, y), b.spec().dtype
    if not left.shape or not right.shape:
        raise NotLowered("matmul of a scalar")
    if len(left.shape) == 1 and len(right.shape) == 1:
        return b.reduce("add", b.map("multiply", left, right), (0,), keepdim=False, dtype=dtype)
    left = left.unsqueeze(0) if len(left.shape) == 1 else left
    right = right.unsqueeze(1) if len(right.shape) == 1 else right
    if len(right.shape) == 2:
        rows = b.reshape(left, (prod(left.shape[:-1]), left.shape[-1]))
        return b.reshape(matrix_product(b, rows, right, dtype), b.spec().shape)
    batch = broadcast(left.shape[:-2], right.shape[:-2])
    a = b.reshape(left.expand((*batch, *left.shape[-2:])), (prod(batch), *left.shape[-2:]))
    c = b.reshape(right.expand((*batch, *right.shape[-2:])), (prod(batch), *right.shape[-2:]))
    return b.reshape(matrix_product(b, a, c, dtype), b.spec().shape)
