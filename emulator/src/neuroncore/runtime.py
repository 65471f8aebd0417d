"""Entry point of neuroncore for its users: compile a graph once, keep program and simulated timeline.

`compile_graph` is the whole interface that `torch_neuronx` needs on a cache miss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from neuroncore.graph import Graph


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
        instructions, dma_transfers: rows for the NTFF tables of `neuronscope.formats.tables`
            (INSTRUCTIONS, DMA_TRANSFERS), `neff` column filled.
        program: the `neuroncore.isa` program, executable on `neuroncore.machine`.
    """

    name: str
    hash: str
    neff: bytes
    program_ns: int
    estimated_ns: int
    bytes_read: int
    bytes_written: int
    flops: int
    instructions: pa.Table
    dma_transfers: pa.Table
    program: Any


def compile_graph(graph: Graph, target_name: str | None = None) -> Executable:
    """Compile and time a graph.

    Args:
        target_name: "trn2" …; None takes NEURON_PLATFORM_TARGET_OVERRIDE, default trn2.

    Raises:
        neuroncore.errors.NeuroncoreError: bad target, tensor too large for HBM, …
    """
    raise NotImplementedError  # contract stub, replaced by the engine work
