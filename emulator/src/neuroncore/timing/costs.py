"""The price of one instruction on a target: engine time, latency, traffic; or the shape of one DMA transfer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from neuroncore.isa.costs import Use
from neuroncore.isa.dtypes import DTYPE_BYTES
from neuroncore.isa.instructions import instruction_spec
from neuroncore.isa.program import Access, Instruction, Tensor, Tile
from neuroncore.isa.semantics import FUNCTION_TABLES
from neuroncore.targets import Target

__all__ = ["Price", "Pricer", "Transfer", "cycles_to_ns"]

_NS = 1e9
#: They evaluate a function of a table.
_ACTIVATIONS = ("activation", "activation_reduce", "activate2")


def cycles_to_ns(cycles: float, clock_hz: float) -> float:
    """The one place where cycles become nanoseconds."""
    return cycles * _NS / clock_hz


@dataclass(frozen=True, slots=True)
class Transfer:
    """The shape of a DMA transfer.

    Attributes:
        bytes: bytes moved (the wider side when it casts).
        rows: descriptors, one per contiguous run.
        engines: DMA engines that take part.
        alone_ns: its time when no other queue is active.
        share_per_ns: fraction of the DMA engines' and HBM's capacity it needs to move one byte per ns.
        hbm_read_bytes, hbm_write_bytes: HBM traffic.
    """

    bytes: int
    rows: int
    engines: int
    alone_ns: float
    share_per_ns: float
    hbm_read_bytes: int
    hbm_write_bytes: int
    from_memory: str
    to_memory: str
    variable: str
    queue_type: str


@dataclass(frozen=True, slots=True)
class Price:
    """What an instruction costs.

    Attributes:
        issue_ns: time it occupies its engine.
        latency_ns: from the end of that until its result is visible.
        table: activation table it needs, "" none.
        flops: multiplications and additions.
        transfer: for a DMA.
    """

    issue_ns: float
    latency_ns: float
    table: str
    flops: int
    sbuf_read_bytes: int
    sbuf_write_bytes: int
    psum_read_bytes: int
    psum_write_bytes: int
    transfer: Transfer | None


class Pricer:
    """Prices the instructions of one program on one target; equal instructions are priced once."""

    def __init__(self, buffers: Mapping[str, Tensor | Tile], target: Target) -> None:
        self._buffers = buffers
        self._target = target
        self._memory = {n: b.memory if isinstance(b, Tile) else "HBM" for n, b in buffers.items()}
        self._prices: dict[tuple[object, ...], Price] = {}

    def price(self, instruction: Instruction) -> Price:
        """The price of one instruction.

        Raises:
            UnsupportedInstructionError: declared, not modelled.
        """
        key: list[object] = [instruction.opcode, instruction.engine]
        memory = self._memory
        dma = bool(instruction.queue)
        for _, value in instruction.operands:
            if type(value) is Access:
                key.append((value.dtype, value.partitions, value.free, value.buffer if dma else memory[value.buffer]))
            else:
                key.append(value)
        signature = tuple(key)
        price = self._prices.get(signature)
        if price is None:
            price = self._prices[signature] = self._compute(instruction)
        return price

    def _compute(self, instruction: Instruction) -> Price:
        spec = instruction_spec(instruction.opcode)
        use = Use(instruction, self._buffers, self._target.neuroncore_version)
        traffic = {("SBUF", "read"): 0, ("SBUF", "write"): 0, ("PSUM", "read"): 0, ("PSUM", "write"): 0}
        for name, access in instruction.accesses():
            operand = spec.operand(name)
            assert operand is not None
            memory = self._memory[access.buffer]
            if memory == "HBM":
                continue
            if operand.role != "write" and not (operand.role == "update" and instruction.get("accumulate") is False):
                traffic[memory, "read"] += access.bytes
            if operand.role != "read":
                traffic[memory, "write"] += access.bytes
        transfer = None
        if spec.dma:
            transfer = self._transfer(use)
            software = instruction.engine == "GpSimd"
            issue_ns = self._target.dge_software_ns if software else self._target.dma_trigger_ns
            latency_ns = 0.0
        else:
            assert spec.cycles is not None
            clock_hz = self._target.clock_hz(instruction.engine)
            issue_ns = cycles_to_ns(spec.cycles(use), clock_hz)
            latency_cycles = getattr(self._target, f"{instruction.engine.lower()}_latency_cycles")
            latency_ns = cycles_to_ns(latency_cycles, clock_hz)
        function = instruction.get("op") if instruction.opcode in _ACTIVATIONS else None
        return Price(
            issue_ns,
            latency_ns,
            FUNCTION_TABLES[function] if isinstance(function, str) else "",
            _flops(use),
            traffic["SBUF", "read"],
            traffic["SBUF", "write"],
            traffic["PSUM", "read"],
            traffic["PSUM", "write"],
            transfer,
        )

    def _transfer(self, use: Use) -> Transfer:
        """Rows, engines and rates of a DMA.

        Every contiguous run is a descriptor. Rows go to the DMA engines by groups of 8 partitions (HBM to HBM: one
        after the other). A row takes at least `dma_row_min_ns` on its engine.
        """
        target = self._target
        dst, src = use.access("dst"), use.access("src")
        from_memory, to_memory = use.memory("src"), use.memory("dst")
        elements = src.elements
        run = math.gcd(_run(src), src.free_elements if use.instruction.opcode == "dma_transpose" else _run(dst))
        width = max(DTYPE_BYTES[src.dtype], DTYPE_BYTES[dst.dtype])
        run = min(run, max(1, target.dma_row_max_bytes // width))
        rows = -(-elements // run)
        total = elements * width
        on_chip = dst if to_memory != "HBM" else src
        spread = (
            rows if from_memory == to_memory == "HBM" else -(-on_chip.partitions // target.dma_rows_per_engine_group)
        )
        engines = max(1, min(target.dma_engines, spread))
        fraction = 1.0
        if use.instruction.opcode == "dma_transpose":
            hbm = from_memory == "HBM"
            fraction = target.dma_transpose_hbm_fraction if hbm else target.dma_transpose_sbuf_fraction
        bytes_per_ns = target.dma_engine_bytes_per_second / _NS * fraction
        row_ns = max(target.dma_row_min_ns, run * width / bytes_per_ns)
        sources = [access for name, access in use.instruction.accesses() if name.startswith("src")]
        if (
            len(sources) > 1
        ):  # an addition on the way: it reads all of them and writes once, a copy reads and writes once
            extra = (len(sources) - 1) / 2
            total, rows = round(total * (1 + extra)), round(rows * (1 + extra))
        read = sum(a.bytes for a in sources if isinstance(use.buffers[a.buffer], Tensor))
        written = dst.elements * DTYPE_BYTES[dst.dtype] if to_memory == "HBM" else 0
        engine_share = 1 / (target.dma_engines * bytes_per_ns)
        hbm_share = (read + written) / total / (target.hbm_bytes_per_second / _NS)
        share = max(engine_share, hbm_share)
        alone_ns = max(-(-rows // engines) * row_ns, total * share)
        tensors = [b for b in (use.buffers[src.buffer], use.buffers[dst.buffer]) if isinstance(b, Tensor)]
        source, sink = use.buffers[src.buffer], use.buffers[dst.buffer]
        queue_type = "data"
        if isinstance(sink, Tensor) and sink.kind in ("output", "inout"):
            queue_type = "output"
        elif isinstance(source, Tensor) and source.kind in ("input", "inout"):
            queue_type = "input"
        variable = tensors[-1].name if tensors else dst.buffer
        return Transfer(
            total, rows, engines, alone_ns, share, read, written, from_memory, to_memory, variable, queue_type
        )


def _run(access: Access) -> int:
    """Elements of the longest contiguous run within a partition."""
    run = 1
    for stride, size in reversed(access.free):
        if size == 1:
            continue
        if stride != run:
            break
        run *= size
    return run


def _flops(use: Use) -> int:
    """Multiplications and additions; copies, transposes, masks and DMAs have none."""
    opcode = use.instruction.opcode
    operands = use.operands
    if opcode == "nc_matmul":
        stationary, moving = use.access("stationary"), use.access("moving")
        return 2 * moving.partitions * stationary.free_elements * moving.free_elements
    if opcode in _ACTIVATIONS:
        extra = sum(operands.get(name) is not None for name in ("bias", "scale", "operand0", "operand1", "reduce_res"))
        return use.access("data").elements * (
            extra + (FUNCTION_TABLES[str(operands["op"])] != "" or operands["op"] == "square")
        )
    counts = {
        "tensor_tensor": 1, "tensor_reduce": 1, "tensor_partition_reduce": 1, "reciprocal": 1,
        "scalar_tensor_tensor": 2,
        "tensor_tensor_scan": 2, "tensor_scalar_reduce": 2, "bn_stats": 3, "bn_aggr": 3, "exponential": 2,
        "tensor_scalar_cumulative": 2, "rsqrt_on_gpsimd": 1, "dma_compute": 1,
    }  # fmt: skip
    if opcode == "tensor_scalar":
        return use.access("data").elements * (1 + (operands.get("op1") is not None))
    return counts.get(opcode, 0) * max(a.elements for _, a in use.instruction.accesses())
