"""The loop-level IR between ATen and tiles: a handful of primitives over views of flat HBM buffers.

Immutable. The dataclasses below are all there is; every ATen op is written in them
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
    """A flat piece of HBM. `kind` is input, output or temp; `position` is its place among the inputs or outputs.

    Two kinds have no memory, a kernel that reads them makes their elements on chip: `iota` (int32, element i is i, so
    that a strided view is any affine index) and `random` (uint32, uniform bits; a view of it is read once).
    """

    name: str
    kind: str
    dtype: str
    elements: int
    position: int = -1

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return 0 if self.made else self.elements * DTYPE_BYTES[self.dtype]

    @property
    def made(self) -> bool:
        """Whether its elements are made on chip where they are read."""
        return self.kind in ("iota", "random")


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
    """out[k...] = scale * fold of fn over the last `axes` axes of `src` (shape: kept axes, then reduced axes).

    Besides operators fn is "mean" or "variance" (of the population, by the mean of the same `src`).
    """

    fn: str
    src: View
    axes: int
    out: View
    op: str
    scale: float = 1.0
    source: str = field(default="", compare=False)


@dataclass(frozen=True)
class Contract:
    """out[b, m, n] = sum over k of a[b, m, k] * b[b, k, n], accumulated in fp32.

    `a` and `b` may have several batch axes, whose product is out's one.
    """

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
class ScatterAdd:
    """table[index[i], :] += src[i, :], rows in order; `table` is updated in place, repeated indices add up."""

    table: View
    index: View
    src: View
    op: str
    source: str = field(default="", compare=False)


@dataclass(frozen=True)
class Scatter:
    """table[index[i], :] = src[i, :]; `table` is updated in place, indices are distinct."""

    table: View
    index: View
    src: View
    op: str
    source: str = field(default="", compare=False)


@dataclass(frozen=True)
class Convolve:
    """A 2-D convolution, by `form`.

    Forward: out[n, o, y, x] = bias[o] + sum over c, i, j of src[n, c, p(y, i), p(x, j)] * weight[o, c, i, j], where
    p(y, i) = (y*stride + i*dilation - padding) / spread; positions outside `src` or between its elements (`spread` > 1,
    the gradient of a strided convolution) are zero. Gradient: the same with weight[c, o, -1-i, -1-j]. Weight:
    out[o, c, i, j] = sum over n, y, x of weight[n, o, y, x] * src[n, c, p(y, i), p(x, j)], `weight` being the gradient
    of the output.
    """

    form: str
    src: View
    weight: View
    out: View
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    op: str
    bias: View | None = None
    spread: tuple[int, int] = (1, 1)
    source: str = field(default="", compare=False)

    @property
    def flops(self) -> int:
        """Multiplications and additions; what the zeros between spread elements cost does not count."""
        if self.form == "weight":
            return 2 * self.weight.elements * self.src.shape[1] * self.out.shape[2] * self.out.shape[3]
        spread = self.spread[0] * self.spread[1]
        return 2 * self.out.elements * self.weight.elements // self.weight.shape[0] // spread


@dataclass(frozen=True)
class Attend:
    """out = softmax(scale * q k^T + bias) v for every query row; scores never reach HBM.

    q [b, h, m, d], k [b, g, n, d], v [b, g, n, e] with h a multiple of g, out [b, h, m, e]; `rows` [b, h, m] gets the
    logarithm of each row's sum of exponentials. `bias` [b, h, m, n] is added to the scaled scores, or, when it is bool,
    hides those that are false; with `causal` query i sees the keys up to i.
    """

    q: View
    k: View
    v: View
    out: View
    rows: View
    scale: float
    causal: bool
    op: str
    bias: View | None = None
    source: str = field(default="", compare=False)

    @property
    def flops(self) -> int:
        """Of the two products, hidden scores included."""
        return 2 * self.q.elements * self.k.shape[2] + 2 * self.out.elements * self.k.shape[2]


@dataclass(frozen=True)
class AttendGradient:
    """The gradients of `Attend` for q, k and v, from its result, its `rows` and the gradient of the result."""

    grad: View
    q: View
    k: View
    v: View
    out: View
    rows: View
    dq: View
    dk: View
    dv: View
    scale: float
    causal: bool
    op: str
    bias: View | None = None
    source: str = field(default="", compare=False)

    @property
    def flops(self) -> int:
        """Of the five products, hidden scores included."""
        return 2 * self.k.shape[2] * (3 * self.q.elements + 2 * self.out.elements)


@dataclass(frozen=True)
class TopK:
    """The largest (or smallest) of every row of src [rows, n] in order: values and indices [rows, k], contiguous."""

    src: View
    values: View
    indices: View
    largest: bool
    op: str
    source: str = field(default="", compare=False)


@dataclass(frozen=True)
class Scan:
    """out[r, i] = out[r, i-1] fn src[r, i] along every row of src [rows, n], in fp32; fn is add or multiply."""

    fn: str
    src: View
    out: View
    op: str
    source: str = field(default="", compare=False)


@dataclass(frozen=True)
class Pool:
    """Windows of planes, by `form`, every view [planes, height, width] and contiguous.

    max: outs (largest, its place in the plane) of ins (planes,). average: outs (mean,) of ins (planes,). max_gradient:
    outs (gradient of the planes,) of ins (gradient, places); average_gradient: of ins (gradient,). An average divides
    by `divisor`, or if that is 0 by the elements of the window that lie in the plane, or in its padding with `padded`.
    """

    form: str
    ins: tuple[View, ...]
    outs: tuple[View, ...]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    op: str
    divisor: int = 0
    padded: bool = True
    source: str = field(default="", compare=False)

    @property
    def plane(self) -> tuple[int, int]:
        """Height and width of a plane."""
        view = self.outs[0] if "gradient" in self.form else self.ins[0]
        return view.shape[1], view.shape[2]

    @property
    def windows(self) -> tuple[int, int]:
        """Windows down and across."""
        view = self.ins[0] if "gradient" in self.form else self.outs[0]
        return view.shape[1], view.shape[2]


@dataclass(frozen=True)
class Estimate:
    """An op that can't be lowered yet: what it reads, what it writes, its flops, and why."""

    reads: tuple[View, ...]
    writes: tuple[View, ...]
    flops: int
    reason: str
    op: str
    source: str = field(default="", compare=False)


Prim = (
    Map
    | Reduce
    | Contract
    | Move
    | Gather
    | ScatterAdd
    | Scatter
    | Convolve
    | Attend
    | AttendGradient
    | TopK
    | Scan
    | Pool
    | Estimate
)


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
    elif isinstance(prim, Reduce | Move | TopK | Scan):
        yield prim.src
    elif isinstance(prim, Contract):
        yield from (prim.a, prim.b)
    elif isinstance(prim, Gather):
        yield from (prim.table, prim.index)
    elif isinstance(prim, Scatter | ScatterAdd):
        yield from (prim.table, prim.index, prim.src)
    elif isinstance(prim, Convolve):
        yield from (prim.src, prim.weight, *((prim.bias,) if prim.bias is not None else ()))
    elif isinstance(prim, Pool):
        yield from prim.ins
    elif isinstance(prim, Attend):
        yield from (prim.q, prim.k, prim.v, *((prim.bias,) if prim.bias is not None else ()))
    elif isinstance(prim, AttendGradient):
        yield from (prim.grad, prim.q, prim.k, prim.v, prim.out, prim.rows)
        yield from (prim.bias,) if prim.bias is not None else ()
    else:
        yield from prim.reads


def writes(prim: Prim) -> Iterator[View]:
    """The views a primitive writes."""
    if isinstance(prim, Map | Reduce | Contract | Convolve | Scan):
        yield prim.out
    elif isinstance(prim, Scatter | ScatterAdd):
        yield prim.table
    elif isinstance(prim, Move | Gather):
        yield prim.dst
    elif isinstance(prim, Attend):
        yield from (prim.out, prim.rows)
    elif isinstance(prim, Pool):
        yield from prim.outs
    elif isinstance(prim, TopK):
        yield from (prim.values, prim.indices)
    elif isinstance(prim, AttendGradient):
        yield from (prim.dq, prim.dk, prim.dv)
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
    if isinstance(prim, Scatter | ScatterAdd):
        name = "scatter" if isinstance(prim, Scatter) else "scatter_add"
        where = f"{format_view(prim.table)}, {format_view(prim.index)}"
        return f"{format_view(prim.table)} = {name}({where}, {format_view(prim.src)})  # {prim.op}"
    if isinstance(prim, Convolve):
        ins = ", ".join(map(format_view, reads(prim)))
        shape = f"stride={prim.stride}, padding={prim.padding}, dilation={prim.dilation}, spread={prim.spread}"
        return f"{format_view(prim.out)} = convolve_{prim.form}({ins}, {shape})  # {prim.op}"
    if isinstance(prim, Pool):
        outs, ins = (", ".join(map(format_view, views)) for views in (prim.outs, prim.ins))
        shape = f"kernel={prim.kernel}, stride={prim.stride}, padding={prim.padding}, dilation={prim.dilation}"
        return f"{outs} = pool_{prim.form}({ins}, {shape})  # {prim.op}"
    if isinstance(prim, Scan):
        return f"{format_view(prim.out)} = scan_{prim.fn}({format_view(prim.src)})  # {prim.op}"
    if isinstance(prim, TopK):
        outs = ", ".join(map(format_view, writes(prim)))
        return f"{outs} = {'largest' if prim.largest else 'smallest'}({format_view(prim.src)})  # {prim.op}"
    if isinstance(prim, Attend | AttendGradient):
        outs, ins = (", ".join(map(format_view, views)) for views in (writes(prim), reads(prim)))
        name = "attend" if isinstance(prim, Attend) else "attend_gradient"
        return f"{outs} = {name}({ins}, scale={prim.scale!r}, causal={prim.causal})  # {prim.op}"
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
