"""Gathers, scatters, masks, and everything that only moves elements."""

from __future__ import annotations

from typing import Any

import torch

from families.draws import BF16, F32, FLOATS, SIZES, Draws, family

MOVED = (*FLOATS, torch.int32, torch.int64, torch.uint8, torch.bool)


@family("embedding", "embedding_dense_backward", "index_select", "index", "_unsafe_index", "gather", "select_backward",
        "slice_backward", "index_select_backward")  # fmt: skip
def gathers(d: Draws, name: str) -> Any:
    dtype = d.pick(F32, BF16, torch.int64) if "backward" not in name else d.pick(F32, BF16)
    shape = d.shape(1, 3)
    x, dim = d.tensor(shape, dtype), d.dim(shape)
    top = shape[dim]
    match name:
        case "embedding":
            rows = d.pick(1, 20, 300)
            x = d.values((rows, d.pick(1, 16, 200)), d.floats())
            return "aten::embedding", (x, d.index(d.shape(0, 2), rows), -1, False, False)
        case "embedding_dense_backward":
            index, rows = d.index(d.shape(1, 2), 30), 30
            grad = d.values((*index.shape, d.pick(1, 16, 70)), F32)
            return f"aten::{name}", (grad, index, rows, d.pick(-1, 3), False), {"loose": 20}
        case "index_select":
            return "aten::index_select", (x, dim, d.index((d.pick(*SIZES),), top))
        case "gather":
            sizes = list(shape)
            sizes[dim] = d.pick(1, 3, 17)
            return "aten::gather", (x, dim, d.index(tuple(sizes), top), False)
        case "select_backward":
            grad = d.tensor(shape, dtype)
            sizes = [*shape[: dim % len(shape)], 5, *shape[dim % len(shape) :]]
            return f"aten::{name}", (grad, sizes, dim % len(shape), d.number(0, 4))
        case "slice_backward":
            sizes = list(shape)
            sizes[dim] = 2 * top + 3
            return f"aten::{name}", (d.tensor(shape, dtype), sizes, dim % len(shape), 1, 1 + 2 * top, 2)
        case "index_select_backward":
            index = d.index((d.pick(1, 5, 40),), 9)
            sizes = [*shape]
            sizes[dim] = 9
            grad = d.tensor(tuple(len(index) if i == dim % len(shape) else n for i, n in enumerate(shape)), F32)
            return f"aten::{name}", (grad, sizes, dim % len(shape), index), {"loose": 20}
    shape = d.shape(2, 3)
    x = d.tensor(shape, dtype)
    sizes = d.shape(1, 1)
    index = [d.index(sizes, n, negative=name == "index") for n in shape[: d.number(1, 2)]]
    if name == "index" and d.flag():
        index = [None, index[0] % shape[1] if index else None]
    return f"aten::{name}.Tensor", (x, index)


@family("scatter", "scatter_add", "index_add", "index_copy", "index_put", "_index_put_impl", "_unsafe_index_put",
        "select_scatter", "slice_scatter", "diagonal_scatter", "value_selecting_reduction_backward")  # fmt: skip
def scatters(d: Draws, name: str) -> Any:
    shape, dtype = d.shape(1, 3), d.pick(F32, BF16) if name not in ("scatter_add", "index_add") else F32
    x, dim = d.tensor(shape, dtype), d.dim(shape)
    axis = dim % len(shape)
    match name:
        case "scatter" | "scatter_add":
            sizes = tuple(min(n, d.pick(1, 5, 40)) for n in shape)
            if name == "scatter":  # distinct places, or who comes last would be a matter of taste
                order = d.values((*shape[:axis], *shape[axis + 1 :], shape[axis]), F32).argsort(-1).movedim(-1, axis)
                index = order[tuple(slice(0, n) for n in sizes)]
                if d.flag():
                    return "aten::scatter.value", (x, dim, index, 2.5)
                return "aten::scatter.src", (x, dim, index, d.tensor(sizes, dtype))
            return "aten::scatter_add", (x, dim, d.index(sizes, shape[axis]), d.tensor(sizes, dtype)), {"loose": 20}
        case "index_add" | "index_copy":
            count = d.pick(1, 5, 40) if name == "index_add" else d.number(1, shape[axis])
            index = d.index((count,), shape[axis]) if name == "index_add" else torch.randperm(shape[axis])[:count]
            source = d.tensor(tuple(count if i == axis else n for i, n in enumerate(shape)), dtype)
            extra = (d.pick(1, 2),) if name == "index_add" else ()
            return f"aten::{name}", (x, dim, index, source, *extra), {"loose": 20}
        case "select_scatter":
            source = d.tensor(shape[:axis] + shape[axis + 1 :], dtype)
            return "aten::select_scatter", (x, source, dim, d.number(0, shape[axis] - 1))
        case "diagonal_scatter":
            x = d.tensor((d.pick(1, 5, 33), d.pick(2, 9, 40)), dtype)
            offset = d.number(-x.shape[0] + 1, x.shape[1] - 1)
            length = torch.diagonal(x, offset).shape[0]
            return "aten::diagonal_scatter", (x, d.tensor((length,), dtype), offset, 0, 1)
        case "slice_scatter":
            step = d.number(1, 2)
            begin = d.number(0, shape[axis] - 1)
            sizes = tuple(-(-(n - begin) // step) if i == axis else n for i, n in enumerate(shape))
            return "aten::slice_scatter", (x, d.tensor(sizes, dtype), dim, begin, None, step)
        case "value_selecting_reduction_backward":
            keep = d.flag()
            chosen, index = x.max(dim, keepdim=keep)
            return f"aten::{name}", (d.values(tuple(chosen.shape), F32), dim, index, list(shape), keep)
    shape = d.shape(2, 3)
    x = d.tensor(shape, F32)
    adds = d.flag()
    count = d.pick(1, 5, 40) if adds else d.number(1, shape[0])
    index = d.index((count,), shape[0]) if adds else torch.randperm(shape[0])[:count]
    source = d.tensor((count, *shape[1:]), F32)
    extra = (False,) if name == "_index_put_impl" else ()
    return f"aten::{name}", (x, [index], source, adds, *extra), {"loose": 20}


@family("triu", "tril", "one_hot", "flip", "fill", "zero")
def masks(d: Draws, name: str) -> Any:
    shape, dtype = d.shape(2, 3), d.pick(*FLOATS, torch.int32)
    match name:
        case "one_hot":
            return "aten::one_hot", (d.index(d.shape(0, 2), 5), d.pick(5, 9))
        case "flip":
            return "aten::flip", (d.tensor(shape, dtype), d.dims(shape))
        case "fill":
            return "aten::fill.Scalar", (d.tensor(shape, dtype), 3)
        case "zero":
            return "aten::zero", (d.tensor(shape, dtype),)
    return f"aten::{name}", (d.tensor(shape, dtype), d.number(-4, 4))


@family("cat", "concat", "stack", "vstack", "constant_pad_nd", "pad", "reflection_pad1d", "reflection_pad2d",
        "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d")  # fmt: skip
def joins(d: Draws, name: str) -> Any:
    shape, dtype = d.shape(1, 3), d.pick(*MOVED)
    dim = d.dim(shape)
    match name:
        case "cat" | "concat":
            sizes = [
                tuple(d.pick(*SIZES) if i == dim % len(shape) else n for i, n in enumerate(shape))
                for _ in range(d.number(1, 4))
            ]
            return f"aten::{name}", ([d.tensor(s, dtype) for s in sizes], dim)
        case "stack":
            return "aten::stack", ([d.tensor(shape, dtype) for _ in range(d.number(1, 3))], dim)
        case "vstack":
            shape = d.shape(2, 2)
            return "aten::vstack", ([d.tensor(shape, dtype), d.tensor(shape[1:], dtype)],)
        case "constant_pad_nd":
            pads = [d.number(-1 if shape[-1] > 3 else 0, 5) for _ in range(2)] + [
                d.number(0, 3) for _ in range(2 * (len(shape) - 1))
            ]
            return "aten::constant_pad_nd", (d.tensor(shape, dtype), pads, 1)
        case "pad":
            return "aten::pad", (d.tensor(shape, dtype), [d.number(0, 5), d.number(0, 5)], "constant", None)
    rank = int(name[-2])
    shape = (d.number(1, 3), d.number(1, 5), *(d.pick(4, 5, 9, 30) for _ in range(rank)))
    return f"aten::{name}", (d.tensor(shape, d.pick(F32, BF16)), [d.number(0, 3) for _ in range(2 * rank)])


@family("_to_copy", "clone", "copy", "contiguous", "repeat", "tile", "to", "convert_element_type")
def copies(d: Draws, name: str) -> Any:
    shape, dtype = d.shape(0, 4, empty=True), d.pick(*MOVED)
    x = d.tensor(shape, dtype, "positive")  # what a negative number becomes without a sign is undefined in torch
    match name:
        case "_to_copy":
            return "aten::_to_copy", (x, d.pick(*MOVED), None, None, None, False, None)
        case "to":
            return "aten::to.dtype", (x, d.pick(*MOVED), False, True, None)
        case "convert_element_type":
            return "prims::convert_element_type", (x, d.pick(*MOVED))
        case "copy":
            return "aten::copy", (x, d.other(shape, d.pick(*MOVED), "positive"), False)
        case "repeat" | "tile":
            shape = d.shape(1, 2)
            return f"aten::{name}", (d.tensor(shape, dtype), [d.number(1, 3) for _ in shape])
    return f"aten::{name}", (x, *((torch.contiguous_format,) if name == "contiguous" else ()))


@family("arange", "eye", "full", "full_like", "zeros", "zeros_like", "ones", "ones_like", "new_full", "new_ones",
        "new_zeros", "scalar_tensor")  # fmt: skip
def factories(d: Draws, name: str) -> Any:
    shape, dtype = d.shape(0, 3), d.pick(F32, BF16, torch.int32, torch.int64, torch.bool)
    rest = (dtype, None, None, None)
    match name:
        case "arange":
            low, step = d.pick(-3, 0, 5), d.pick(1, 3)
            return "aten::arange.start_step", (
                low,
                low + d.number(0, 900),
                step,
                d.pick(F32, torch.int64, torch.int32),
                None,
                None,
                None,
            )
        case "eye":
            return "aten::eye.m", (d.pick(1, 9, 130), d.pick(1, 12, 200), d.pick(F32, BF16), None, None, None)
        case "full":
            return "aten::full", (list(shape), 1, *rest)
        case "full_like":
            return "aten::full_like", (d.tensor(shape, F32), 1, *rest, None)
        case "scalar_tensor":
            return "aten::scalar_tensor", (1, *rest)
        case "new_full":
            return "aten::new_full", (d.tensor((2,), F32), list(shape), 1, *rest)
        case "new_ones" | "new_zeros":
            return f"aten::{name}", (d.tensor((2,), F32), list(shape), *rest)
        case "zeros_like" | "ones_like":
            return f"aten::{name}", (d.tensor(shape, F32), *rest, None)
    return f"aten::{name}", (list(shape), *rest)
