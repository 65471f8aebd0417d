"""SBUF and PSUM addresses.

Tiles of one kernel never share a byte; kernels follow each other around the memory, so that a small kernel does not
wait for its predecessor's tiles.
"""

from __future__ import annotations

from dataclasses import replace

from neuroncore.compiler.tile import Tiled
from neuroncore.errors import CapacityError
from neuroncore.isa import Tile
from neuroncore.targets import Target

__all__ = ["allocate"]

_ALIGNMENT = 64


def allocate(tiled: Tiled, target: Target) -> Tiled:
    """Give every tile an address.

    Raises:
        CapacityError: the tiles of one kernel need more SBUF or PSUM than there is.
    """
    capacity = {"SBUF": target.sbuf_usable_bytes_per_partition, "PSUM": target.psum_bytes_per_partition}
    alignment = {"SBUF": _ALIGNMENT, "PSUM": target.psum_bank_bytes}
    position = {"SBUF": 0, "PSUM": 0}
    result: list[tuple[Tile, ...]] = []
    for number, tiles in enumerate(tiled.tiles):
        for memory in ("SBUF", "PSUM"):
            need = sum(_aligned(t.free_bytes, alignment[memory]) for t in tiles if t.memory == memory)
            if need > capacity[memory]:
                raise CapacityError(
                    f"{tiled.name}, kernel {number}: its tiles need {need} B of each {memory} partition, "
                    f"{target.name} has {capacity[memory]}. Please report this graph."
                )
            if position[memory] + need > capacity[memory]:
                position[memory] = 0
        placed = []
        for tile in tiles:
            placed.append(replace(tile, address=position[tile.memory]))
            position[tile.memory] += _aligned(tile.free_bytes, alignment[tile.memory])
        result.append(tuple(placed))
    return replace(tiled, tiles=tuple(result))


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
