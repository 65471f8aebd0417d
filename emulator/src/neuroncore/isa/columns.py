"""`columns`: what a program executes, as arrays: loops unrolled, semaphores in place. The timing model plays these.

A million instructions take some 50 MB this way. The work is done by `neuroncore._native`, or where that extension is
not built by its plain twins here and in `synchronize.py`; both give the same arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from neuroncore.isa.dtypes import DTYPE_BYTES
from neuroncore.isa.instructions import INSTRUCTIONS
from neuroncore.isa.program import Instruction, Loop, Program, Tensor
from neuroncore.isa.synchronize import DMA_INCREMENT, bucket_of, synchronize

__all__ = ["Columns", "columns", "native"]

_ROLES = {
    name: {operand.name: {"read": 1, "write": 2, "update": 3}[operand.role] for operand in spec.operands}
    for name, spec in INSTRUCTIONS.items()
}


def native() -> ModuleType | None:
    """The compiled kernels, None where they are not built."""
    try:
        from neuroncore import _native
    except ImportError:
        return None
    return _native


@dataclass(frozen=True)
class Columns:
    """A program's executed instructions.

    Attributes:
        text: its instructions as written, loops not unrolled.
        index: int32 [executed], for each executed instruction its number in `text`, in program order.
        kind: int32 [text]; instructions of the text with equal numbers have equal prices, so a price is computed once
            a kind.
        semaphores: names.
        wait_start: int64 [executed + 1]; instruction i waits for `wait_semaphore[j] >= wait_value[j]`, j in
            wait_start[i] .. wait_start[i+1].
        signal_start: int32 [text + 1]; instruction number t of the text adds `signal_increment[j]` to
            `signal_semaphore[j]`, j in signal_start[t] .. signal_start[t+1].
    """

    text: tuple[Instruction, ...]
    index: npt.NDArray[np.int32]
    kind: npt.NDArray[np.int32]
    semaphores: tuple[str, ...]
    wait_start: npt.NDArray[np.int64]
    wait_semaphore: npt.NDArray[np.int32]
    wait_value: npt.NDArray[np.int64]
    signal_start: npt.NDArray[np.int32]
    signal_semaphore: npt.NDArray[np.int32]
    signal_increment: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.index)

    def waits(self, number: int) -> list[tuple[str, int]]:
        """What executed instruction `number` waits for: (semaphore, value)."""
        begin, end = self.wait_start[number : number + 2].tolist()
        return [
            (self.semaphores[s], v)
            for s, v in zip(self.wait_semaphore[begin:end].tolist(), self.wait_value[begin:end].tolist(), strict=True)
        ]


def columns(program: Program, *, plain: bool = False) -> Columns:
    """Unroll a program and place the semaphores it leaves to be derived.

    Args:
        program: with semaphores, written or derived.
        plain: use the twin in Python although the compiled kernel is there.
    """
    text = tuple(program.text())
    kernels = None if plain else native()
    if kernels is None:
        return _plain(program, text)
    places = _places(program)
    found: dict[str, Any] = kernels.expand(program.body, places, DTYPE_BYTES, _ROLES, program.derived, DMA_INCREMENT)
    found.setdefault("kind", np.arange(len(text), dtype=np.int32))  # kernels built before there were kinds
    return Columns(text, **{**found, "semaphores": tuple(found["semaphores"])})


def _places(program: Program) -> dict[str, tuple[Any, ...]]:
    """Where each buffer lies, in the order of `Buffer`'s fields in native/columns.h, and its memory's number."""
    spaces: dict[str, int] = {}
    places: dict[str, tuple[Any, ...]] = {}
    for name, buffer in program.buffers.items():
        if isinstance(buffer, Tensor):
            width = max(1, buffer.shape[-1] if buffer.shape else 1)
            flat = width == buffer.elements
            space = spaces.setdefault(f"HBM {name}", len(spaces))
            places[name] = (space, True, 0, 0, DTYPE_BYTES[buffer.dtype], width, flat, bucket_of(buffer), 0)
        else:
            own = buffer.memory if buffer.address is not None else f"tile {name}"
            space = spaces.setdefault(own, len(spaces))
            first = buffer.start_partition
            memory = 1 if buffer.memory == "SBUF" else 2
            places[name] = (space, False, buffer.address or 0, first, 1, 1, False, bucket_of(buffer), memory)
    return places


def _plain(program: Program, text: tuple[Instruction, ...]) -> Columns:
    index = np.fromiter(_numbers(program.body, [0]), np.int32)
    if program.derived:
        program = synchronize(program)
    semaphores: dict[str, int] = {}
    starts, waits, values = [0], [], []
    executed = list(program.instructions())
    for instruction in executed:
        for wait in instruction.waits:
            waits.append(semaphores.setdefault(wait.semaphore, len(semaphores)))
            values.append(wait.value)
        starts.append(len(waits))
    signal_starts, signals, increments = [0], [], []
    by_text = dict(zip(index.tolist(), executed, strict=True))
    for number, instruction in enumerate(text):
        for signal in by_text.get(number, instruction).signals:
            signals.append(semaphores.setdefault(signal.semaphore, len(semaphores)))
            increments.append(signal.increment)
        signal_starts.append(len(signals))
    return Columns(
        text, index, np.arange(len(text), dtype=np.int32), tuple(semaphores),
        np.array(starts, np.int64), np.array(waits, np.int32),
        np.array(values, np.int64), np.array(signal_starts, np.int32), np.array(signals, np.int32),
        np.array(increments, np.int64),
    )  # fmt: skip


def _numbers(body: tuple[Instruction | Loop, ...], count: list[int]) -> Iterator[int]:
    """Numbers in the text of the executed instructions; `count` is how many were numbered before."""
    for item in body:
        if isinstance(item, Loop):
            first = count[0]
            numbers = list(_numbers(item.body, count))
            if not item.count:
                count[0] = first + sum(1 for _ in replace(item, count=1).text())
            for _ in range(item.count):
                yield from numbers
        else:
            yield count[0]
            count[0] += 1
