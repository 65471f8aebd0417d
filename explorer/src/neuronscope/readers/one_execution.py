"""The device's side of one execution as a profile of its own: a track per engine and DMA queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from neuronscope.readers import device_only, model, source, texts, write
from neuronscope.readers.engine_rows import add_engine_rows
from neuronscope.readers.result import IngestResult
from neuronscope.readers.trace import Trace

__all__ = ["write_execution"]


def write_execution(
    tables: Mapping[str, pa.Table], name: str, neff: str, facts: Mapping[str, str], original: Path, folder: Path
) -> IngestResult:
    """Write the profile.

    Args:
        tables: of the published schema, only rows of the execution; `ExecutionInfo` or `Instruction` among them.
        name: of the execution.
        neff: its executable's hash, empty unknown.
        facts: ProfileInfo of the profile it is part of.
        original: what that was read from.
        folder: where to, existing and empty.

    Raises:
        FormatError: there is nothing to draw.
        OSError: the folder can't be written.
    """
    events = device_only.events_of(tables, name, {neff: name} if neff else None)
    trace = Trace(
        format="device profile of one execution",
        events=events,
        events_in_file=len(events),
        bytes_read=0,
        facts={**facts, "device_only": "true"},
        instance=facts.get("instance", "local"),
        tables=dict(tables),
        neuron=True,
        dropped=0,
    )
    add_engine_rows(trace)
    try:
        with write.Writer(folder) as writer:

            def emit(table: str, pieces: Iterator[pa.Table]) -> None:
                writer.write(table, (_named(piece, name) for piece in pieces) if table == "Execution" else pieces)

            built = model.build(trace, emit, writer.room)
            return write.write_profile(trace, built, original, writer)
    finally:
        texts.remove_spills(folder)
        source.remove_scratch(folder)


def _named(executions: pa.Table, operator: str) -> pa.Table:
    """The executions as work of the operator that launched them: its call is outside of this profile."""
    at = executions.schema.get_field_index("op")
    values = pa.array([operator] * executions.num_rows, executions.schema.field(at).type)
    return executions.set_column(at, executions.schema.field(at), values)
