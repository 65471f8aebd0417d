"""From steps to instructions on the tiles of one iteration, and which engine does each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neuroncore.compiler.select import Argument, Key, Selection, Step
from neuroncore.isa import FUNCTION_TABLES, Access, Tile

if TYPE_CHECKING:
    from neuroncore.compiler.tile import Tiler

__all__ = ["StepEmitter"]

_INTEGERS = frozenset({"int32", "uint32"})


class StepEmitter:
    """Turns steps into instructions on the tiles of one iteration; shared by rows and product kernels."""

    def __init__(self, tiler: Tiler, selection: Selection) -> None:
        self.tiler, self.selection = tiler, selection
        self.row_width = 1  # values per partition of what is one value per row
        self.load_ns = {"Vector": 0.0, "Scalar": 0.0, "GpSimd": 0.0}
        tables = {FUNCTION_TABLES.get(s.fn, "") for s in selection.steps if s.form == "activation"}
        self.tables = {t for t in tables if t}

    def tile(self, key: Key) -> Tile:
        """The tile a value occupies in the current iteration."""
        raise NotImplementedError

    def in_psum(self, key: Key) -> bool:
        """Whether a value is in PSUM, out of GpSimd's reach."""
        return False

    def full(self, value: Argument, parts: int, width: int) -> Access:
        """A value as [parts, width]; one value per row is repeated."""
        assert isinstance(value, tuple)
        repeat = self.selection.by_row[value]
        if repeat and self.row_width > 1:
            again = width // self.row_width
            pattern = ((1, width),) if again == 1 else ((1, self.row_width), (0, again))
            return self.tile(value).access((0, parts), pattern)
        return self.tile(value).access((0, parts), ((0 if repeat and width > 1 else 1, width),))

    def column(self, value: Argument, parts: int) -> Access | float:
        """A number or one value per row."""
        if not isinstance(value, tuple):
            return value
        return self.tile(value).access((0, parts), ((1, 1),))

    def result(self, key: Key, parts: int, width: int) -> Access:
        """Where a step writes."""
        return self.tile(key).access((0, parts), ((1, width),))

    def step(self, step: Step, parts: int, columns: int) -> None:
        """Emit one step for a tile of `parts` rows and `columns` columns."""
        by_row = self.selection.by_row[step.out]
        width = self.row_width if by_row else columns
        emit = self.tiler.emit
        with self.tiler.builder.op(step.op, step.source):
            if step.form == "reduce":
                self._reduce(step, parts, columns)
                return
            if step.form == "moments":
                self.moments(step, parts, columns)
                return
            dst = self.result(step.out, parts, width)
            if step.form == "fill":
                value = step.x
                if self.selection.dtypes[step.out] in _INTEGERS and isinstance(value, float) and value.is_integer():
                    value = int(value)  # a float would be rounded to fp32's 24 bits
                emit("memset", dst=dst, value=value, engine="Vector")
            elif step.form == "copy":
                engine = self._engine(step, width)
                if engine == "Vector":
                    emit("tensor_copy", dst=dst, data=self.full(step.x, parts, width), engine="Vector")
                else:
                    emit("activation", dst=dst, data=self.full(step.x, parts, width), op="copy")
            elif step.form == "activation":
                self._activation(step, dst, parts, width)
            elif step.form == "scalar":
                self._scalar(step, dst, parts, width)
            elif step.form == "pair":
                emit(
                    "scalar_tensor_tensor", dst=dst, data=self.full(step.x, parts, width), op0=step.fn,
                    operand0=self.column(step.a if step.a is not None else 0.0, parts), reverse0=step.reverse,
                    op1=step.fn1, operand1=self.full(step.b if step.b is not None else 0.0, parts, width),
                    reverse1=step.reverse1,
                )  # fmt: skip
                self._busy("Vector", 2 * width)
            elif step.form == "tensor":
                assert step.a is not None
                integers = self.selection.dtypes[step.out] in _INTEGERS and step.fn in (
                    "add",
                    "subtract",
                    "multiply",
                    "max",
                    "min",
                )
                engine = "GpSimd" if integers or step.fn == "power" else self._pair_engine(step, width)
                emit(
                    "tensor_tensor", dst=dst, data1=self.full(step.x, parts, width),
                    data2=self.full(step.a, parts, width),
                    op=step.fn, engine=engine,
                )  # fmt: skip
            elif step.form == "choose":
                assert step.a is not None and step.b is not None
                emit(
                    "select_reduce", dst=dst, predicate=self.full(step.x, parts, width),
                    on_true=self.full(step.a, parts, width),
                    on_false=self.column(step.b, parts), reverse_pred=step.reverse,
                )  # fmt: skip
                self._busy("Vector", 2 * width)
            elif step.form == "merge":
                assert step.a is not None
                emit(
                    "tensor_copy_predicated", dst=dst, data=self.full(step.a, parts, width),
                    predicate=self.full(step.x, parts, width),
                )  # fmt: skip
                self._busy("Vector", 2 * width)
            else:
                raise AssertionError(step.form)

    def _activation(self, step: Step, dst: Access, parts: int, width: int) -> None:
        emit = self.tiler.emit
        data = self.full(step.x, parts, width)
        plain = step.a is None and step.b is None and step.total is None
        if plain and step.fn == "reciprocal" and (self.tables - {"reciprocal"}) and 7 * width < 3000:
            emit("reciprocal", dst=dst, data=data)  # cheaper than two table switches
            self._busy("Vector", 8 * width)
            return
        if plain and step.fn == "square" and self._engine(step, width) == "Vector":
            emit("tensor_tensor", dst=dst, data1=data, data2=data, op="multiply", engine="Vector")
            return
        if plain and step.fn == "relu" and self._engine(step, width) == "Vector":
            emit("tensor_scalar", dst=dst, data=data, op0="max", operand0=0.0, engine="Vector")
            return
        extra: dict[str, object] = {}
        if step.a is not None:
            extra["scale"] = self.column(step.a, parts)
        if step.b is not None:
            extra["bias"] = self.column(step.b, parts)
        if step.total is not None:
            extra["reduce_res"] = self.total(step.total, parts)
            extra["reduce_op"] = "add"
        emit("activation", dst=dst, data=data, op=step.fn, **extra)
        if not plain or step.fn not in ("square", "relu"):
            self._busy("Scalar", width)

    def _scalar(self, step: Step, dst: Access, parts: int, width: int) -> None:
        assert step.a is not None
        extra: dict[str, object] = {}
        if step.fn1:
            assert step.b is not None
            extra = {"op1": step.fn1, "operand1": self.column(step.b, parts), "reverse1": step.reverse1}
        engine = "Vector"
        if (step.fn, step.fn1) in (("multiply", ""), ("multiply", "add"), ("add", "")) and width > 1:
            engine = self._engine(step, width)
        else:
            self._busy("Vector", width)
        self.tiler.emit(
            "tensor_scalar", dst=dst, data=self.full(step.x, parts, width), op0=step.fn,
            operand0=self.column(step.a, parts), reverse0=step.reverse, engine=engine, **extra,
        )  # fmt: skip

    def _reduce(self, step: Step, parts: int, columns: int) -> None:
        dst = self.total(step.out, parts)
        data = self.full(step.x, parts, columns)
        if self.row_width > 1:
            length = columns // self.row_width
            repeated = isinstance(step.x, tuple) and self.selection.by_row[step.x]  # one value stands for its row
            free = ((1, self.row_width), (0, length)) if repeated else ((length, self.row_width), (1, length))
            data = replace(data, free=free)
            self.tiler.emit("tensor_reduce", dst=dst, data=data, op=step.fn, axes=1, negate=step.negate)
            self._busy("Vector", columns)
            return
        if step.fn == "add" and not step.negate and self._engine(step, columns) == "Scalar":
            # ScalarE sums what it copies; the copy goes to a tile nobody reads.
            junk = self.junk(columns)
            self.tiler.emit(
                "activation",
                dst=junk.access((0, parts), ((1, columns),)),
                data=data,
                op="copy",
                reduce_res=dst,
                reduce_op="add",
            )
            return
        self.tiler.emit("tensor_reduce", dst=dst, data=data, op=step.fn, axes=len(data.free), negate=step.negate)
        if step.fn != "add" or step.negate:
            self._busy("Vector", columns)

    def moments(self, step: Step, parts: int, columns: int) -> None:
        """Mean and variance of a tile's rows; only rows kernels have them."""
        raise NotImplementedError

    def total(self, key: Key, parts: int) -> Access:
        """Where a reduction puts its result."""
        return self.result(key, parts, self.row_width)

    def junk(self, columns: int) -> Tile:
        """A tile whose contents nobody reads."""
        raise NotImplementedError

    # -- engine choice -------------------------------------------------------------------------------------------------

    def _half(self, step: Step) -> bool:
        keys = [*step.inputs(), step.out]
        return all(self.selection.dtypes[k] in ("bf16", "fp16") for k in keys)

    def _pair_engine(self, step: Step, width: int) -> str:
        """Vector, or GpSimd where a kernel has so much work on two tiles that Vector alone would be the bottleneck."""
        heavy = sum(s.form in ("tensor", "pair", "choose", "merge") and not self._half(s) for s in self.selection.steps)
        single = self._half(step) or any(self.in_psum(key) for key in step.inputs())
        cycles = {"Vector": (1 if single else 2) * width, "GpSimd": 150 + 2 * width}
        engine = "Vector"
        reachable = not any(self.in_psum(key) for key in step.inputs())
        if heavy > 1 and width >= 512 and reachable and not self._half(step):
            clock = self.tiler.target.clock_hz
            engine = min(cycles, key=lambda e: (self.load_ns[e] + cycles[e] / clock(e) * 1e9, e == "GpSimd"))
        self._busy(engine, cycles[engine])
        return engine

    def _busy(self, engine: str, cycles: float) -> None:
        self.load_ns[engine] += max(64.0, cycles) / self.tiler.target.clock_hz(engine) * 1e9

    def _engine(self, step: Step, width: int) -> str:
        """Vector or Scalar, whichever would be finished first; short work counts its latency."""
        target = self.tiler.target
        two = 2.0 if step.form == "activation" and step.fn == "square" and not self._half(step) else 1.0
        fast = 4.0 if target.neuroncore_version >= 3 and self._half(step) and step.form in ("copy", "scalar") else 1.0
        if step.form == "activation" and step.fn == "relu" and self._half(step) and target.neuroncore_version >= 3:
            fast = 4.0
        costs = {
            "Vector": (max(64.0, width * two / fast) + target.vector_latency_cycles) / target.vector_clock_hz * 1e9,
            "Scalar": (max(64.0, width) + target.scalar_latency_cycles) / target.scalar_clock_hz * 1e9,
        }
        if target.neuroncore_version < 3 and step.form == "scalar":
            del costs["Scalar"]
        if step.form == "copy" and self.selection.dtypes[step.out] in _INTEGERS:
            del costs["Scalar"]  # ScalarE goes through fp32
        engine = min(costs, key=lambda e: (self.load_ns[e] + costs[e], e == "Scalar"))
        cycles = width * two / fast if engine == "Vector" else width
        self._busy(engine, cycles)
        return engine
