"""Entry point of neuroncore for its users: compile a graph once, keep program and simulated timeline.

`compile_graph` is the whole interface that `torch_neuronx` needs on a cache miss.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from neuronscope.formats import neff as neff_format
from neuronscope.formats import tables

from neuroncore import compiler
from neuroncore.compiler import COMPILER_VERSION, Estimated, compile_program, op_parts
from neuroncore.flops import model_flops
from neuroncore.graph import Graph
from neuroncore.isa import print_program
from neuroncore.targets import Target, load_target
from neuroncore.timing import Timeline, simulate

__all__ = ["Executable", "compile_graph", "is_lowered", "op_status", "unlowered_reason"]

#: Opcode of the row that stands for an op without instructions.
ESTIMATE_OPCODE = "estimate"


@dataclass(frozen=True)
class Executable:
    """A compiled graph and what running it costs. Immutable; equal graphs on equal targets give equal hashes and times.

    Attributes:
        hash: decimal content hash (program, target, compiler version).
        neff: bytes of the NEFF file.
        program_ns: simulated engine and DMA time.
        estimated_ns: part of `program_ns` that is a bandwidth-bound estimate (0 when the program was fully lowered).
        bytes_read, bytes_written: HBM traffic of the program.
        flops: multiply and add counted separately.
        model_flops: those of the graph's matrix products, -1 unknown.
        program: the `neuroncore.isa` program, executable on `neuroncore.machine`. Inputs are flat: the storage of input
            number i from its first element, `in<i>`; results are `out<i>`. A result that is a view of an input, or of
            another result, has no tensor of its own.
        bound: ops of it whose real time depends on data (an index): their time is that of distinct indices.
        pieces: timelines and estimates, one after the other. `instructions` and `dma_transfers` are made of them when a
            profile wants them: rows for the NTFF tables of `neuronscope.formats.tables`, `neff` column filled.
    """

    name: str
    hash: str
    neff: bytes
    program_ns: int
    estimated_ns: int
    bytes_read: int
    bytes_written: int
    flops: int
    program: Any
    pieces: tuple[Timeline | Estimated, ...]
    bound: tuple[str, ...] = ()

    @property
    def instructions(self) -> pa.Table:
        """Table INSTRUCTIONS."""
        return self._tables[0]

    @property
    def dma_transfers(self) -> pa.Table:
        """Table DMA_TRANSFERS."""
        return self._tables[1]

    @cached_property
    def _tables(self) -> tuple[pa.Table, pa.Table]:
        return _joined(self.pieces, self.hash)

    model_flops: int = -1


def compile_graph(graph: Graph, target_name: str | None = None) -> Executable:
    """Compile and time a graph.

    Args:
        graph: ATen ops; its name is a label and not part of the hash.
        target_name: "trn2" …; None takes NEURON_PLATFORM_TARGET_OVERRIDE, default trn2.

    Raises:
        neuroncore.errors.NeuroncoreError: bad target, tensor too large for HBM, …
    """
    with _without_collection():
        return _compile(graph, load_target(target_name))


@contextmanager
def _without_collection() -> Iterator[None]:
    """No garbage collection: a compiler makes many objects and no cycles, and walking them all doubles its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _compile(graph: Graph, target: Target) -> Executable:
    compiled = compile_program(_anonymous(graph), target)
    timelines = tuple(p if isinstance(p, Estimated) else simulate(p, target) for p in compiled.pieces)
    estimates = [p for p in timelines if isinstance(p, Estimated)]
    info = {
        "name": _label(graph),
        "target": target.name,
        "target_hash": target.hash,
        "compiler_version": COMPILER_VERSION,
        "estimates": [[e.op, e.reason, e.duration_ns] for e in estimates],
    }
    program = compiled.program
    bound = tuple(sorted({i.op for i in program.text() if i.get("index") is not None}))
    if bound:
        info["bound"] = list(bound)
    tensors = [{"name": t.name, "kind": t.kind, "dtype": t.dtype, "elements": t.elements} for t in program.tensors]
    products = model_flops(graph)
    origins = [[i.op, i.source] for i in program.text()]
    shapes = {f"in{number}": list(spec.shape) for number, spec in enumerate(graph.inputs)}
    debug = {"graph": graph.name, "instructions": origins, "model_flops": products, "shapes": shapes}
    neff = neff_format.pack(info, print_program(program), tensors, debug)
    digest = neff_format.unpack(neff).hash
    return Executable(
        name=graph.name,
        hash=digest,
        neff=neff,
        program_ns=sum(p.duration_ns if isinstance(p, Estimated) else p.program_ns for p in timelines),
        estimated_ns=sum(e.duration_ns for e in estimates),
        bytes_read=sum(p.bytes_read for p in timelines),
        bytes_written=sum(p.bytes_written for p in timelines),
        flops=sum(p.flops for p in timelines),
        program=program,
        pieces=timelines,
        bound=bound,
        model_flops=products,
    )


def _label(graph: Graph) -> str:
    """A name that depends on what is computed, not on who called it: it is part of the hash."""
    return graph.nodes[0].target if len(graph.nodes) == 1 else f"graph of {len(graph.nodes)} ops"


def _anonymous(graph: Graph) -> Graph:
    return Graph(_label(graph), graph.inputs, graph.nodes, graph.outputs, graph.mutates)


def _joined(pieces: Sequence[Timeline | Estimated], neff: str) -> tuple[pa.Table, pa.Table]:
    """The tables of all pieces, one after the other in time."""
    if len(pieces) == 1 and isinstance(pieces[0], Timeline):
        only = pieces[0]
        return only.instruction_table(neff), only.dma_table(neff)
    instructions = [tables.INSTRUCTIONS.schema.empty_table()]
    transfers = [tables.DMA_TRANSFERS.schema.empty_table()]
    now = rows = moves = 0
    counters: dict[str, int] = {}
    for piece in pieces:
        if isinstance(piece, Estimated):
            instructions.append(_estimate_row(piece, neff, rows, now, counters))
            rows += 1
            now += piece.duration_ns
            continue
        table = _shifted(piece.instruction_table(neff), ("offset_ns", "done_offset_ns"), now, rows)
        engines = table.column("engine").combine_chunks()
        first = np.array([counters.get(e, 0) for e in engines.dictionary.to_pylist()], np.int64)
        position = table.schema.get_field_index("pc")
        pc = table.column("pc").to_numpy() + first[engines.indices.to_numpy()]
        table = table.set_column(position, table.schema.field(position), pa.array(pc, pa.int64()))
        for engine, count in zip(
            engines.dictionary.to_pylist(), np.bincount(engines.indices.to_numpy()).tolist(), strict=True
        ):
            counters[engine] = counters.get(engine, 0) + count
        instructions.append(table)
        rows += table.num_rows
        moved = _shifted(piece.dma_table(neff), ("offset_ns", "trigger_offset_ns", "done_offset_ns"), now, moves)
        transfers.append(moved)
        moves += moved.num_rows
        now += piece.program_ns
    joined = [pa.concat_tables(t).unify_dictionaries().combine_chunks() for t in (instructions, transfers)]
    return joined[0], joined[1]


def _shifted(table: pa.Table, columns: tuple[str, ...], offset_ns: int, first_id: int) -> pa.Table:
    for name, amount in (*((c, offset_ns) for c in columns), ("id", first_id)):
        position = table.schema.get_field_index(name)
        values = pa.array(table.column(name).to_numpy() + amount, pa.int64())
        table = table.set_column(position, table.schema.field(position), values)
    return table


def _estimate_row(piece: Estimated, neff: str, row: int, start_ns: int, counters: dict[str, int]) -> pa.Table:
    values: dict[str, Any] = {c.name: 0 for c in tables.INSTRUCTIONS.columns}
    values |= {
        "neff": neff, "id": row, "engine": "GpSimd", "opcode": ESTIMATE_OPCODE, "pc": counters.get("GpSimd", 0),
        "operands": f"bytes_read={piece.bytes_read} bytes_written={piece.bytes_written} reason={piece.reason}",
        "offset_ns": start_ns, "duration_ns": piece.duration_ns, "done_offset_ns": start_ns + piece.duration_ns,
        "op": piece.op,
        "source": piece.source, "flops": piece.flops,
    }  # fmt: skip
    counters["GpSimd"] = counters.get("GpSimd", 0) + 1
    schema = tables.INSTRUCTIONS.schema
    arrays = []
    for column in schema:
        if pa.types.is_dictionary(column.type):
            arrays.append(pa.array([values[column.name]], pa.string()).dictionary_encode())
        else:
            arrays.append(pa.array([values[column.name]], column.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def is_lowered(target: str) -> bool:
    """Whether an op ("aten.mul.Tensor", "aten::mul_") has a lowering; a form of it may still end as an estimate."""
    name, _ = op_parts(target)
    known = compiler.LOWERINGS.keys() | compiler.VIEWS.keys()
    return name in known or (name.endswith("_") and name[:-1] in known)


def unlowered_reason(target: str) -> str:
    """Why an op has no lowering."""
    return compiler.REASONS.get(op_parts(target)[0], "no lowering yet")


def op_status(names: Iterable[str] = ()) -> list[tuple[str, str]]:
    """(ATen name, "lowered" or "estimated") of every op the compiler has a lowering for and of `names`, sorted.

    An op that is lowered may have forms that are not (an unusual argument): those end as marked estimates with their
    reason.
    """
    found = {f"aten::{name}": "lowered" for name in compiler.LOWERINGS.keys() | compiler.VIEWS.keys()}
    for name in names:
        found["aten::" + op_parts(name)[0]] = "lowered" if is_lowered(name) else "estimated"
    return sorted(found.items())
