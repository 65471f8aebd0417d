"""`neuronscope capture`: execute an executable from a file on the machine, time it, write its device profile."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from neuroncore.cli._common import Loaded
    from neuroncore.timing import Timeline

__all__ = ["capture"]


def capture(
    neff: Annotated[Path, typer.Option("--neff", "-n", metavar="FILE", help="The executable.")],
    session_file: Annotated[
        Path, typer.Option("--session-file", "-s", metavar="FILE", help="Where the device profile (NTFF) goes.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME FILE.npy]...", help="Values of input tensors; zeros where none are given."),
    ] = None,
    num_exec: Annotated[int, typer.Option("--num-exec", min=1, max=10_000, help="How often to execute it.")] = 1,
    save_output_npy: Annotated[
        Path | None, typer.Option("--save-output-npy", metavar="DIR", help="Write the last results as <name>.npy.")
    ] = None,
) -> None:
    """Execute a NEFF on the emulated NeuronCore and write its device profile; inputs not given are zeros."""
    import numpy as np

    from neuroncore.cli._common import CommandError, format_ns, load_neff, one_line
    from neuroncore.isa.dtypes import to_float32
    from neuroncore.machine import run
    from neuroncore.timing import simulate

    if not session_file.parent.is_dir():
        raise CommandError(f"{session_file}: there is no folder {session_file.parent}; make it first")
    loaded = load_neff(neff)
    if loaded.estimates:
        ops = ", ".join(sorted({op for op, _, _ in loaded.estimates}))
        raise CommandError(f"{neff}: {ops} is an estimate without instructions, so nothing can execute it")
    if save_output_npy is not None and save_output_npy.exists() and not save_output_npy.is_dir():
        raise CommandError(f"--save-output-npy {save_output_npy}: is a file; name a folder")
    arrays, notes = _arrays(loaded, inputs or [])
    with one_line():
        timeline = simulate(loaded.program, loaded.target)
        results: dict[str, npt.NDArray[Any]] = {}
        for _ in range(num_exec):
            try:
                results = run(loaded.program, arrays)
            except (OverflowError, TypeError, ValueError) as error:  # a number no compiler wrote
                raise CommandError(f"{neff}: its program does not execute: {error}") from None
            arrays |= {name: value.reshape(-1) for name, value in results.items() if name in arrays}
    _write(loaded, timeline, session_file, num_exec)
    if save_output_npy is not None:
        save_output_npy.mkdir(parents=True, exist_ok=True)
        dtypes = {tensor.name: tensor.dtype for tensor in loaded.program.tensors}
        for name, value in results.items():
            narrow = dtypes[name] in ("bf16", "fp8_e4m3", "fp8_e5m2")  # numpy has no such type: exact as float32
            np.save(save_output_npy / f"{name}.npy", to_float32(value, dtypes[name]) if narrow else value)
    typer.echo(
        f"{loaded.name}: {num_exec} × {format_ns(timeline.program_ns)} engines and DMA (simulated for "
        f"{loaded.target.name}), launch cost not included"
    )
    for note in (*loaded.notes, *notes):
        typer.echo(f"! {note}")
    typer.echo(f"wrote {session_file}")
    if save_output_npy is not None:
        typer.echo(f"wrote {', '.join(str(save_output_npy / f'{name}.npy') for name in results)}")


def _arrays(loaded: Loaded, pairs: list[str]) -> tuple[dict[str, npt.NDArray[Any]], list[str]]:
    """Input values by tensor name, in storage form, zeros where none are given; and what to tell about them."""
    import numpy as np

    from neuroncore.cli._common import CommandError
    from neuroncore.isa.dtypes import STORAGE

    tensors = {tensor.name: tensor for tensor in loaded.program.inputs}
    if len(pairs) % 2:
        raise CommandError(f"inputs come in pairs NAME FILE.npy; {pairs[-1]!r} is left over")
    arrays = {name: np.zeros(tensor.elements, STORAGE[tensor.dtype]) for name, tensor in tensors.items()}
    notes: list[str] = []
    if twice := [name for number, name in enumerate(pairs[::2]) if name in pairs[: 2 * number : 2]]:
        raise CommandError(f"input {twice[0]} is given twice")
    for name, file in zip(pairs[::2], pairs[1::2], strict=True):
        if name not in tensors:
            raise CommandError(f"{loaded.path}: no input {name!r}; inputs: {', '.join(tensors) or 'none'}")
        tensor = tensors[name]
        try:
            value = np.load(file, allow_pickle=False)
        except (ValueError, EOFError):
            value = None
        if not isinstance(value, np.ndarray):
            raise CommandError(f"{file}: not a .npy file of numbers; write one with numpy.save(file, array)")
        if value.size != tensor.elements:
            raise CommandError(f"{file}: {value.size:,} elements; {name} ({tensor.dtype}) has {tensor.elements:,}")
        made_for = loaded.shapes.get(name, value.shape)
        if value.ndim > 1 and value.shape != made_for:
            notes.append(
                f"{file} is {list(value.shape)}, {name} was compiled as {list(made_for)}: "
                "its elements are taken in order"
            )
        arrays[name] = _stored(value, tensor.dtype, file)
    return arrays, notes


def _stored(value: npt.NDArray[np.generic], dtype: str, file: str) -> npt.NDArray[Any]:
    """The values in the dtype's storage form: bit patterns for bf16 and fp8."""
    import numpy as np

    from neuroncore.cli._common import CommandError
    from neuroncore.isa.dtypes import STORAGE, from_float32

    flat = np.ascontiguousarray(value).reshape(-1)
    if flat.dtype == STORAGE[dtype]:
        return flat
    if dtype in ("bf16", "fp8_e4m3", "fp8_e5m2") and np.issubdtype(flat.dtype, np.floating):
        return from_float32(flat.astype(np.float32), dtype)
    if not np.can_cast(flat.dtype, STORAGE[dtype], "same_kind"):
        raise CommandError(f"{file}: values are {flat.dtype}, the input needs {dtype}; convert them first")
    return flat.astype(STORAGE[dtype])


def _write(loaded: Loaded, timeline: Timeline, path: Path, count: int) -> None:
    from importlib.metadata import PackageNotFoundError, version

    from neuronscope.formats import container

    from neuroncore.compiler import COMPILER_VERSION
    from neuroncore.timing.details import details, hardware

    try:
        producer_version = version("neuronscope-emulator")
    except PackageNotFoundError:
        producer_version = "unknown"
    target = loaded.target
    start_ns = time.time_ns()
    pitch_ns = target.launch_cost_profiled_ns + timeline.program_ns + target.execution_gap_ns
    starts = [start_ns + target.launch_cost_profiled_ns + number * pitch_ns for number in range(count)]
    session = container.Session(
        producer="neuronscope capture",
        producer_version=producer_version,
        emulated=True,
        model_version=COMPILER_VERSION,
        target=target.name,
        target_hash=target.hash,
        instance_id="i-emulated",
        process_id=os.getpid(),
        session_id=1,
        lnc=1,
        modes=("DEVICE",),
        start_ns=start_ns,
        stop_ns=starts[-1] + timeline.program_ns,
    )
    instructions, transfers = timeline.instruction_table(loaded.hash), timeline.dma_table(loaded.hash)
    rows = {
        "programs": {
            "neff": [loaded.hash],
            "name": [loaded.name],
            "target": [target.name],
            "duration_ns": [timeline.program_ns],
            "estimated_ns": [0],
            "instructions": [instructions.num_rows],
            "dma_transfers": [transfers.num_rows],
            "bytes_read": [timeline.bytes_read],
            "bytes_written": [timeline.bytes_written],
            "flops": [timeline.flops],
            "model_flops": [loaded.model_flops],
        },
        "program_executions": {
            "execution_id": list(range(1, count + 1)),
            "neff": [loaded.hash] * count,
            "start_ns": starts,
            "nc_idx": [0] * count,
        },
        "instructions": instructions,
        "dma_transfers": transfers,
        "hardware": hardware(target),
        **details(loaded.program, target, instructions, transfers, loaded.hash),
    }
    container.write(path, "ntff", session, rows)
