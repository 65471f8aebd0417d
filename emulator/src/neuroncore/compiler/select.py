"""Instruction selection for rows kernels: primitives become steps, one per instruction, on named values.

What pays (reference/hw/compile_rules.md section 7) is done here, greedily and in one walk: a factor and an addend fold
into an
activation's scale and bias, two scalar operators share a tensor_scalar, a scalar operator before a two-tile operator
becomes a scalar_tensor_tensor, a sum folds into the activation that makes its input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from neuroncore.compiler.fuse import Kernel, Kernels, layout_of
from neuroncore.compiler.ir import Map, Operand, Prim, Reduce, writes
from neuroncore.compiler.views import View, collapse

__all__ = ["BITWISE", "Key", "Selection", "Step", "chip_dtype", "select"]

#: A value: ("buffer", n) made in the kernel, ("load", view, "full" or "row") read from HBM, ("temp", n) in between.
Key = tuple[object, ...]
Argument = Key | float

_COMMUTATIVE = frozenset(
    {"add", "multiply", "max", "min", "equal", "not_equal", "logical_and", "logical_or", "logical_xor"}
)
_SCALABLE = frozenset(
    {"exp", "log", "sqrt", "rsqrt", "sigmoid", "tanh", "silu", "relu", "abs", "reciprocal", "erf", "sin", "sign",
     "square", "softplus", "gelu", "gelu_apprx_tanh"}
)  # fmt: skip
_POWERS = {"rsqrt": -0.5, "sqrt": 0.5, "reciprocal": -1.0}
_HALF = frozenset({"bf16", "fp16"})
_WIDE_INTEGERS = frozenset({"int32", "uint32"})
_COMPARISONS = frozenset({"equal", "not_equal", "greater", "greater_equal", "less", "less_equal"})
#: Integers from here on are rounded in fp32.
_EXACT = 2.0**24
#: On bits as they are, at any width.
BITWISE = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor"})
_INTEGER_OPS = frozenset({"add", "subtract", "multiply", "max", "min"})


def chip_dtype(dtype: str) -> str:
    """Dtype a value has on chip: 64-bit types are computed in 32 bits and stored back as 64."""
    return {"int64": "int32", "fp64": "fp32"}.get(dtype, dtype)


@dataclass(frozen=True)
class Step:
    """One instruction on values. Unused fields are None.

    `form` is activation, scalar (tensor_scalar), pair (scalar_tensor_tensor), tensor (tensor_tensor), reduce, copy,
    fill, choose (select_reduce) or merge (copy and tensor_copy_predicated).
    """

    form: str
    out: Key
    x: Argument = 0.0
    fn: str = ""
    a: Argument | None = None
    reverse: bool = False
    fn1: str = ""
    b: Argument | None = None
    reverse1: bool = False
    total: Key | None = None
    negate: bool = False
    op: str = ""
    source: str = ""

    def inputs(self) -> list[Key]:
        """The values it reads."""
        return [v for v in (self.x, self.a, self.b) if isinstance(v, tuple)]

    def outputs(self) -> list[Key]:
        """The values it writes."""
        return [self.out, *([self.total] if self.total is not None else [])]


@dataclass(frozen=True)
class Selection:
    """Steps of a kernel, the dtype on chip of every value, whether a value is one per row, and what is stored."""

    steps: tuple[Step, ...]
    dtypes: dict[Key, str]
    by_row: dict[Key, bool]
    stores: tuple[tuple[Key, View], ...]


class _Selector:
    def __init__(self, kernels: Kernels, kernel: Kernel, packed: bool, near: frozenset[View]) -> None:
        self.kernels, self.kernel, self.packed, self.near = kernels, kernel, packed, near
        #: Source of a mean and a variance → the two values.
        self.moments: dict[Key, tuple[Key, Key]] = {}
        self.steps: list[Step | None] = []
        self.dtypes: dict[Key, str] = {}
        self.by_row: dict[Key, bool] = {}
        self.made: dict[Key, int] = {}  # value → step that makes it
        self.uses: dict[Key, int] = {}
        #: Buffers written by an earlier primitive (an input updated in place is read first): what of them.
        self.own: dict[int, list[View]] = {}
        written = [next(writes(p)).buffer for p in kernel.prims]
        #: Buffers that several primitives write, a part each.
        self.parted = {b for b in written if written.count(b) > 1}
        self.stores: list[tuple[Key, View]] = []
        self.temps = 0
        self.prim: Prim = kernel.prims[0]

    def run(self) -> Selection:
        for prim in self.kernel.prims:
            for value in self._operands(prim):
                if isinstance(value, tuple):
                    self.uses[value] = self.uses.get(value, 0) + 1
            out = next(writes(prim))
            self.own.setdefault(out.buffer, []).append(out)
            if out.buffer in self.kernels.kept:
                key = self._made(out)
                self.uses[key] = self.uses.get(key, 0) + 1
                self.stores.append((key, out))
        self.own.clear()
        for prim in self.kernel.prims:
            self.prim = prim
            if isinstance(prim, Map):
                self._map(prim)
            elif isinstance(prim, Reduce):
                self._reduce(prim)
            else:  # the contraction of a product kernel: its result is already there
                key = self._made(next(writes(prim)))
                self.dtypes[key], self.by_row[key] = "fp32", False
            self.own.setdefault(next(writes(prim)).buffer, []).append(next(writes(prim)))
        steps = tuple(s for s in self.steps if s is not None)
        return Selection(steps, self.dtypes, self.by_row, tuple(self.stores))

    def _made(self, view: View) -> Key:
        """The value that is written to a view, or read from where it was written."""
        if view.buffer not in self.parted:
            return ("buffer", view.buffer)
        axes = view.offset, collapse(view.shape, (view.strides,))
        for part in self.own.get(view.buffer, ()):
            if (part.offset, collapse(part.shape, (part.strides,))) == axes:
                return ("buffer", view.buffer, part)
        return ("buffer", view.buffer, view)

    # -- values --------------------------------------------------------------------------------------------------------

    def _in_rows(self, prim: Prim) -> bool:
        return isinstance(prim, Map) and prim.out.elements == self.kernel.rows and self.kernel.cols > 1

    def _operands(self, prim: Prim) -> list[Argument]:
        if isinstance(prim, Map):
            return [self._key(v, self._in_rows(prim)) for v in prim.ins]
        return [self._key(prim.src, False)] if isinstance(prim, Reduce) else []

    def _key(self, value: Operand, in_rows: bool) -> Argument:
        if not isinstance(value, View):
            return value
        if value.buffer in self.own:
            return self._made(value)
        layout = layout_of(value, self.kernel.rows, 1 if in_rows else self.kernel.cols)
        assert layout is not None
        by_row = in_rows or layout.by_row
        key: Key = ("load", value, "row" if by_row else "full")
        self.dtypes[key] = chip_dtype(self.kernels.buffers[value.buffer].dtype)
        self.by_row[key] = by_row
        return key

    def _row(self, value: Argument) -> bool:
        """Usable as the scalar operand of an instruction: a number, or one value per row where a row is a partition."""
        return not isinstance(value, tuple) or (self.by_row[value] and not self.packed)

    def _narrow(self, value: Argument) -> bool:
        """A number or one value per row."""
        return not isinstance(value, tuple) or self.by_row[value]

    def _result(self, view: View, by_row: bool) -> Key:
        key = self._made(view)
        self.dtypes[key] = chip_dtype(self.kernels.buffers[view.buffer].dtype)
        self.by_row[key] = by_row
        return key

    def _temp(self, dtype: str, by_row: bool) -> Key:
        self.temps += 1
        key: Key = ("temp", self.temps)
        self.dtypes[key], self.by_row[key], self.uses[key] = dtype, by_row, 1
        return key

    def _emit(self, step: Step) -> None:
        step = replace(step, op=_together(step.op, self.prim.op), source=self.prim.source)
        for key in step.outputs():
            self.made[key] = len(self.steps)
        self.steps.append(step)

    def _foldable(self, value: Argument, form: str) -> Step | None:
        """The step that makes a value used only once, when it can be merged into its user."""
        if not isinstance(value, tuple) or self.uses.get(value, 0) != 1 or value not in self.made:
            return None
        step = self.steps[self.made[value]]
        return step if step is not None and step.form == form and step.total is None and step.out == value else None

    def _remove(self, step: Step) -> None:
        self.steps[self.made.pop(step.out)] = None

    # -- primitives ----------------------------------------------------------------------------------------------------

    def _map(self, prim: Map) -> None:
        in_rows = self._in_rows(prim)
        args = [self._key(v, in_rows) for v in prim.ins]
        out = self._result(prim.out, in_rows)
        if prim.fn == "copy":
            self._copy(args[0], out)
        elif prim.fn == "select":
            self._select(args[0], args[1], args[2], out)
        elif len(args) == 1:
            self._activation(prim.fn, args[0], out)
        elif args[0] == args[1] and isinstance(args[0], tuple) and prim.fn == "multiply" and not self._wide(args[0]):
            self.uses[args[0]] -= 1
            self._activation("square", args[0], out)
        else:
            self._binary(prim.fn, args[0], args[1], out)

    def _copy(self, x: Argument, out: Key) -> None:
        if not isinstance(x, tuple):
            self._emit(Step("fill", out, x))
        else:
            self._emit(Step("copy", out, x))

    def _activation(self, fn: str, x: Argument, out: Key) -> None:
        if self.by_row[out] and fn in _POWERS and self._row(x):
            # Few elements: Vector's power spares ScalarE a function table load (1.3 us) and the change of engine.
            self._binary("power", x, _POWERS[fn], out)
            return
        scale: Argument | None = None
        bias: Argument | None = None
        merged = ""
        if fn in _SCALABLE:
            step = self._foldable(x, "scalar")
            folded = _as_affine(step) if step is not None else None
            if step is not None and folded is not None:
                scale, bias, negated = folded
                if negated and isinstance(bias, tuple):
                    bias = self._negated(bias)
                if not negated or bias is not None:
                    self._remove(step)
                    x, merged = step.x, step.op
                else:
                    scale = bias = None
        self._emit(Step("activation", out, x, fn, scale, b=bias, op=merged))

    def _negated(self, bias: Key) -> Argument | None:
        """Minus a row value: free when its only use is here and a reduction makes it."""
        step = self._foldable(bias, "reduce")
        if step is None:
            return None
        self.steps[self.made[bias]] = replace(step, negate=not step.negate)
        return bias

    def _wide(self, value: Argument) -> bool:
        return isinstance(value, tuple) and self.dtypes[value] in _WIDE_INTEGERS

    def _binary(self, fn: str, x: Argument, y: Argument, out: Key) -> None:
        if fn in BITWISE or (self.dtypes[out] in _WIDE_INTEGERS and fn in _INTEGER_OPS):
            # Exact integer arithmetic is GpSimd's, on two tiles of one dtype.
            x, y = (self._integer(v, self.dtypes[out]) for v in (x, y))
            self._emit(Step("tensor", out, x, fn, y))
            return
        if fn in _COMPARISONS and (self._large(x) and self._large(y)):
            # Engines compare in fp32; the difference is exact (as long as it fits 32 bits), and so is its sign.
            difference = self._temp("int32", self._narrow(x) and self._narrow(y))
            left, right = (self._integer(v, "int32") for v in (x, y))
            self._emit(Step("tensor", difference, left, "subtract", right))
            x, y = difference, 0.0
        if not isinstance(x, tuple) and not isinstance(y, tuple):
            x = self._filled(x, self.by_row[out])
        reverse = False
        if self._row(x) and (not self._row(y) or not isinstance(x, tuple)):
            x, y, reverse = y, x, fn not in _COMMUTATIVE
        if self._row(y):
            step = self._foldable(x, "scalar")
            if step is not None and not step.fn1:
                self._remove(step)
                self._emit(replace(step, out=out, fn1=fn, b=y, reverse1=reverse))
            else:
                self._emit(Step("scalar", out, x, fn, y, reverse))
            return
        # What is read from PSUM costs a pass of its own no more than one of two, and leaves the scalar step to ScalarE.
        apart = self._near(x) or self._near(y)
        for first, second, swapped in () if apart else ((x, y, False), (y, x, True)):
            step = self._foldable(first, "scalar")
            if step is not None and not step.fn1 and not self._all_half(step, second, out) and step.x != second:
                self._remove(step)
                self._emit(
                    replace(step, form="pair", out=out, fn1=fn, b=second, reverse1=swapped and fn not in _COMMUTATIVE)
                )
                return
        self._emit(Step("tensor", out, x, fn, y))

    def _near(self, value: Argument) -> bool:
        """Whether a value is kept in PSUM."""
        return isinstance(value, tuple) and value[0] == "load" and value[1] in self.near

    def _all_half(self, step: Step, second: Argument, out: Key) -> bool:
        """Two fast passes over 16-bit data beat one slow one (performance modes of NeuronCore-v3)."""
        keys = [v for v in (step.x, step.out, second, out) if isinstance(v, tuple)]
        return all(self.dtypes[k] in _HALF for k in keys)

    def _large(self, value: Argument) -> bool:
        """Whether a value may be an integer beyond fp32's 24 bits. Indices made on chip are taken as smaller."""
        if not isinstance(value, tuple):
            return abs(value) >= _EXACT
        made = value[0] == "load" and isinstance(value[1], View) and self.kernels.buffers[value[1].buffer].made
        return self.dtypes[value] in _WIDE_INTEGERS and not made

    def _integer(self, value: Argument, dtype: str) -> Key:
        if isinstance(value, tuple) and self.dtypes[value] == dtype:
            return value
        temp = self._temp(dtype, self._narrow(value))
        self._emit(Step("copy", temp, value) if isinstance(value, tuple) else Step("fill", temp, float(value)))
        return temp

    def _filled(self, value: float, by_row: bool) -> Key:
        temp = self._temp("fp32", by_row)
        self._emit(Step("fill", temp, value))
        return temp

    def _select(self, mask: Argument, on_true: Argument, on_false: Argument, out: Key) -> None:
        if not isinstance(mask, tuple) or self.dtypes[mask] not in ("bool", "uint8", "int8", "uint16", "int16"):
            temp = self._temp("uint8", self._narrow(mask))
            self._binary("not_equal", mask, 0.0, temp)
            mask = temp
        if not self._wide(out):
            for value, other, flipped in ((on_true, on_false, False), (on_false, on_true, True)):
                if isinstance(value, tuple) and not self._wide(value) and self._row(other):
                    self._emit(Step("choose", out, mask, a=value, b=other, reverse=flipped))
                    return
            if self._row(on_true) and self._row(on_false):
                self._emit(Step("choose", out, mask, a=self._column(on_true), b=on_false))
                return
        typed = on_true
        if not isinstance(on_true, tuple):
            typed = self._temp(self.dtypes[out], True)
            self._emit(Step("fill", typed, on_true))
        elif self.dtypes[on_true] != self.dtypes[out]:
            typed = self._temp(self.dtypes[out], self.by_row[on_true])
            self._emit(Step("copy", typed, on_true))
        self._emit(Step("fill" if not isinstance(on_false, tuple) else "copy", out, on_false))
        self._emit(Step("merge", out, mask, a=typed))

    def _column(self, value: Argument) -> Key:
        return value if isinstance(value, tuple) else self._filled(value, True)

    def _reduce(self, prim: Reduce) -> None:
        x = self._key(prim.src, False)
        assert isinstance(x, tuple)
        out = self._result(prim.out, True)
        if prim.fn in ("mean", "variance"):
            self._moment(prim, x, out)
            return
        target = out if prim.scale == 1.0 else self._temp("fp32", True)
        maker = self.made.get(x)
        step = self.steps[maker] if maker is not None else None
        if (
            prim.fn == "add"
            and not self.packed
            and step is not None
            and step.form == "activation"
            and step.total is None
            and maker is not None
        ):
            self.steps[maker] = replace(step, total=target, op=_together(step.op, prim.op))
            self.made[target] = maker
            self.uses[x] -= 1
        else:
            self._emit(Step("reduce", target, x, prim.fn))
        if target != out:
            self._binary("multiply", target, prim.scale, out)

    def _moment(self, prim: Reduce, x: Key, out: Key) -> None:
        """Mean or variance of the rows of a value; both are found together, or by two sums where rows are packed."""
        count = 1.0 / self.kernel.cols
        if x not in self.moments:
            mean, variance = self._temp("fp32", True), self._temp("fp32", True)
            self.moments[x] = mean, variance
            if not self.packed:
                self._emit(Step("moments", mean, x, total=variance))
            else:
                total, squares = self._temp("fp32", True), self._temp("fp32", True)
                centred, square = self._temp("fp32", False), self._temp("fp32", False)
                self._emit(Step("reduce", total, x, "add"))
                self._emit(Step("scalar", mean, total, "multiply", count))
                self._emit(Step("tensor", centred, x, "subtract", mean))
                self._emit(Step("activation", square, centred, "square"))
                self._emit(Step("reduce", squares, square, "add"))
                self._emit(Step("scalar", variance, squares, "multiply", count))
        found = self.moments[x][prim.fn == "variance"]
        self.uses[found] = self.uses.get(found, 0) + 1  # never folded into what reads it
        self._emit(Step("scalar", out, found, "multiply", prim.scale))


def _together(before: str, op: str) -> str:
    """The ops one instruction carries, joined by " + " in the order of the graph."""
    names = before.split(" + ") if before else []
    return " + ".join([*names, *([] if op in names else [op])])


def _as_affine(step: Step) -> tuple[Argument | None, Argument | None, bool] | None:
    """(scale, bias, bias needs a minus) of a tensor_scalar step, or None when it is not x*scale + bias."""
    if step.fn == "multiply":
        scale: Argument | None = step.a
        if not step.fn1:
            return scale, None, False
        if step.fn1 == "add":
            return scale, step.b, False
        if step.fn1 == "subtract" and not step.reverse1:
            return (scale, -step.b, False) if isinstance(step.b, float) else (scale, step.b, True)
        return None
    if step.fn1:
        return None
    if step.fn == "add":
        return None, step.a, False
    if step.fn == "subtract":
        if step.reverse:
            return -1.0, step.a, False
        return (None, -step.a, False) if isinstance(step.a, float) else (None, step.a, True)
    return None


def select(kernels: Kernels, kernel: Kernel, *, packed: bool = False, near: frozenset[View] = frozenset()) -> Selection:
    """Steps for a rows kernel, or for the maps behind a product.

    Args:
        kernels: the module it belongs to.
        kernel: what to select for.
        packed: several rows share a partition, so that a value per row is no scalar operand.
        near: views that will be kept in PSUM.
    """
    return _Selector(kernels, kernel, packed, near).run()
