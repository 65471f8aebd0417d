"""Memories, operand access and the order of execution.

Engines and DMA queues only see each other through semaphores, so the machine runs them as separate streams: an
instruction may execute as soon as its waits are satisfied and its stream has reached it. Which of the ready streams
goes first is up to `order`: "program" follows the program's own order where it can, "late" defers DMA transfers and
prefers later streams as long as possible, a `random.Random` picks. A program whose result depends on the order lacks a
semaphore; tests run several.
"""

from __future__ import annotations

import operator
import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from neuroncore.errors import DeadlockError, MachineError
from neuroncore.isa.cores import Divided
from neuroncore.isa.dtypes import DTYPE_BYTES, STORAGE, from_float32, to_float32
from neuroncore.isa.instructions import instruction_spec
from neuroncore.isa.program import ENGINES, Access, Instruction, Operand, Program, Tensor, Tile
from neuroncore.isa.synchronize import synchronize

__all__ = ["Machine", "run", "run_divided"]

Array = npt.NDArray[Any]
Inputs = Mapping[str, Array] | Sequence[Array]
Order = Literal["program", "late"] | random.Random

PARTITIONS = 128
#: On-chip memory per partition, large enough for every target; `verify` checks the real limits.
_SBUF_BYTES = 256 * 1024
_PSUM_BYTES = 16 * 1024


def run(program: Program, inputs: Inputs, *, order: Order = "program") -> dict[str, Array]:
    """Execute a program.

    Args:
        program: with tile addresses and semaphores, written (see `neuroncore.isa.synchronize`) or derived.
        inputs: one array per input tensor (kinds input and inout) in declaration order, or by name; of the tensor's
            storage
            dtype and number of elements, C-contiguous order.
        order: "program", "late" or a random source, see the module docstring.

    Returns:
        The output tensors (kinds output and inout) by name, in the storage dtype.

    Raises:
        MachineError: inputs that do not fit the program, a tile without an address.
        DeadlockError: instructions left whose waits nothing satisfies.
        UnsupportedInstructionError: an instruction that is declared, not modelled.
    """
    machine = Machine(synchronize(program) if program.derived else program)
    machine.load(inputs)
    machine.execute(order)
    return {t.name: machine.hbm[t.name].view(STORAGE[t.dtype]).reshape(t.shape).copy() for t in program.outputs}


def run_divided(divided: Divided, inputs: Mapping[str, Array], *, order: Order = "program") -> dict[str, Array]:
    """Execute the programs of several cores, section by section; cores share HBM and nothing else.

    Args:
        divided: what `neuroncore.compiler.divide_program` gives.
        inputs: one array per input tensor, by name, as for `run`.
        order: as for `run`; "late" also takes the last core first.

    Returns:
        The output tensors by name, in the storage dtype.

    Raises:
        MachineError, DeadlockError, UnsupportedInstructionError: as `run`.
    """
    tensors = divided.tensors
    whole = Machine(Program("inputs", tensors, (), ()))
    whole.load({t.name: inputs[t.name] for t in whole.program.inputs if t.name in inputs})
    for section in divided.sections:
        programs = section.programs if order != "late" else section.programs[::-1]
        for program in programs:
            core = Machine(synchronize(program))
            core.hbm = whole.hbm
            core.execute(order)
    return {t.name: whole.hbm[t.name].view(STORAGE[t.dtype]).reshape(t.shape).copy() for t in whole.program.outputs}


class Machine:
    """The state of one NeuronCore and its HBM while it executes a program.

    Attributes:
        hbm: raw bytes of each tensor.
        sbuf, psum: raw bytes, [128 partitions, bytes].
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.buffers = program.buffers
        self.hbm: dict[str, npt.NDArray[np.uint8]] = {t.name: np.zeros(t.bytes, np.uint8) for t in program.tensors}
        self.sbuf = np.zeros((PARTITIONS, _SBUF_BYTES), np.uint8)
        self.psum = np.zeros((PARTITIONS, _PSUM_BYTES), np.uint8)
        # One generator an engine: an engine is in order, so its numbers do not depend on the order between engines.
        self._generators = {engine: np.random.default_rng(number) for number, engine in enumerate(ENGINES)}
        for tile in program.tiles:
            if tile.address is None:
                raise MachineError(f"tile {tile.name}: no address; run the allocator first")

    def load(self, inputs: Inputs) -> None:
        """Copy the inputs to HBM."""
        expected = self.program.inputs
        if isinstance(inputs, Mapping):
            missing = [t.name for t in expected if t.name not in inputs]
            if missing:
                raise MachineError(f"program {self.program.name!r}: input {missing[0]} is missing")
            arrays = [inputs[t.name] for t in expected]
        else:
            arrays = list(inputs)
        if len(arrays) != len(expected):
            raise MachineError(f"program {self.program.name!r}: takes {len(expected)} inputs, got {len(arrays)}")
        for tensor, array in zip(expected, arrays, strict=True):
            if array.dtype != STORAGE[tensor.dtype] or array.size != tensor.elements:
                raise MachineError(
                    f"input {tensor.name}: needs {tensor.elements} elements of {STORAGE[tensor.dtype]} "
                    f"({tensor.dtype}), "
                    f"got {array.size} of {array.dtype}"
                )
            self.hbm[tensor.name][:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def execute(self, order: Order = "program") -> None:
        """Run every instruction.

        Raises:
            DeadlockError: no stream can go on.
        """
        # An engine issues its instructions in order; a DMA moves on to its queue when triggered and runs there, also
        # in order.
        issue: dict[str, list[tuple[int, Instruction]]] = {}
        for number, instruction in enumerate(self.program.instructions()):
            issue.setdefault(instruction.engine, []).append((number, instruction))
        heads = dict.fromkeys(issue, 0)
        queued: dict[str, deque[tuple[int, Instruction]]] = {}
        semaphores: dict[str, int] = {}
        late = order == "late"
        while True:
            ready: list[tuple[int, str, bool]] = []
            for engine, instructions in issue.items():
                if heads[engine] < len(instructions):
                    number, instruction = instructions[heads[engine]]
                    if all(semaphores.get(w.semaphore, 0) >= w.value for w in instruction.waits):
                        ready.append((number, engine, False))
            moving = [(waiting[0][0], queue, True) for queue, waiting in queued.items() if waiting]
            if not ready and not moving:
                break
            if isinstance(order, random.Random):
                choice = order.choice(ready + moving)
            else:
                choice = (max(ready) if ready else max(moving)) if late else min(ready + moving)
            _, stream, is_transfer = choice
            if is_transfer:
                _, instruction = queued[stream].popleft()
            else:
                number, instruction = issue[stream][heads[stream]]
                heads[stream] += 1
                if instruction.queue:
                    queued.setdefault(instruction.queue, deque()).append((number, instruction))
                    continue
            self.step(instruction)
            for signal in instruction.signals:
                semaphores[signal.semaphore] = semaphores.get(signal.semaphore, 0) + signal.increment
        stuck = [issue[e][h] for e, h in heads.items() if h < len(issue[e])]
        if stuck:
            number, instruction = min(stuck, key=operator.itemgetter(0))
            waits = ", ".join(
                f"{w.semaphore} >= {w.value} (is {semaphores.get(w.semaphore, 0)})" for w in instruction.waits
            )
            raise DeadlockError(
                f"instruction {number}, {instruction.opcode} on {instruction.engine}, waits for {waits} for ever"
            )

    def step(self, instruction: Instruction) -> None:
        """Execute one instruction, semaphores aside."""
        spec = instruction_spec(instruction.opcode)
        assert spec.execute is not None
        try:
            with np.errstate(all="ignore"):
                spec.execute(_Operands(self, instruction))
        except MachineError as error:
            of = f" of {instruction.op}" if instruction.op else ""
            at = f" at {instruction.source}" if instruction.source else ""
            raise MachineError(f"{instruction.opcode} on {instruction.engine}{of}{at}: {error}") from None

    def random(self, engine: str, count: int) -> npt.NDArray[np.uint32]:
        """The next random words of an engine."""
        return self._generators[engine].integers(0, 1 << 32, count, np.uint32)

    def seed(self, engine: str, number: int) -> None:
        """Start an engine's generator anew."""
        self._generators[engine] = np.random.default_rng(number)

    def view(self, access: Access) -> Array:
        """The elements of an access pattern as a strided view of the memory, [partitions, *free sizes]."""
        buffer = self.buffers[access.buffer]
        storage = STORAGE[access.dtype]
        size = DTYPE_BYTES[access.dtype]
        if isinstance(buffer, Tile):
            memory = self.sbuf if buffer.memory == "SBUF" else self.psum
            assert buffer.address is not None
            first = buffer.start_partition + access.start_partition
            base: npt.NDArray[np.uint8] = memory[first : first + access.partitions].reshape(-1)
            start = buffer.address + access.offset * size
            row = memory.shape[1]
        else:
            base = self.hbm[access.buffer]
            start = access.offset * size
            row = access.partition_stride * size
        strides = (row, *(stride * size for stride, _ in access.free))
        # ndarray refuses out-of-range strides, so a wrong pattern is an error here and never a wild read.
        return np.ndarray(access.shape, storage, buffer=base.data, offset=start, strides=strides)


class _Operands:
    """`semantics.Context` over a machine and an instruction."""

    def __init__(self, machine: Machine, instruction: Instruction) -> None:
        self._machine = machine
        self._operands: dict[str, Operand] = dict(instruction.operands)
        self.engine = instruction.engine

    def _access(self, name: str) -> Access:
        value = self._operands[name]
        assert isinstance(value, Access)
        return value

    def has(self, name: str) -> bool:
        return self._operands.get(name) is not None

    def attribute(self, name: str) -> Any:
        return self._operands[name]

    def dtype(self, name: str) -> str:
        return self._access(name).dtype

    def shaped(self, name: str) -> npt.NDArray[np.float32]:
        value = self._operands[name]
        if not isinstance(value, Access):
            return np.asarray(value, np.float32)
        return to_float32(self._machine.view(value), value.dtype)

    def f32(self, name: str) -> npt.NDArray[np.float32]:
        array = self.shaped(name)
        return array.reshape(array.shape[0], -1) if array.ndim else array

    def raw(self, name: str) -> Array:
        array = self._machine.view(self._access(name))
        # A copy: the destination may overlap.
        return array.reshape(array.shape[0], -1).copy()

    def write(self, name: str, values: npt.ArrayLike) -> None:
        access = self._access(name)
        self.write_raw(name, from_float32(values, access.dtype))

    def write_raw(self, name: str, values: Array) -> None:
        access = self._access(name)
        self._machine.view(access)[...] = values.reshape(access.shape)

    def random(self, count: int) -> npt.NDArray[np.uint32]:
        return self._machine.random(self.engine, count)

    def seed(self, number: int) -> None:
        self._machine.seed(self.engine, number)

    def _rows(self, name: str) -> tuple[Array, Access]:
        """Every row an indexed HBM access can reach, [rows, free elements]."""
        access = self._access(name)
        tensor = self._machine.buffers[access.buffer]
        assert isinstance(tensor, Tensor)
        low, high = access.span()
        width = high - low - access.partition_stride * (access.partitions - 1)
        rows = max(
            0, (tensor.bytes // DTYPE_BYTES[access.dtype] - access.offset - width) // access.partition_stride + 1
        )
        everything = Access(access.buffer, access.dtype, rows, access.free, access.offset, 0, access.partition_stride)
        return self._machine.view(everything), access

    def hbm_rows(self, name: str, index: npt.NDArray[np.int64]) -> Array:
        rows, _ = self._rows(name)
        self._check_index(name, index, len(rows))
        return rows[index].reshape(len(index), -1)

    def write_hbm_rows(self, name: str, index: npt.NDArray[np.int64], values: Array) -> None:
        rows, access = self._rows(name)
        self._check_index(name, index, len(rows))
        rows[index] = values.reshape(len(index), *access.shape[1:])

    def _check_index(self, name: str, index: npt.NDArray[np.int64], rows: int) -> None:
        if len(index) and not (index.min() >= 0 and index.max() < rows):
            tensor = self._access(name).buffer
            raise MachineError(
                f"operand {name}: index {index.min()}..{index.max()}, {tensor} has rows 0..{rows - 1}: "
                "give indices it has"
            )
