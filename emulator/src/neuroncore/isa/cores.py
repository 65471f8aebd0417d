"""Programs of several physical cores that work as one logical core: sections with a barrier after each."""

from __future__ import annotations

from dataclasses import dataclass

from neuroncore.isa.program import Program, Tensor

__all__ = ["Divided", "Section"]


@dataclass(frozen=True)
class Section:
    """What cores do at the same time, sharing nothing but HBM.

    Attributes:
        kernel: kind of what it computes ("product").
        programs: one for each core that takes part, the first core's first. What one writes no other touches.
    """

    kernel: str
    programs: tuple[Program, ...]


@dataclass(frozen=True)
class Divided:
    """Sections in order. After one that several cores take part in, all wait for each other."""

    cores: int
    sections: tuple[Section, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The HBM tensors of all programs, each once; one that is ever written is no mere input."""
        found: dict[str, Tensor] = {}
        for section in self.sections:
            for program in section.programs:
                for tensor in program.tensors:
                    if tensor.name not in found or tensor.kind != "input":
                        found[tensor.name] = tensor
        return tuple(found.values())
