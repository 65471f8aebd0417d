"""The loop-level IR between ATen and tiles: a handful of primitives over views of flat HBM buffers.

Immutable. `Map`, `Reduce`, `Contract`, `Move` and `Estimate` are all there is; every ATen op is written in them
(`decompose.py`), fusion groups them (`fuse.py`), tiling turns groups into instructions on tiles (`tile.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from neuroncore.compiler.views import View
from neuroncore.graph import DTYPE_BYTES

Operand = View | float


@dataclass(frozen=True)
class Buffer:
    """A flat piece of HBM. `kind` is input, output or temp; `position` is its place among the inputs or outputs."""

    name: str
    kind: str
    dtype: str
    elements: int
    position: int = -1

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.elements * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class Map:
    """out[i] = fn(ins[i]...): every view has the shape of `out`; constants are floats."""

    fn: str
    ins: tuple[Operand, ...]
    out: View
    op: str
    source: str = field(default="", compare=False)


@dataclass(frozen=True)
class Reduce:
    """out[k...] = scale * fold of fn over the last `axes` axes of `src` (shape: kept axes, then reduced axes)."""

    fn: str
    src: View
    axes: int
    out: View
    op: str
    scale: float = 1.0
    source: str = field(default="", compare=False)


@dataclass(frozen=True)
class Contract:
    """out[b, m, n] = sum over k of a[b, m, k] * b[b, k, n], accumulated in fp32."""

    a: View
    b: View
    out: View
    op: str
    source: str = field(default="", compare=False)


@dataclass(frozen=True)
class Move:
    """dst[i] = src[i] by DMA alone, HBM to HBM, same dtype or cast in flight."""

    src: View
    dst: View
    op: str
    source: str = field(default="", compare=False)


@dataclass(frozen=True)
class Gather:
    """dst[i, :] = table[index[i], :]: rows of a two-dimensional table by a dense vector of indices."""

    table: View
    index: View
    dst: View
    op: str
    source: str = field(default="", compare=False)


@dataclass(frozen=True)
class Estimate:
    """An op that can't be lowered yet: what it reads, what it writes, its flops, and why."""

    reads: tuple[View, ...]
    writes: tuple[View, ...]
    flops: int
    reason: str
    op: str
    source: str = field(default="", compare=False)


Prim = Map | Reduce | Contract | Move | Gather | Estimate


@dataclass(frozen=True)
class Module:
    """A whole graph: buffers by number, primitives in execution order."""

    name: str
    buffers: tuple[Buffer, ...]
    prims: tuple[Prim, ...]


def reads(prim: Prim) -> Iterator[View]:
    """The views a primitive reads."""
    if isinstance(prim, Map):
        yield from (v for v in prim.ins if isinstance(v, View))
    elif isinstance(prim, Reduce | Move):
        yield prim.src
    elif isinstance(prim, Contract):
        yield from (prim.a, prim.b)
    elif isinstance(prim, Gather):
        yield from (prim.table, prim.index)
    else:
        yield from prim.reads


def writes(prim: Prim) -> Iterator[View]:
    """The views a primitive writes."""
    if isinstance(prim, Map | Reduce | Contract):
        yield prim.out
    elif isinstance(prim, Move | Gather):
        yield prim.dst
    else:
        yield from prim.writes


def format_module(module: Module) -> str:
    """The module as text, one primitive a line; the form golden files keep."""
    lines = [f"module {module.name}"]
    for number, buffer in enumerate(module.buffers):
        lines.append(f"  %{number} = {buffer.kind} {buffer.name}: {buffer.dtype}[{buffer.elements}]")
    lines += [f"  {format_prim(prim)}" for prim in module.prims]
    return "\n".join(lines) + "\n"


def format_prim(prim: Prim) -> str:
    """One primitive as text."""
    if isinstance(prim, Map):
        return f"{format_view(prim.out)} = {prim.fn}({', '.join(map(format_view, prim.ins))})  # {prim.op}"
    if isinstance(prim, Reduce):
        scale = "" if prim.scale == 1.0 else f" * {prim.scale!r}"
        return (
            f"{format_view(prim.out)} = reduce_{prim.fn}({format_view(prim.src)}, axes={prim.axes}){scale}  # {prim.op}"
        )
    if isinstance(prim, Contract):
        return f"{format_view(prim.out)} = contract({format_view(prim.a)}, {format_view(prim.b)})  # {prim.op}"
    if isinstance(prim, Move):
        return f"{format_view(prim.dst)} = move({format_view(prim.src)})  # {prim.op}"
    if isinstance(prim, Gather):
        return f"{format_view(prim.dst)} = gather({format_view(prim.table)}, {format_view(prim.index)})  # {prim.op}"
    outs, ins = (", ".join(map(format_view, views)) for views in (prim.writes, prim.reads))
    return f"{outs} = estimate({ins})  # {prim.op}: {prim.reason}"


def format_view(view: Operand) -> str:
    """`%3[4,512]`, with strides and offset when they are not the plain row-major ones."""
    if not isinstance(view, View):
        return repr(float(view))
    text = f"%{view.buffer}[{','.join(map(str, view.shape))}]"
    if not view.dense:
        text += f"@{view.offset}:({','.join(map(str, view.strides))})"
    return text
