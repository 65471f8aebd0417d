"""`verify`: refuse what the hardware refuses, naming the instruction and the operand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from neuroncore.errors import ProgramError
from neuroncore.isa.costs import Use
from neuroncore.isa.dtypes import DTYPE_BYTES
from neuroncore.isa.instructions import InstructionSpec, OperandSpec, instruction_spec
from neuroncore.isa.program import Access, Instruction, Loop, Program, Tensor, Tile
from neuroncore.isa.synchronize import stream_of

if TYPE_CHECKING:
    from neuroncore.targets import Target

__all__ = ["PSUM_ELEMENTS", "verify"]

_FREE_DIMENSIONS = 4
_SBUF_ELEMENTS = 65536
#: Of one operand, per partition.
PSUM_ELEMENTS = 4096


def verify(program: Program, target: Target) -> None:
    """Check a program against a target.

    Raises:
        ProgramError: a tile outside its memory, an operand in the wrong memory, of a wrong dtype or outside its
            buffer, too many
            partitions, a matmul or PSUM limit, a queue shared by engines, a
            semaphore raised by two streams, a wait no signal can satisfy. The message
            names the instruction's number in program order (in a loop: of its first execution), the operand, the limit
            and the actual value.
        UnsupportedInstructionError: an instruction that is declared, not modelled.
    """
    for tensor in program.tensors:
        _check_tensor(tensor)
    for tile in program.tiles:
        _check_tile(tile, target)
    used = sum(t.bytes for t in program.tensors)
    if used > target.hbm_bytes:
        used = _live_bytes(program)
    if used > target.hbm_bytes:
        raise ProgramError(
            f"program {program.name!r}: its tensors need {used} B of HBM at once, {target.name} has {target.hbm_bytes}"
        )
    buffers = program.buffers
    if len(buffers) != len(program.tensors) + len(program.tiles):
        raise ProgramError(f"program {program.name!r}: two tensors or tiles have the same name")
    # Equal but for offsets and slots is checked in full once, then only for what it reaches.
    kinds = {n: (b.memory, b.partitions, b.start_partition) if isinstance(b, Tile) else n for n, b in buffers.items()}
    checked: set[tuple[object, ...]] = set()
    queues: dict[str, str] = {}
    raisers: dict[str, str] = {}
    totals: dict[str, int] = {}
    highest: dict[str, tuple[int, int]] = {}
    for number, instruction, times, loops in _walk(program.body, 0, 1, {}):
        where = f"instruction {number}, {instruction.opcode} on {instruction.engine}"
        key = _key(instruction, kinds)
        if key in checked:
            _check_reaches(instruction, where, buffers, target)
        else:
            _check_instruction(instruction, where, buffers, target)
            checked.add(key)
        for far in _corners(instruction, loops, program.name, where):
            _check_reaches(far, f"{where}, in its last iteration", buffers, target)
        if instruction.queue:
            owner = queues.setdefault(instruction.queue, instruction.engine)
            if owner != instruction.engine:
                raise ProgramError(
                    f"{where}: queue {instruction.queue} is triggered by {owner} too: one engine per queue"
                )
        for signal in instruction.signals:
            raiser = raisers.setdefault(signal.semaphore, stream_of(instruction))
            if raiser != stream_of(instruction):
                raise ProgramError(f"{where}: raises {signal.semaphore}, as {raiser} does: one stream per semaphore")
            totals[signal.semaphore] = totals.get(signal.semaphore, 0) + times * signal.increment
        for wait in instruction.waits:
            value = wait.value + sum(max(0, step * (loops[name] - 1)) for name, step in wait.steps)
            if value > highest.get(wait.semaphore, (0, 0))[0]:
                highest[wait.semaphore] = (value, number)
    for semaphore, (value, number) in highest.items():
        if value > totals.get(semaphore, 0):
            raise ProgramError(
                f"instruction {number}: waits for {semaphore} >= {value}, "
                f"all signals together reach {totals.get(semaphore, 0)}"
            )


def _walk(
    body: tuple[Instruction | Loop, ...], first: int, times: int, loops: dict[str, int]
) -> Iterator[tuple[int, Instruction, int, dict[str, int]]]:
    """Each written instruction: number of its first execution, itself, how often it runs, counts of its loops."""
    number = first
    for item in body:
        if not isinstance(item, Loop):
            yield number, item, times, loops
            number += 1
        elif item.count:
            yield from _walk(item.body, number, times * item.count, {**loops, item.name: item.count})
            number += item.count * sum(n for _, n in Program("", (), (), item.body).counts())


def _corners(instruction: Instruction, loops: dict[str, int], program: str, where: str) -> Iterator[Instruction]:
    """The instruction where its accesses reach lowest and highest; accesses are affine, so these two suffice."""
    stepped = [v.steps for _, v in instruction.accesses() if v.steps] + [w.steps for w in instruction.waits if w.steps]
    for name in {name for steps in stepped for name, _ in steps}:
        if name not in loops:
            raise ProgramError(f"program {program!r}: {where}: steps of {name!r}, no loop around it has that name")
    if not stepped:
        return
    for extreme in (min, max):
        operands = tuple(
            (name, replace(v, offset=v.offset + sum(extreme(0, s * (loops[n] - 1)) for n, s in v.steps), steps=()))
            if isinstance(v, Access)
            else (name, v)
            for name, v in instruction.operands
        )
        yield replace(instruction, operands=operands)


def _live_bytes(program: Program) -> int:
    """The most HBM that tensors need at once: temporaries from their first use to their last, others always.

    A loop is one step: what it uses is live all the time.
    """
    temporary = {t.name: t.bytes for t in program.tensors if t.kind == "temporary"}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, item in enumerate(program.body):
        for instruction in item.text() if isinstance(item, Loop) else (item,):
            for _, access in instruction.accesses():
                if access.buffer in temporary:
                    first.setdefault(access.buffer, number)
                    last[access.buffer] = number
    changes: dict[int, int] = {}
    for name, number in first.items():
        changes[number] = changes.get(number, 0) + temporary[name]
        changes[last[name] + 1] = changes.get(last[name] + 1, 0) - temporary[name]
    live = most = 0
    for _, change in sorted(changes.items()):
        live += change
        most = max(most, live)
    return most + sum(t.bytes for t in program.tensors if t.kind != "temporary")


def _key(instruction: Instruction, kinds: Mapping[str, object]) -> tuple[object, ...]:
    """What the shapes, memories and values of an instruction are, offsets aside."""
    key: list[object] = [instruction.opcode, instruction.engine, bool(instruction.queue)]
    for name, value in instruction.operands:
        key.append(name)
        if type(value) is Access:
            key += (kinds.get(value.buffer), value.dtype, value.partitions, value.free)
            key += (value.start_partition, value.partition_stride)
        else:
            key += (value, type(value))
    return tuple(key)


def _check_reaches(instruction: Instruction, where: str, buffers: dict[str, Tensor | Tile], target: Target) -> None:
    for name, access in instruction.accesses():
        buffer = buffers.get(access.buffer)
        if buffer is None:
            raise ProgramError(f"{where}: operand {name}: no tile or tensor called {access.buffer!r}")
        _check_reach(access, buffer, f"{where}: operand {name}", instruction=instruction, target=target)


def _check_reach(
    access: Access, buffer: Tensor | Tile, where: str, *, instruction: Instruction, target: Target
) -> None:
    low, high = access.span()
    size = DTYPE_BYTES[access.dtype]
    if isinstance(buffer, Tensor):
        if low < 0 or high * size > buffer.bytes:
            raise ProgramError(f"{where}: elements {low}..{high} of {buffer.name}, which has {buffer.bytes // size}")
        return
    if low < 0 or high * size > buffer.free_bytes:
        raise ProgramError(
            f"{where}: bytes {low * size}..{high * size} of each partition of tile "
            f"{buffer.name}, which has {buffer.free_bytes}"
        )
    if buffer.memory == "PSUM" and instruction.opcode == "nc_matmul" and target.neuroncore_version < 4:
        assert buffer.address is not None
        first = (buffer.address + low * size) // target.psum_bank_bytes
        last = (buffer.address + high * size - 1) // target.psum_bank_bytes
        if first != last:
            raise ProgramError(
                f"{where}: spans PSUM banks {first}..{last}; a matmul writes one bank of "
                f"{target.psum_bank_bytes} B per partition"
            )


def _check_tensor(tensor: Tensor) -> None:
    _check_dtype(tensor.dtype, f"tensor {tensor.name}")
    if tensor.kind not in ("input", "output", "inout", "temporary"):
        raise ProgramError(f"tensor {tensor.name}: kind {tensor.kind!r} is not input, output, inout or temporary")
    if any(size < 0 for size in tensor.shape):
        raise ProgramError(f"tensor {tensor.name}: a size of {min(tensor.shape)}, at least 0")


def _check_dtype(dtype: str, where: str) -> None:
    if dtype not in DTYPE_BYTES:
        raise ProgramError(f"{where}: no dtype {dtype!r}; known: {', '.join(DTYPE_BYTES)}")


def _check_tile(tile: Tile, target: Target) -> None:
    _check_dtype(tile.dtype, f"tile {tile.name}")
    if tile.memory not in ("SBUF", "PSUM"):
        raise ProgramError(f"tile {tile.name}: memory {tile.memory!r} is not SBUF or PSUM")
    if not 0 < tile.start_partition + tile.partitions <= target.partitions or tile.partitions < 1:
        raise ProgramError(
            f"tile {tile.name}: partitions {tile.start_partition}..{tile.start_partition + tile.partitions}, "
            f"{target.name} has {target.partitions}"
        )
    if tile.address is None:
        raise ProgramError(f"tile {tile.name}: no address; run the allocator first")
    sbuf = tile.memory == "SBUF"
    capacity = target.sbuf_usable_bytes_per_partition if sbuf else target.psum_bytes_per_partition
    if tile.address < 0 or tile.address + tile.free_bytes > capacity:
        raise ProgramError(
            f"tile {tile.name}: bytes {tile.address}..{tile.address + tile.free_bytes} of each partition, "
            f"{tile.memory} of {target.name} has {capacity}"
        )


def _check_instruction(instruction: Instruction, where: str, buffers: dict[str, Tensor | Tile], target: Target) -> None:
    spec = instruction_spec(instruction.opcode)
    if instruction.engine not in spec.engines:
        raise ProgramError(f"{where}: runs on {', '.join(spec.engines)}")
    if target.neuroncore_version < spec.generation:
        raise ProgramError(
            f"{where}: needs NeuronCore-v{spec.generation}, {target.name} is NeuronCore-v{target.neuroncore_version}"
        )
    if spec.dma != bool(instruction.queue):
        raise ProgramError(f"{where}: {'a DMA needs a queue' if spec.dma else 'not a DMA, so it has no queue'}")
    given = dict(instruction.operands)
    for operand in spec.operands:
        value = given.get(operand.name)
        if isinstance(value, Access):
            _check_access(
                value,
                f"{where}: operand {operand.name}",
                operand,
                instruction=instruction,
                buffers=buffers,
                target=target,
            )
        elif value is None and not operand.optional:
            raise ProgramError(f"{where}: operand {operand.name} is missing")
    known = {operand.name for operand in spec.operands} | {attribute.name for attribute in spec.attributes}
    for name, value in given.items():
        if name not in known:
            raise ProgramError(f"{where}: has no operand {name}; its operands: {', '.join(sorted(known))}")
        if isinstance(value, Access) and spec.operand(name) is None:
            raise ProgramError(f"{where}: {name} is a plain value, not a place in memory")
    for attribute in spec.attributes:
        if attribute.name not in given:
            raise ProgramError(f"{where}: {attribute.name} is missing")
        if attribute.allowed and given[attribute.name] not in attribute.allowed:
            allowed = ", ".join(map(repr, attribute.allowed))
            raise ProgramError(f"{where}: {attribute.name}={given[attribute.name]!r}, allowed: {allowed}")
    use = Use(instruction, buffers, target.neuroncore_version)
    _check_shapes(spec, use, where)
    if spec.check is not None:
        try:
            spec.check(use)
        except ProgramError as error:
            raise ProgramError(f"{where}: {str(error).split(': ', 1)[1]}") from None


def _check_shapes(spec: InstructionSpec, use: Use, where: str) -> None:
    first = use.access(spec.operands[0].name)
    for name in spec.same_elements:
        access = use.access(name)
        if access.free_elements != first.free_elements or (
            access.partitions != first.partitions and spec.name != "tensor_partition_reduce"
        ):
            raise ProgramError(
                f"{where}: operand {name} is [{access.partitions}, {access.free_elements}], "
                f"{spec.operands[0].name} is [{first.partitions}, {first.free_elements}]: they must match"
            )
    if spec.not_both_psum and all(use.memory(n) == "PSUM" for n in spec.not_both_psum):
        raise ProgramError(f"{where}: operands {' and '.join(spec.not_both_psum)} are both in PSUM: move one to SBUF")
    for operand in spec.operands:
        value = use.operands.get(operand.name)
        if (
            operand.column
            and isinstance(value, Access)
            and not spec.dma
            and (value.partitions != first.partitions or value.free_elements != 1)
        ):
            raise ProgramError(
                f"{where}: operand {operand.name} is [{value.partitions}, {value.free_elements}], "
                f"needs [{first.partitions}, 1]"
            )


def _check_access(
    access: Access,
    where: str,
    operand: OperandSpec,
    *,
    instruction: Instruction,
    buffers: dict[str, Tensor | Tile],
    target: Target,
) -> None:
    buffer = buffers.get(access.buffer)
    if buffer is None:
        raise ProgramError(f"{where}: no tile or tensor called {access.buffer!r}")
    _check_dtype(access.dtype, where)
    memory = buffer.memory if isinstance(buffer, Tile) else "HBM"
    if memory not in operand.memories or (instruction.engine == "GpSimd" and memory == "PSUM"):
        allowed = [m for m in operand.memories if not (instruction.engine == "GpSimd" and m == "PSUM")]
        raise ProgramError(f"{where}: {access.buffer} is in {memory}, allowed: {', '.join(allowed)}")
    if operand.dtypes and access.dtype not in operand.dtypes:
        raise ProgramError(f"{where}: dtype {access.dtype}, allowed: {', '.join(operand.dtypes)}")
    if not 1 <= access.partitions <= target.partitions:
        raise ProgramError(f"{where}: {access.partitions} partitions, limit {target.partitions}: tile it")
    if len(access.free) > _FREE_DIMENSIONS:
        raise ProgramError(f"{where}: {len(access.free)} free dimensions, limit {_FREE_DIMENSIONS}")
    if any(size < 1 for _, size in access.free):
        raise ProgramError(f"{where}: a free dimension of size {min(size for _, size in access.free)}, at least 1")
    _check_reach(access, buffer, where, instruction=instruction, target=target)
    if isinstance(buffer, Tensor):
        return
    if access.start_partition + access.partitions > buffer.partitions:
        raise ProgramError(
            f"{where}: partitions {access.start_partition}..{access.start_partition + access.partitions} of tile "
            f"{buffer.name}, which has {buffer.partitions}"
        )
    if not instruction.queue:
        _check_start(buffer.start_partition + access.start_partition, access.partitions, where)
        limit = PSUM_ELEMENTS if memory == "PSUM" else _SBUF_ELEMENTS
        if access.free_elements > limit:
            raise ProgramError(
                f"{where}: {access.free_elements} elements per partition, limit {limit} in {memory}: split it"
            )


def _check_start(start: int, partitions: int, where: str) -> None:
    """Engines reach partitions from 0, from 0 or 64 (at most 64), from a multiple of 32 (at most 32)."""
    allowed = (0,) if partitions > 64 else (0, 64) if partitions > 32 else (0, 32, 64, 96)
    if start not in allowed:
        raise ProgramError(
            f"{where}: starts at partition {start}; {partitions} partitions may start at {', '.join(map(str, allowed))}"
        )
