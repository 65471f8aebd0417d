"""Columns of Instruction and DmaPacketAggregated for one executable."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from neuronscope.readers.device_program import DTYPE_BYTES, DeviceProgram
from neuronscope.readers.device_summary import adjustment
from neuronscope.readers.exact import Int64

__all__ = ["instruction_columns", "transfer_columns"]

#: An access pattern as programs are printed: <buffer dtype pSTART+COUNT[*STRIDE] fSTRIDE*SIZE,… [oOFFSET] [STEPS]>.
_ACCESS = re.compile(
    r"(?P<operand>\w+)=<(?P<buffer>[\w.]+) (?P<dtype>\w+) p(?P<start>\d+)\+(?P<count>\d+)(?:\*(?P<stride>-?\d+))?"
    r" f(?P<free>[-\d*,]*)(?: o(?P<offset>-?\d+))?(?: (?P<steps>[-+][^>]*))?"
)
_FUNCTION = re.compile(r'\bop="(\w+)"')
_TENSOR_KINDS = {"nc_matmul": "matmul", "nc_transpose": "transpose"}


def instruction_columns(program: DeviceProgram, dma_wait: Int64) -> dict[str, Any]:
    """Instruction: one row per executed instruction, times relative to the program.

    Args:
        program: the executable.
        dma_wait: per instruction, the part of its wait that was for a DMA.
    """
    table = program.instructions
    count = table.num_rows
    tensor = program.is_text("instructions", "engine", "Tensor")
    flops = np.maximum(program.ints("instructions", "flops"), 0)
    turned = np.where(tensor, program.of_rows("transpose_flops", 0), 0)
    factor = adjustment(program)
    transfer = program.of_rows("transfer_id", -1)
    row_of = np.searchsorted(program.ints("transfers", "id"), np.maximum(transfer, 0))
    moves = transfer >= 0
    read, written = program.hbm_bytes
    size = program.ints("transfers", "bytes")
    types, type_names = program.texts("transfers", "queue_type")
    temporary = program.temporary

    def moved(values: Any) -> Int64:
        """Values of the transfer each instruction triggers, 0 for the others."""
        result = np.zeros(count, np.int64)
        result[moves] = values[row_of[moves]]
        return result

    def of_queue(name: str) -> Int64:
        wanted = np.array([one == name for one in type_names] or [False], np.bool_)[types]
        return moved(np.where(wanted, size, 0))

    read_psum = program.ints("instructions", "psum_read_bytes")
    write_sbuf = program.ints("instructions", "sbuf_write_bytes")
    known = program.complete
    columns: dict[str, Any] = {
        "start_ts": program.start,
        "end_ts": program.end,
        "duration_ns": program.end - program.start,
        "engine": table["engine"],
        "timeline_track": table["engine"],
        "opcode": table["opcode"],
        "operands": table["operands"],
        "compiler_opcode": table["opcode"],
        "compiler_operands": table["operands"],
        "id": np.arange(count),
        "pc": program.ints("instructions", "pc"),
        "compiler_pc": program.ints("instructions", "pc"),
        "bir_id": program.ints("instructions", "id").astype(str).astype(object),
        "raw_bir_id": program.ints("instructions", "id"),
        "evt_wait_time_ns": program.ints("instructions", "wait_ns"),
        "hlo_name": table["op"],
        "layer": _named(str(program.facts["name"]), count),
        "bir_debug_info_source_location": table["source"],
        "raw_flops": np.where(tensor, flops + turned, 0),
        "elementwise_flops": np.where(tensor, 0, flops),
        "sbuf_read_bytes": program.ints("instructions", "sbuf_read_bytes"),
        "sbuf_write_bytes": write_sbuf,
        "psum_read_bytes": read_psum,
        "psum_write_bytes": program.ints("instructions", "psum_write_bytes"),
        "psum_read_sbuf_write_bytes": np.where(write_sbuf > 0, read_psum, 0),
        "tensor_instruction_type": _mapped(program, _TENSOR_KINDS.get, tensor),
        "scalar_activation_fn": _activations(program),
    }
    if known:
        columns |= {
            "dma_wait_time_ns": dma_wait,
            "adjusted_flops": np.rint((flops + turned) * np.where(tensor, factor, 0)).astype(np.int64),
            "flops_transpose": turned,
            "adjusted_flops_transpose": np.rint(turned * factor).astype(np.int64),
            "hbm_read_bytes": moved(read),
            "hbm_write_bytes": moved(written),
            "spill_save_bytes": moved(np.where(temporary, written, 0)),
            "spill_reload_bytes": moved(np.where(temporary, read, 0)),
            "input_queue_bytes": of_queue("input"),
            "output_queue_bytes": of_queue("output"),
            "performance_mode": _details(program, "performance_mode"),
        }
    return columns


def transfer_columns(program: DeviceProgram) -> dict[str, Any]:
    """DmaPacketAggregated: one row per transfer, times relative to the program."""
    table = program.transfers
    count = table.num_rows
    size = program.ints("transfers", "bytes")
    duration = program.ints("transfers", "duration_ns")
    queues = program.ints("transfers", "queue_idx")
    columns: dict[str, Any] = {
        "start_ts": program.first_byte,
        "end_ts": program.last_byte,
        "duration_ns": duration,
        "id": np.arange(count),
        "block_id": _ordinal(queues).astype(np.int32),
        "queue_idx": queues,
        "queue_name": table["queue"],
        "queue_type": table["queue_type"],
        "op": table["op"],
        "variable": table["variable"],
        "transfer_bytes": size,
        "throughput": (size * 1e9 / np.maximum(duration, 1)).astype(np.float32),
        "source": table["from_memory"],
        "dest": table["to_memory"],
        "trigger": program.ints("transfers", "trigger_offset_ns"),
        "completion": program.ints("transfers", "done_offset_ns"),
    }
    return columns | _patterns(program, size)


def _patterns(program: DeviceProgram, size: Int64) -> dict[str, Any]:
    """Which elements each transfer reads and writes, from the operands of the instruction that triggers it."""
    count = len(size)
    codes, texts = program.texts("instructions", "operands")
    opcodes, names = program.texts("instructions", "opcode")
    rows = program.trigger_rows
    semaphores, signals = program.texts("details", "signals")
    signal_of = np.full(program.instructions.num_rows, -1, np.int64)
    signal_of[program.detail_rows] = semaphores
    parsed: dict[int, dict[str, dict[str, Any]]] = {}
    columns: dict[str, list[Any]] = {name: [None] * count for name in _PATTERN}
    for number, row in enumerate(rows.tolist()):
        if row < 0:
            continue
        code = int(codes[row])
        if code not in parsed:
            parsed[code] = _accesses(texts[code])
        for side, operand in (("read", "src"), ("write", "dst")):
            for key, value in parsed[code].get(operand, {}).items():
                columns[f"{side}_{key}"][number] = value
        columns["is_transpose_mode"][number] = names[opcodes[row]] == "dma_transpose"
        if signal_of[row] >= 0:
            columns["semaphore_id"][number] = signals[signal_of[row]].partition("+")[0]
    for side in ("read", "write"):
        widths = columns[f"{side}_bytes"]
        columns[f"{side}_bytes"] = [int(size[i]) if value is None else value for i, value in enumerate(widths)]
        on_chip = program.is_text("transfers", "from_memory" if side == "read" else "to_memory", "SBUF")
        for key in ("sbuf_partitions", "num_sbuf_partitions"):
            columns[f"{side}_{key}"] = [
                value if there else ("" if key == "sbuf_partitions" else 0)
                for value, there in zip(columns[f"{side}_{key}"], on_chip.tolist(), strict=True)
            ]
    return {name: pa.array(values, _PATTERN[name]) for name, values in columns.items()}


_PATTERN: dict[str, pa.DataType] = {
    f"{side}_{key}": kind
    for side in ("read", "write")
    for key, kind in (
        ("bytes", pa.int64()),
        ("sbuf_partitions", pa.string()),
        ("num_sbuf_partitions", pa.int32()),
        ("shape", pa.string()),
        ("offset", pa.string()),
        ("steps", pa.string()),
    )
} | {"semaphore_id": pa.string(), "is_transpose_mode": pa.bool_()}


def _accesses(operands: str) -> dict[str, dict[str, Any]]:
    found = {}
    for match in _ACCESS.finditer(operands):
        free = [pair.split("*") for pair in match["free"].split(",") if pair]
        start, partitions = int(match["start"]), int(match["count"])
        sizes = [partitions, *(int(size) for _, size in free)]
        steps = [match["stride"] or "1", *(step for step, _ in free)]
        elements = int(np.prod(sizes, dtype=np.int64))
        found[match["operand"]] = {
            "bytes": elements * DTYPE_BYTES[match["dtype"]] if match["dtype"] in DTYPE_BYTES else None,
            "sbuf_partitions": f"{start}-{start + partitions - 1}",
            "num_sbuf_partitions": partitions,
            "shape": f"[{','.join(map(str, sizes))}]",
            "offset": (match["offset"] or "0") + (match["steps"] or ""),  # inside a loop: what each iteration adds
            "steps": f"[{','.join(steps)}]",
        }
    return found


def _ordinal(keys: Int64) -> Int64:
    """For each row how many earlier rows have its key."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.searchsorted(ordered, ordered)
    result = np.empty(len(keys), np.int64)
    result[order] = np.arange(len(keys)) - first
    return result


def _named(text: str, count: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def _mapped(program: DeviceProgram, of: Any, wanted: Any) -> pa.Array:
    codes, names = program.texts("instructions", "opcode")
    return pa.array(np.array([*(of(name) for name in names), None], object)[np.where(wanted, codes, -1)], pa.string())


def _activations(program: DeviceProgram) -> pa.Array:
    """The function of each activation, from its operands."""
    codes, texts = program.texts("instructions", "operands")
    opcodes, names = program.texts("instructions", "opcode")
    activates = np.array([name.startswith("activation") for name in names] or [False], np.bool_)[opcodes]
    functions: list[str | None] = [None] * (len(texts) + 1)
    for code in np.unique(codes[activates]).tolist():
        match = _FUNCTION.search(texts[code])
        functions[code] = match[1] if match else None
    return pa.array(np.array(functions, object)[np.where(activates, codes, -1)], pa.string())


def _details(program: DeviceProgram, column: str) -> pa.Array:
    codes, texts = program.texts("details", column)
    values = np.full(program.instructions.num_rows, None, object)
    values[program.detail_rows] = np.array([*(text or None for text in texts), None], object)[codes]
    return pa.array(values, pa.string())
