"""`ProgramBuilder`: the mutable half of `Program`, used by the compiler, by NKI and by hand-written programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from neuroncore.errors import ProgramError
from neuroncore.isa.dtypes import DTYPE_BYTES
from neuroncore.isa.instructions import InstructionSpec, Required, instruction_spec
from neuroncore.isa.program import Access, Instruction, Loop, Operand, Program, Signal, Tensor, Tile, Wait

__all__ = ["ProgramBuilder"]


class ProgramBuilder:
    """Collects tensors, tiles and instructions, then `build()`s an immutable `Program`.

    Names of tensors and tiles are unique within a program. `emit` checks names and attribute values at once; shapes,
    memories and limits are checked by `verify`, which knows the target.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._tensors: dict[str, Tensor] = {}
        self._tiles: dict[str, Tile] = {}
        self._bodies: list[list[Instruction | Loop]] = [[]]
        self._loops = 0
        self._op = ""
        self._source = ""

    # HBM tensors

    def tensor(self, name: str, shape: Iterable[int], dtype: str, kind: str) -> Tensor:
        """Declare an HBM tensor of kind input, output, inout or temporary."""
        self._check_name(name, dtype)
        if kind not in ("input", "output", "inout", "temporary"):
            raise ProgramError(f"tensor {name}: kind {kind!r} is not input, output, inout or temporary")
        self._tensors[name] = tensor = Tensor(name, tuple(shape), dtype, kind)
        return tensor

    def input(self, name: str, shape: Iterable[int], dtype: str) -> Tensor:
        """Declare a tensor the host provides."""
        return self.tensor(name, shape, dtype, "input")

    def output(self, name: str, shape: Iterable[int], dtype: str) -> Tensor:
        """Declare a tensor the host reads back."""
        return self.tensor(name, shape, dtype, "output")

    def temporary(self, name: str, shape: Iterable[int], dtype: str) -> Tensor:
        """Declare scratch space in HBM."""
        return self.tensor(name, shape, dtype, "temporary")

    # On-chip tiles

    def sbuf(self, name: str, partitions: int, free_elements: int, dtype: str, address: int | None = None) -> Tile:
        """Declare an SBUF tile of `free_elements` elements in each partition."""
        return self._tile(name, "SBUF", partitions=partitions, elements=free_elements, dtype=dtype, address=address)

    def psum(
        self, name: str, partitions: int, free_elements: int, dtype: str = "fp32", address: int | None = None
    ) -> Tile:
        """Declare a PSUM tile; 512 fp32 elements fill a bank."""
        return self._tile(name, "PSUM", partitions=partitions, elements=free_elements, dtype=dtype, address=address)

    def _tile(self, name: str, memory: str, *, partitions: int, elements: int, dtype: str, address: int | None) -> Tile:
        self._check_name(name, dtype)
        self._tiles[name] = tile = Tile(name, memory, partitions, elements * DTYPE_BYTES[dtype], dtype, address)
        return tile

    def undeclare(self, name: str) -> None:
        """Forget a tile that no instruction to be built names."""
        del self._tiles[name]

    def _check_name(self, name: str, dtype: str) -> None:
        if name in self._tensors or name in self._tiles:
            raise ProgramError(f"{name}: declared twice in program {self.name!r}; names are unique")
        if not name.replace("_", "a").replace(".", "a").isalnum():
            raise ProgramError(f"{name!r}: a name has letters, digits, '_' and '.' only")
        if dtype not in DTYPE_BYTES:
            raise ProgramError(f"{name}: unknown dtype {dtype!r}; known: {', '.join(DTYPE_BYTES)}")

    # Instructions

    def emit(
        self,
        opcode: str,
        *,
        engine: str | None = None,
        queue: str | None = None,
        waits: Iterable[Wait] = (),
        signals: Iterable[Signal] = (),
        **operands: Operand | Tile,
    ) -> Instruction:
        """Append one instruction.

        Args:
            opcode: nki.isa name.
            engine: one of the instruction's engines; the first declared when None.
            queue: DMA queue name; a queue belongs to one engine. When None: "q", the engine's name and "Load" (HBM to
                SBUF), "Store" (SBUF to HBM) or "Move".
            waits: semaphores to wait for; leave them out and call `synchronize(program)` to have them placed.
            signals: semaphores to raise, likewise.
            **operands: access patterns, tiles (meaning all of the tile), numbers and attributes by their declared name.

        Raises:
            ProgramError: unknown operand, missing operand, bad attribute value or engine.
            UnsupportedInstructionError: declared but not modelled.
        """
        spec = instruction_spec(opcode)
        engine = engine or spec.engines[0]
        if engine not in spec.engines:
            raise ProgramError(f"{opcode}: engine {engine} can't execute it; it runs on {', '.join(spec.engines)}")
        values = self._operands(spec, operands)
        if spec.dma and queue is None:
            queue = f"q{engine}{self._direction(values)}"
        if not spec.dma and queue:
            raise ProgramError(f"{opcode}: not a DMA, so it has no queue (given {queue!r})")
        instruction = Instruction(
            opcode, engine, values, tuple(waits), tuple(signals), queue or "", self._op, self._source
        )
        self._bodies[-1].append(instruction)
        return instruction

    def _operands(self, spec: InstructionSpec, given: dict[str, Operand | Tile]) -> tuple[tuple[str, Operand], ...]:
        values: list[tuple[str, Operand]] = []
        for operand in spec.operands:
            value = given.pop(operand.name, None)
            if type(value) is Access:
                values.append((operand.name, value))
                continue
            if value is None:
                if not operand.optional:
                    raise ProgramError(f"{spec.name}: operand {operand.name} is missing")
                continue
            if isinstance(value, Tile):
                value = value.access()
            if not isinstance(value, Access) and not (operand.scalar and isinstance(value, (int, float))):
                raise ProgramError(f"{spec.name}: operand {operand.name} must be an access pattern, got {value!r}")
            values.append((operand.name, value))
        for attribute in spec.attributes:
            value = given.pop(attribute.name, None if isinstance(attribute.default, Required) else attribute.default)
            if value is None and isinstance(attribute.default, Required):
                raise ProgramError(f"{spec.name}: attribute {attribute.name} is missing")
            if isinstance(value, (Access, Tile)):
                raise ProgramError(f"{spec.name}: attribute {attribute.name} is a plain value, got an access pattern")
            if attribute.allowed and value not in attribute.allowed:
                allowed = ", ".join(map(repr, attribute.allowed))
                raise ProgramError(f"{spec.name}: {attribute.name}={value!r} is not one of {allowed}")
            values.append((attribute.name, value))
        if given:
            raise ProgramError(f"{spec.name}: unknown operand {next(iter(given))}")
        return tuple(values)

    def _direction(self, values: tuple[tuple[str, Operand], ...]) -> str:
        on_chip = {name: value.buffer in self._tiles for name, value in values if isinstance(value, Access)}
        if on_chip["dst"] and not on_chip["src"]:
            return "Load"
        return "Store" if on_chip["src"] and not on_chip["dst"] else "Move"

    @contextmanager
    def op(self, op: str, source: str = "") -> Iterator[None]:
        """Instructions emitted inside belong to ATen op `op` called at `source`."""
        saved = self._op, self._source
        self._op, self._source = op, source
        try:
            yield
        finally:
            self._op, self._source = saved

    @contextmanager
    def loop(self, count: int, name: str | None = None) -> Iterator[str]:
        """Instructions emitted inside are executed `count` times; yields the loop's name for `steps`.

        An access with ``steps=((name, 512),)`` starts 512 elements later each time.
        """
        self._loops += 1
        name = name or f"i{self._loops}"
        self._bodies.append([])
        try:
            yield name
        finally:
            body = self._bodies.pop()
            self._bodies[-1].append(Loop(name, count, tuple(body)))

    def build(self, *, derived: bool = False) -> Program:
        """The immutable program.

        Args:
            derived: leave its semaphores to be derived from the data dependences, so that loops stay rolled.
        """
        tensors, tiles = tuple(self._tensors.values()), tuple(self._tiles.values())
        return Program(self.name, tensors, tiles, tuple(self._bodies[0]), derived)
