"""Metrics of one executable as Neuron Explorer defines them: rows of Summary, OpcodeSummary, TensorInfo, Metadata.

Times are seconds of one execution, launch cost excluded. Columns called percent hold fractions, as the vendor's files
do: 0.21 is 21 %. TensorE FLOPs are adjusted to the bf16 peak wherever they are divided by it, so that a product in fp32
can reach 1 too. A null is unknown.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neuronscope.readers.device_program import DeviceProgram, union
from neuronscope.readers.exact import Int64

__all__ = ["adjustment", "dma_kind", "hardware_row", "opcode_rows", "summary_row", "tensor_rows"]

_ENGINES = ("Tensor", "Vector", "Scalar", "GpSimd", "Sync")
_MATMULS = ("nc_matmul", "nc_transpose")
_PEAK = "tensor_peak_flops_per_second."


def adjustment(program: DeviceProgram) -> Any:
    """What an instruction's TensorE FLOPs count, in bf16 ones: peak of bf16 over the peak of its element type."""
    codes, names = program.texts("details", "dtype")
    bf16 = program.hardware.get(f"{_PEAK}bf16", 0.0)
    factors = np.array(
        [bf16 / program.hardware.get(f"{_PEAK}{name}", bf16) if bf16 else 1.0 for name in names] or [1.0]
    )
    values = np.ones(program.instructions.num_rows)
    values[program.detail_rows] = factors[codes]
    return values


def dma_kind(program: DeviceProgram) -> Any:
    """How each transfer got its descriptors: software (built by GpSimd), hardware (from NeuronCore-v3 on), static."""
    hardware = "hardware" if program.hardware.get("neuroncore_version", 0) >= 3 else "static"
    software = program.is_text("instructions", "engine", "GpSimd")[np.maximum(program.trigger_rows, 0)]
    return np.where((program.trigger_rows >= 0) & software, "software", hardware)


def summary_row(program: DeviceProgram) -> dict[str, Any]:
    """The row of Summary; only what the file says where it is of version 1."""
    total_ns = program.duration_ns
    seconds = total_ns / 1e9
    row: dict[str, Any] = {"neff": program.neff, "total_time": seconds, "total_exec_time": seconds}
    row["estimated_percent"] = program.facts["estimated_ns"] / total_ns if total_ns else None
    begin, end = union(np.append(program.start, program.first_byte), np.append(program.end, program.last_byte))
    row |= _active("total", begin, end, total_ns)
    for engine in _ENGINES:
        mine = program.is_text("instructions", "engine", engine) & program.executed
        begin, end = union(program.start[mine], program.end[mine])
        key = f"{engine.lower()}_engine"
        row |= _active(key, begin, end, total_ns)
        row[f"{key}_instruction_time"] = int((program.end[mine] - program.start[mine]).sum()) / 1e9
        row[f"{key}_instruction_count"] = int(mine.sum())
    row |= _instructions(program)
    row |= _transfers(program)
    if program.complete:
        row |= _utilization(program, row)
    return row


def _active(name: str, begin: Int64, end: Int64, total_ns: int) -> dict[str, Any]:
    active = int((end - begin).sum())
    percent = active / total_ns if total_ns else None
    return {f"{name}_active_time": active / 1e9, f"{name}_active_time_percent": percent}


def _instructions(program: DeviceProgram) -> dict[str, Any]:
    read_psum, write_sbuf = (
        program.ints("instructions", "psum_read_bytes"),
        program.ints("instructions", "sbuf_write_bytes"),
    )
    evicts = (read_psum > 0) & (write_sbuf > 0)
    codes, names = program.texts("instructions", "opcode")
    activates = np.array([name.startswith("activation") for name in names] or [False], np.bool_)[codes]
    length = program.end - program.start
    row = {
        f"{memory}_{way}_bytes": int(program.ints("instructions", f"{memory}_{way}_bytes").sum())
        for memory in ("sbuf", "psum")
        for way in ("read", "write")
    }
    return {
        **row,
        "psum_read_sbuf_write_count": int(evicts.sum()),
        "psum_read_sbuf_write_bytes": int(read_psum[evicts].sum()),
        "matmul_instruction_count": int(program.is_text("instructions", "opcode", *_MATMULS).sum()),
        "activate_instruction_count": int(activates.sum()),
        "activate_instruction_time": int(length[activates].sum()) / 1e9,
    }


def _transfers(program: DeviceProgram) -> dict[str, Any]:
    total_ns = program.duration_ns
    size = program.ints("transfers", "bytes")
    length = program.ints("transfers", "duration_ns")
    engines = np.maximum(program.ints("transfers", "engines"), 1)
    read, written = program.hbm_bytes
    count, moved, packets = len(size), int(size.sum()), int(engines.sum())
    row: dict[str, Any] = _active("dma", *union(program.first_byte, program.last_byte), total_ns)
    row |= {
        "dma_transfer_count": count,
        "dma_transfer_total_bytes": moved,
        "dma_transfer_average_bytes": moved / count if count else None,
        "dma_transfer_time": int(length.sum()) / 1e9,
        "dma_packet_time": int((length * engines).sum()) / 1e9,
        "dma_queue_count": len(set(program.ints("transfers", "queue_idx").tolist())),
        # The program's totals: they have the bytes of ops whose time is only an estimate too.
        "hbm_read_bytes": int(program.facts["bytes_read"]),
        "hbm_write_bytes": int(program.facts["bytes_written"]),
        "input_queue_bytes": int(size[program.is_text("transfers", "queue_type", "input")].sum()),
        "output_queue_bytes": int(size[program.is_text("transfers", "queue_type", "output")].sum()),
    }
    if not program.complete:
        return row
    kind = dma_kind(program)
    for name, label in (("static", "static"), ("software", "software_dynamic"), ("hardware", "hardware_dynamic")):
        mine = kind == name
        row |= _active(f"{label}_dma", *union(program.first_byte[mine], program.last_byte[mine]), total_ns)
        row[f"{label}_dma_packet_count"] = int(engines[mine].sum())
        row[f"{label}_dma_size"] = int(size[mine].sum())
        row[f"{label}_dma_packet_percent"] = int(engines[mine].sum()) / packets if packets else None
        row[f"{label}_dma_size_percent"] = int(size[mine].sum()) / moved if moved else None
    dynamic = kind != "static"
    row["dynamic_dma_active_time_percent"] = _active(
        "dynamic", *union(program.first_byte[dynamic], program.last_byte[dynamic]), total_ns
    )["dynamic_active_time_percent"]
    row["dynamic_dma_packet_percent"] = int(engines[dynamic].sum()) / packets if packets else None
    row["dynamic_dma_size_percent"] = int(size[dynamic].sum()) / moved if moved else None
    saved, reloaded = int(written[program.temporary].sum()), int(read[program.temporary].sum())
    all_read = row["hbm_read_bytes"]
    row |= {
        "spill_save_bytes": saved,
        "spill_reload_bytes": reloaded,
        "useful_read_percent": (all_read - reloaded) / all_read if all_read else None,
    }
    kinds, sizes = program.tensors["kind"].to_pylist(), program.tensors["bytes"].to_pylist()
    inputs = sum(n for kind, n in zip(kinds, sizes, strict=True) if kind in ("input", "inout"))
    outputs = sum(n for kind, n in zip(kinds, sizes, strict=True) if kind in ("output", "inout"))
    row["inputs_and_weights_size_bytes"] = inputs
    row["inputs_outputs_weights_size_bytes"] = inputs + outputs
    return row


def _utilization(program: DeviceProgram, row: dict[str, Any]) -> dict[str, Any]:
    """FLOPs and what share of the target's peaks they are."""
    hardware, seconds = program.hardware, program.duration_ns / 1e9
    tensor = program.is_text("instructions", "engine", "Tensor")
    flops = np.maximum(program.ints("instructions", "flops"), 0)
    turned = np.where(tensor, program.of_rows("transpose_flops", 0), 0)
    factor = adjustment(program)
    useful, transpose = int(flops[tensor].sum()), int(turned.sum())
    adjusted_useful, adjusted_transpose = float((flops * factor)[tensor].sum()), float((turned * factor).sum())
    clock, base = hardware.get("tensor_clock_hz", 0.0), hardware.get("sync_clock_hz", 0.0)
    rows = hardware.get("partitions", 0.0)
    peak = 2 * rows * rows * clock
    stack = hardware.get("hbm_stack_bytes_per_second", 0.0)
    moved = row["hbm_read_bytes"] + row["hbm_write_bytes"]
    possible = peak * seconds
    model = int(program.facts.get("model_flops", -1))
    ridge = peak / stack if stack else None
    # The model's products at the rate of the element type that computes them, as the instructions' are.
    adjusted_model = model * adjusted_useful / useful if useful else float(model)

    def of_peak(value: float) -> float | None:
        return value / possible if possible else None

    def reachable(value: float) -> float | None:
        return value / moved / ridge if moved and ridge else None

    found: dict[str, Any] = {
        "neuroncore_cycle_count": round(seconds * base),
        "dma_active_cycles": round(row["dma_active_time"] * base),
        "hardware_flops": useful + transpose,
        "transpose_flops": transpose,
        "adjusted_hardware_flops": round(adjusted_useful + adjusted_transpose),
        "adjusted_transpose_flops": round(adjusted_transpose),
        "elementwise_flops": int(flops[~tensor].sum()),
        "mm_arithmetic_intensity": useful / moved if moved else None,
        "peak_flops_bandwidth_ratio": ridge,
        "hfu_estimated_percent": of_peak(adjusted_useful + adjusted_transpose),
        "mfu_inst_estimated_percent": of_peak(adjusted_useful),
        "mfu_inst_max_achievable_estimated_percent": reachable(adjusted_useful),
        "mbu_estimated_percent": moved / seconds / stack if stack and seconds else None,
        "mbu_min_read_util_percent": (
            row["inputs_and_weights_size_bytes"] / seconds / stack if stack and seconds else None
        ),
    }
    if model >= 0:
        found |= {"model_flops": model}
        for name in ("mfu", "mfu_hlo"):
            found[f"{name}_estimated_percent"] = of_peak(adjusted_model)
            found[f"{name}_max_achievable_estimated_percent"] = reachable(adjusted_model)
    return found


def opcode_rows(program: DeviceProgram) -> list[dict[str, Any]]:
    """Count and time of each opcode on each engine."""
    engines, engine_names = program.texts("instructions", "engine")
    opcodes, opcode_names = program.texts("instructions", "opcode")
    rows = []
    for key in np.unique(engines * len(opcode_names) + opcodes).tolist():
        engine, opcode = divmod(key, len(opcode_names))
        mine = (engines == engine) & (opcodes == opcode)
        begin, end = union(program.start[mine], program.end[mine])
        active = int((end - begin).sum())
        rows.append(
            {
                "engine": engine_names[engine],
                "opcode": opcode_names[opcode],
                "instruction_count": int(mine.sum()),
                "instruction_time_ns": int((program.end - program.start)[mine].sum()),
                "active_time_ns": active,
                "active_time_percent": active / program.duration_ns if program.duration_ns else 0.0,
            }
        )
    return rows


def tensor_rows(program: DeviceProgram) -> list[dict[str, Any]]:
    """HBM tensors, and how often each was loaded to SBUF."""
    variables, names = program.texts("transfers", "variable")
    size = program.ints("transfers", "bytes")
    loads = program.is_text("transfers", "to_memory", "SBUF") & program.is_text("transfers", "from_memory", "HBM")
    number = {name: code for code, name in enumerate(names)}
    rows = []
    for tensor in program.tensors.to_pylist():
        mine = loads & (variables == number.get(tensor["name"], -1))
        count, total = int(mine.sum()), int(size[mine].sum())
        rows.append(
            {
                "variable_name": tensor["name"],
                "type": tensor["kind"],
                "format": tensor["dtype"],
                "shape": tensor["shape"],
                "size": tensor["bytes"],
                "pcore_idx": 0,
                "load_to_sbuf_avg_size_bytes": total // count if count else None,
                "load_to_sbuf_total_size_bytes": total,
                "load_to_sbuf_dma_count": count,
                "load_to_sbuf_repeat_factor": total / tensor["bytes"] if tensor["bytes"] else None,
            }
        )
    return rows


def hardware_row(hardware: dict[str, float]) -> dict[str, Any]:
    """The hardware figures of Metadata; empty where the file has none."""
    if not hardware:
        return {}
    partitions = int(hardware["partitions"])
    clocks = {
        f"{engine}_engine_clock_freq": hardware[f"{engine}_clock_hz"] / 1e9
        for engine in ("tensor", "vector", "scalar", "gpsimd")
    }
    lanes = {f"{engine}_engine_num_channels": partitions for engine in ("vector", "scalar", "gpsimd")}
    return {
        **clocks,
        **lanes,
        "neuroncore_clock_freq": hardware["sync_clock_hz"] / 1e9,
        "tensor_engine_num_rows": partitions,
        "tensor_engine_num_cols": partitions,
        "num_dma_engines_per_neuroncore": int(hardware["dma_engines"]),
        "dma_ddr_bandwidth": hardware["dma_engines"] * hardware["dma_engine_bytes_per_second"],
        "hbm_ddr_bandwidth": hardware.get("hbm_stack_bytes_per_second"),
    }
