"""The error tree of neuroncore. A message says where, the limit, the actual value and what to do.

::

    NeuroncoreError
    ├── TargetError (ValueError)                unknown or malformed hardware target
    ├── ProgramError (ValueError)               a program the hardware would refuse
    │   └── ParseError                          text that is not a printed program
    ├── UnsupportedInstructionError (NotImplementedError)   declared in the instruction set, not modelled
    ├── DeadlockError (RuntimeError)            engines wait for semaphores nobody will increment
    ├── MachineError (ValueError)               inputs that do not fit the program
    ├── UnsupportedOpError (NotImplementedError)  an ATen op that can't be lowered
    ├── CapacityError (ValueError)              something does not fit HBM, SBUF or PSUM
    └── VerifyError                             a broken invariant: our bug, please report
"""

from __future__ import annotations

__all__ = [
    "CapacityError",
    "DeadlockError",
    "MachineError",
    "NeuroncoreError",
    "ParseError",
    "ProgramError",
    "TargetError",
    "UnsupportedInstructionError",
    "UnsupportedOpError",
    "VerifyError",
]


class NeuroncoreError(Exception):
    """Root of all errors neuroncore raises on purpose."""


class TargetError(ValueError, NeuroncoreError):
    """An unknown target name or a malformed target file."""


class ProgramError(ValueError, NeuroncoreError):
    """A program the hardware would refuse; the message names the instruction and the operand."""


class ParseError(ProgramError):
    """Text that is not a printed program; the message names the line."""


class UnsupportedInstructionError(NotImplementedError, NeuroncoreError):
    """An instruction that is declared but not modelled."""


class DeadlockError(RuntimeError, NeuroncoreError):
    """Every engine waits for a semaphore value that no remaining instruction produces."""


class MachineError(ValueError, NeuroncoreError):
    """Inputs that do not fit the program's tensors."""


class UnsupportedOpError(NotImplementedError, NeuroncoreError):
    """An ATen op (or a form of it) that can't be lowered to instructions yet."""


class CapacityError(ValueError, NeuroncoreError):
    """Something does not fit HBM, SBUF or PSUM."""


class VerifyError(NeuroncoreError):
    """A broken invariant inside neuroncore: our bug, please report."""
