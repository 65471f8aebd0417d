"""What a declaration of an instruction says, and the operands most of them have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neuroncore.isa import costs, semantics
from neuroncore.isa.dtypes import FLOAT_DTYPES, INT_DTYPES
from neuroncore.isa.program import Value

__all__ = [
    "ANY",
    "CHIP",
    "DMA",
    "FUNCTIONS",
    "INTS",
    "OPERATORS",
    "REQUIRED",
    "SBUF",
    "AttributeSpec",
    "InstructionSpec",
    "OperandSpec",
    "Required",
    "column",
    "dst",
    "result",
    "src",
]

ANY = (*FLOAT_DTYPES, *INT_DTYPES)
SBUF = ("SBUF",)
CHIP = ("SBUF", "PSUM")
DMA = ("HBM", "SBUF")
INTS = tuple(d for d in INT_DTYPES if d != "bool")


class Required:
    """Marks an attribute without a default."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = Required()


@dataclass(frozen=True)
class OperandSpec:
    """One operand.

    Attributes:
        role: "write", "read" or "update" (read and written).
        memories: where it may live.
        dtypes: element types allowed.
        optional: may be left out.
        scalar: a plain number is allowed instead of an access pattern.
        column: must be [P, 1], one value per partition.
    """

    name: str
    role: str
    memories: tuple[str, ...]
    dtypes: tuple[str, ...] = ANY
    optional: bool = False
    scalar: bool = False
    column: bool = False


@dataclass(frozen=True)
class AttributeSpec:
    """One attribute: its default (`REQUIRED` if none) and, if not empty, the values allowed."""

    name: str
    default: Value | Required = REQUIRED
    allowed: tuple[Value, ...] = ()


@dataclass(frozen=True)
class InstructionSpec:
    """Everything there is to know about one instruction.

    Attributes:
        engines: streams that may execute it (trigger it, for DMA); the first is the default.
        generation: first NeuronCore version that has it (2, 3, 4).
        execute: what it computes; None when not modelled yet.
        cycles: engine cycles it occupies its engine; None for DMA (timed by the queue model) or when not modelled.
        check: further limits; raises ProgramError.
        dma: runs on a DMA queue.
        same_elements: names of operands that must have as many elements per partition as the first one.
        not_both_psum: pair of operands that must not both be in PSUM.
    """

    name: str
    doc: str
    engines: tuple[str, ...]
    operands: tuple[OperandSpec, ...] = ()
    attributes: tuple[AttributeSpec, ...] = ()
    execute: Callable[[semantics.Context], None] | None = None
    cycles: Callable[[costs.Use], float] | None = None
    check: Callable[[costs.Use], None] | None = None
    generation: int = 2
    dma: bool = False
    same_elements: tuple[str, ...] = ()
    not_both_psum: tuple[str, str] | None = None

    @property
    def implemented(self) -> bool:
        """Whether machine and timing model know it."""
        return self.execute is not None

    def operand(self, name: str) -> OperandSpec | None:
        """The operand called `name`."""
        return next((o for o in self.operands if o.name == name), None)


def dst(memories: tuple[str, ...] = CHIP, role: str = "write", dtypes: tuple[str, ...] = ANY) -> OperandSpec:
    """What most instructions write."""
    return OperandSpec("dst", role, memories, dtypes)


def src(name: str = "data", memories: tuple[str, ...] = CHIP, dtypes: tuple[str, ...] = ANY) -> OperandSpec:
    """A tile that is read."""
    return OperandSpec(name, "read", memories, dtypes)


def column(name: str, *, optional: bool = True, scalar: bool = True) -> OperandSpec:
    """A value per partition, or a number."""
    return OperandSpec(name, "read", CHIP, ANY, optional=optional, scalar=scalar, column=True)


def result(name: str = "reduce_res") -> OperandSpec:
    """Where a reduction puts its value per partition."""
    return OperandSpec(name, "write", CHIP, ANY, optional=True, column=True)


#: Two-input operators, and functions of an activation.
OPERATORS = tuple(semantics.ALU)
FUNCTIONS = tuple(semantics.FUNCTIONS)
