"""What each instruction costs its engine, in cycles of that engine's clock, and the limits that need shapes.

The formulas are the published ones (nki.isa, SDK 2.26 documentation, the last with cost sections), with NeuronCore-v3's
performance modes on top; `reference/hw/isa.json` has the source of each. N = elements per partition, P = partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from neuroncore.errors import ProgramError
from neuroncore.isa.dtypes import DTYPE_BYTES, INT_DTYPES
from neuroncore.isa.program import Access, Instruction, Operand, Tensor, Tile

__all__ = ["Use", "performance_mode"]

#: Minimum issue interval of Vector, Scalar and Tensor instructions, cycles (SDK 2.26 documentation, MIN_II).
MIN_INTERVAL_CYCLES = 64
#: Start-up of every GpSimd instruction, cycles (same source, GPSIMD_START).
GPSIMD_START_CYCLES = 150
#: Reading the reduce registers, cycles (trainium_inferentia2_arch, act_read_accumulator).
READ_ACCUMULATOR_CYCLES = 64

_HALF = ("bf16", "fp16")
_NARROW_V4 = ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2")


@dataclass(frozen=True)
class Use:
    """One instruction together with what its cost and limits depend on: the buffers and the NeuronCore version."""

    instruction: Instruction
    buffers: Mapping[str, Tensor | Tile]
    generation: int

    @cached_property
    def operands(self) -> dict[str, Operand]:
        """Operands and attributes by name."""
        return dict(self.instruction.operands)

    def access(self, name: str) -> Access:
        """The access pattern called `name`."""
        value = self.operands[name]
        assert isinstance(value, Access)
        return value

    def memory(self, name: str) -> str:
        """HBM, SBUF or PSUM."""
        buffer = self.buffers[self.access(name).buffer]
        return buffer.memory if isinstance(buffer, Tile) else "HBM"

    def dtype(self, name: str) -> str:
        """The dtype of an access."""
        return self.access(name).dtype

    @property
    def n(self) -> int:
        """Elements per partition of the widest operand."""
        return max(a.free_elements for _, a in self.instruction.accesses())

    def narrow(self, *names: str) -> bool:
        """Whether all named operands have a dtype the performance modes take."""
        kinds = _NARROW_V4 if self.generation >= 4 else _HALF
        return all(self.dtype(name) in kinds for name in names)

    def contiguous(self, *names: str) -> bool:
        """Whether the innermost free dimension of all named operands has stride 1."""
        return all(not self.access(name).free or self.access(name).free[-1][0] == 1 for name in names)

    def in_sbuf(self, *names: str) -> bool:
        """Whether all named operands are in SBUF."""
        return all(self.memory(name) == "SBUF" for name in names)

    def fail(self, message: str) -> ProgramError:
        """An error about this instruction."""
        return ProgramError(f"{self.instruction.opcode} on {self.instruction.engine}: {message}")


def _strided(use: Use) -> float:
    """Port slow-down: an innermost stride above 16 bytes halves the bandwidth (trainium_inferentia2_arch)."""
    for _, access in use.instruction.accesses():
        if access.free and access.free[-1][1] > 1 and abs(access.free[-1][0]) * DTYPE_BYTES[access.dtype] > 16:
            return 2.0
    return 1.0


def _at_least_interval(cycles: float) -> float:
    return max(float(MIN_INTERVAL_CYCLES), cycles)


# Cycles ---------------------------------------------------------------------------------------------------------------


def vector(use: Use) -> float:
    """One input: N."""
    return _at_least_interval(use.n * _strided(use))


def activation(use: Use) -> float:
    """N, plus the accumulator read when it reduces."""
    reads = READ_ACCUMULATOR_CYCLES if use.operands.get("reduce_res") is not None else 0
    return _at_least_interval(use.n * _strided(use)) + reads


def vector_reduce_result(use: Use) -> float:
    """N plus the accumulator read."""
    return vector(use) + READ_ACCUMULATOR_CYCLES


def two_input(use: Use) -> float:
    """Two streams from memory: 2N."""
    return _at_least_interval(2 * use.n * _strided(use))


def gpsimd(use: Use) -> float:
    """150 + N."""
    return GPSIMD_START_CYCLES + use.n * _strided(use)


def find_index8(use: Use) -> float:
    """One input: N."""
    return _at_least_interval(use.access("data").free_elements)


def rng(use: Use) -> float:
    """N (estimated: no public figure)."""
    return gpsimd(use) if use.instruction.engine == "GpSimd" else vector(use)


def memset(use: Use) -> float:
    """N; zeros of 16 bits at twice the rate."""
    if use.instruction.engine == "GpSimd":
        return gpsimd(use)
    fast = use.operands["value"] == 0 and use.dtype("dst") in _HALF
    return _at_least_interval(use.n * _strided(use) / (2 if fast else 1))


def bn_aggr(use: Use) -> float:
    """13 cycles per triple."""
    return _at_least_interval(13 * use.n / 3)


def reciprocal(use: Use) -> float:
    """8N."""
    return _at_least_interval(8 * use.n)


def predicated(use: Use) -> float:
    """2N with both inputs in SBUF, N with one in PSUM."""
    names = [name for name in ("data", "on_true", "predicate") if name in use.operands]
    return two_input(use) if use.in_sbuf(*names) else vector(use)


def scalar_tensor_tensor(use: Use) -> float:
    """2N; N for bf16 subtract-multiply of an even count."""
    fast = (
        use.dtype("data") == use.dtype("operand1") == "bf16"
        and (use.operands["op0"], use.operands["op1"]) == ("subtract", "multiply")
        and use.n % 2 == 0
    )
    return vector(use) if fast else two_input(use)


def performance_mode(use: Use) -> float:
    """NeuronCore-v3's speed-up of Vector copies and tensor_scalar (trainium2_arch, "performance mode")."""
    if use.generation < 3 or not use.narrow("dst", "data"):
        return 1.0
    if use.in_sbuf("dst", "data"):
        return 4.0 if use.contiguous("dst", "data") else 2.0
    return 2.0 if use.contiguous("dst", "data") and ("SBUF" in (use.memory("dst"), use.memory("data"))) else 1.0


def tensor_copy(use: Use) -> float:
    """N, divided by the performance mode on Vector (v3+) and by two for 16 bits on Scalar (v4)."""
    engine = use.instruction.engine
    if engine == "GpSimd":
        return gpsimd(use)
    if engine == "Scalar":
        return _at_least_interval(
            use.n * _strided(use) / (2 if use.generation >= 4 and use.narrow("dst", "data") else 1)
        )
    return _at_least_interval(use.n * _strided(use) / performance_mode(use))


def tensor_scalar(use: Use) -> float:
    """As a copy: both operators for the price of one."""
    return tensor_copy(use)


def tensor_tensor(use: Use) -> float:
    """2N; N when one input is in PSUM or every operand has 16 bits."""
    if use.instruction.engine == "GpSimd":
        return GPSIMD_START_CYCLES + 2 * use.n
    if not use.in_sbuf("data1", "data2"):
        return vector(use)
    if use.generation >= 3 and use.narrow("dst", "data1", "data2"):
        return vector(use)
    bf16 = all(use.dtype(name) == "bf16" for name in ("dst", "data1", "data2"))
    simple = use.operands["op"] in ("add", "multiply", "subtract") and use.contiguous("dst", "data1", "data2")
    return vector(use) if bf16 and simple else two_input(use)


def tensor_reduce(use: Use) -> float:
    """N; N/2 for bf16 add and max."""
    fast = use.dtype("data") == use.dtype("dst") == "bf16" and use.operands["op"] in ("add", "max")
    return _at_least_interval(use.n * _strided(use) / (2 if fast else 1))


def tensor_partition_reduce(use: Use) -> float:
    """150 + 16N (estimated: 16 partitions per GpSimd processor, one after the other)."""
    return GPSIMD_START_CYCLES + 16 * use.n


def exponential(use: Use) -> float:
    """N/4 for 16 bits, else N."""
    return _at_least_interval(use.n / (4 if use.narrow("dst", "data") else 1))


def nc_matmul(use: Use) -> float:
    """max(64, moving columns), four times that for fp32; loading the stationary hides behind the previous matmul.

    A column tile shares the array: of four tiles of 32 columns that stream one after the other, each takes a quarter
    of the time (nki.isa tile_position and tile_size: row and column tiles run at once).
    """
    stationary, moving = use.access("stationary"), use.access("moving")
    share = int(str(use.operands.get("tile_columns", 128))) / 128
    cycles = max(min(MIN_INTERVAL_CYCLES, stationary.free_elements), moving.free_elements * share)
    return 4.0 * cycles if moving.dtype == "fp32" else float(cycles)


def nc_transpose(use: Use) -> float:
    """Tensor: a matmul by the identity (fp32: four passes on v2, two in v3's transpose mode). Vector: N."""
    data = use.access("data")
    if use.instruction.engine == "Vector":
        return vector(use)
    cycles = max(data.partitions, min(MIN_INTERVAL_CYCLES, data.free_elements))
    passes = (2 if use.generation >= 3 else 4) if data.dtype == "fp32" else 1
    return float(passes * cycles)


# Limits ---------------------------------------------------------------------------------------------------------------


def check_bn_stats(use: Use) -> None:
    """At most 512 elements in, 6 out."""
    if use.access("data").free_elements > 512:
        raise use.fail(
            f"operand data has {use.access('data').free_elements} elements per partition, limit 512: split it"
        )
    if use.access("dst").free_elements != 6:
        raise use.fail(f"operand dst has {use.access('dst').free_elements} elements per partition, needs 6")


def check_bn_aggr(use: Use) -> None:
    """Triples in, 2 out."""
    if use.access("data").free_elements % 3:
        raise use.fail(
            f"operand data has {use.access('data').free_elements} elements per partition, not a multiple of 3"
        )
    if use.access("dst").free_elements != 2:
        raise use.fail(f"operand dst has {use.access('dst').free_elements} elements per partition, needs 2")


def check_max8(use: Use) -> None:
    """8..16384 elements in, 8 out."""
    if not 8 <= use.access("data").free_elements <= 16384:
        raise use.fail(f"operand data has {use.access('data').free_elements} elements per partition, needs 8..16384")
    if use.access("dst").free_elements != 8:
        raise use.fail(f"operand dst has {use.access('dst').free_elements} elements per partition, needs 8")


def check_find_index8(use: Use) -> None:
    """8..16384 elements, eight values, eight indices."""
    n = use.access("data").free_elements
    if not 8 <= n <= 16384:
        raise use.fail(f"operand data has {n} elements per partition, needs 8..16384")
    for name in ("vals", "dst"):
        if use.access(name).free_elements != 8:
            raise use.fail(f"operand {name} has {use.access(name).free_elements} elements per partition, needs 8")


def check_matmul(use: Use) -> None:
    """Shapes of the PE array, one PSUM bank, dtype pairs."""
    dst, stationary, moving = use.access("dst"), use.access("stationary"), use.access("moving")
    if stationary.partitions != moving.partitions:
        raise use.fail(
            f"operand moving has {moving.partitions} partitions, stationary {stationary.partitions}: "
            "the contraction must match"
        )
    if stationary.free_elements > 128:
        raise use.fail(f"operand stationary has {stationary.free_elements} columns, limit 128: tile it")
    limit = 512 if use.generation < 4 else 4096
    if moving.free_elements > limit:
        raise use.fail(f"operand moving has {moving.free_elements} columns, limit {limit}: tile it")
    if dst.partitions != stationary.free_elements or dst.free_elements != moving.free_elements:
        raise use.fail(
            f"operand dst is [{dst.partitions}, {dst.free_elements}], "
            f"needs [{stationary.free_elements}, {moving.free_elements}]"
        )
    width = int(str(use.operands.get("tile_columns", 128)))
    if stationary.free_elements > width or dst.start_partition % width:
        raise use.fail(
            f"operand stationary has {stationary.free_elements} columns from PSUM partition {dst.start_partition}, "
            f"tile_columns is {width}: the tile must contain them"
        )
    if (stationary.dtype == "fp32") != (moving.dtype == "fp32"):
        raise use.fail(f"operands stationary {stationary.dtype} and moving {moving.dtype}: fp32 pairs only with fp32")


def check_transpose(use: Use) -> None:
    """128x128 SBUF to PSUM on Tensor, 32x32 on Vector."""
    dst, data = use.access("dst"), use.access("data")
    tensor = use.instruction.engine == "Tensor"
    limit = 128 if tensor else 32
    if data.partitions > limit or data.free_elements > limit:
        raise use.fail(f"operand data is [{data.partitions}, {data.free_elements}], limit [{limit}, {limit}]: tile it")
    if (dst.partitions, dst.free_elements) != (data.free_elements, data.partitions):
        raise use.fail(
            f"operand dst is [{dst.partitions}, {dst.free_elements}], needs [{data.free_elements}, {data.partitions}]"
        )
    if tensor and (use.memory("data") != "SBUF" or use.memory("dst") != "PSUM"):
        raise use.fail("on Tensor operand data must be in SBUF and dst in PSUM")
    if dst.dtype != data.dtype:
        raise use.fail(f"operand dst is {dst.dtype}, data {data.dtype}: a transpose does not cast")


def check_tensor_copy(use: Use) -> None:
    """ScalarE copies exist from NeuronCore-v3 on."""
    if use.instruction.engine == "Scalar" and use.generation < 3:
        raise use.fail("needs NeuronCore-v3: use Vector, or activation with op copy")


def check_same_dtype(use: Use) -> None:
    """Data and dst of one dtype."""
    if use.dtype("data") != use.dtype("dst"):
        raise use.fail(f"operand data is {use.dtype('data')}, dst {use.dtype('dst')}: they must be equal")


def check_tensor_reduce(use: Use) -> None:
    """The reduced dimensions disappear."""
    data, dst = use.access("data"), use.access("dst")
    axes = use.operands["axes"]
    assert isinstance(axes, int)
    if axes > len(data.free):
        raise use.fail(f"reduces {axes} free dimensions, operand data has {len(data.free)}")
    left = 1
    for _, size in data.free[: len(data.free) - axes]:
        left *= size
    if dst.free_elements != left or dst.partitions != data.partitions:
        raise use.fail(f"operand dst is [{dst.partitions}, {dst.free_elements}], needs [{data.partitions}, {left}]")


_SCALAR_PAIRS = (("multiply", "add"), ("multiply", None), ("add", None))


def check_tensor_scalar(use: Use) -> None:
    """Bitwise operators need integers and Vector; Scalar (v3+) has multiply and add only; GpSimd only power."""
    from neuroncore.isa.semantics import BITWISE

    op0, op1 = use.operands["op0"], use.operands["op1"]
    engine = use.instruction.engine
    bitwise = [op in BITWISE for op in (op0, op1) if op is not None]
    if any(bitwise):
        if not all(bitwise):
            raise use.fail(f"op0={op0!r}, op1={op1!r}: bitwise and arithmetic operators can't be mixed")
        if engine != "Vector" or use.dtype("data") not in INT_DTYPES or use.dtype("dst") != use.dtype("data"):
            raise use.fail(f"op0={op0!r}: bitwise operators need Vector and one integer dtype for data and dst")
    if (op1 is None) != (use.operands.get("operand1") is None):
        raise use.fail("op1 and operand1 go together")
    if engine == "Scalar":
        if use.generation < 3:
            raise use.fail("needs NeuronCore-v3: use Vector or activation")
        if (op0, op1) not in _SCALAR_PAIRS:
            raise use.fail(f"op0={op0!r}, op1={op1!r}: on Scalar only multiply-add, multiply or add")
    if engine == "GpSimd" and op0 != "power":
        raise use.fail(f"op0={op0!r}: on GpSimd only power (rsqrt)")


def check_tensor_tensor(use: Use) -> None:
    """Power only on GpSimd; bitwise on integers."""
    from neuroncore.isa.semantics import BITWISE

    op = use.operands["op"]
    if op == "power" and use.instruction.engine != "GpSimd":
        raise use.fail("op='power' runs on GpSimd only")
    if op in BITWISE:
        dtypes = {use.dtype(name) for name in ("dst", "data1", "data2")}
        if len(dtypes) > 1 or not dtypes <= set(INT_DTYPES):
            raise use.fail(f"op={op!r}: bitwise operators need one integer dtype, got {', '.join(sorted(dtypes))}")


def check_dma_copy(use: Use) -> None:
    """As many elements in as out; gather and scatter need GpSimd's descriptors."""
    dst, src = use.access("dst"), use.access("src")
    if use.operands.get("index") is not None:
        side = use.operands["index_side"]
        assert isinstance(side, str)
        if use.instruction.engine != "GpSimd":
            raise use.fail("operand index: only GpSimd builds indirect descriptors")
        if use.memory(side) != "HBM" or use.access(side).partition_stride == 0:
            raise use.fail(f"operand {side}: the indexed side must be in HBM and have a partition_stride")
        if use.access("index").partitions != src.partitions:
            raise use.fail(f"operand index has {use.access('index').partitions} partitions, needs {src.partitions}")
        if dst.dtype != src.dtype:
            raise use.fail(f"operand dst is {dst.dtype}, src {src.dtype}: an indexed copy does not cast")
    if dst.elements != src.elements:
        raise use.fail(f"operand dst has {dst.elements} elements, src {src.elements}: they must be equal")


def check_dma_transpose(use: Use) -> None:
    """2- or 4-byte elements, at most 128 columns."""
    dst, src = use.access("dst"), use.access("src")
    if dst.dtype != src.dtype:
        raise use.fail(f"operand dst is {dst.dtype}, src {src.dtype}: a transpose does not cast")
    widths = (2,) if use.generation < 3 else (2, 4)
    if DTYPE_BYTES[src.dtype] not in widths:
        raise use.fail(f"operand src is {src.dtype}: elements must have {' or '.join(map(str, widths))} bytes")
    blocks = use.operands.get("blocks", 1)
    if not isinstance(blocks, int) or blocks < 1 or src.free_elements % blocks:
        raise use.fail(f"blocks={blocks!r}: src's {src.free_elements} columns must be a multiple")
    if (dst.partitions, dst.free_elements) != (src.free_elements // blocks, src.partitions * blocks):
        raise use.fail(
            f"operand dst is [{dst.partitions}, {dst.free_elements}], "
            f"needs [{src.free_elements // blocks}, {src.partitions * blocks}]"
        )
