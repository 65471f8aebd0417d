"""The instruction set of a NeuronCore and programs in it.

Start with `ProgramBuilder`, then `program.py`, then `instructions.py`.

A program for ``y = x + w`` on [256, 512] bf16 tensors, two row tiles, double-buffered by hand:

>>> from neuroncore.isa import ProgramBuilder, synchronize, verify
>>> from neuroncore.targets import load_target
>>> b = ProgramBuilder("add")
>>> x, w = b.input("x", (256, 512), "bf16"), b.input("w", (256, 512), "bf16")
>>> y = b.output("y", (256, 512), "bf16")
>>> with b.op("aten.add.Tensor", source="model.py:7"):
...     for i in range(2):
...         base = i * 3072                        # bytes within each partition; the allocator's business
...         tx = b.sbuf(f"tx{i}", 128, 512, "bf16", address=base)
...         tw = b.sbuf(f"tw{i}", 128, 512, "bf16", address=base + 1024)
...         ty = b.sbuf(f"ty{i}", 128, 512, "bf16", address=base + 2048)
...         _ = b.emit("dma_copy", dst=tx, src=x.rows(128 * i, 128))           # engine Sync, queue qSyncLoad
...         _ = b.emit("dma_copy", dst=tw, src=w.rows(128 * i, 128))
...         _ = b.emit("tensor_tensor", dst=ty, data1=tx, data2=tw, op="add")  # engine Vector
...         _ = b.emit("dma_copy", engine="Scalar", dst=y.rows(128 * i, 128), src=ty)
>>> program = synchronize(b.build())               # places semaphore waits and signals from the data dependences
>>> verify(program, load_target("trn2"))           # refuses what the hardware refuses

The same for 200 row tiles as a loop, its semaphores left to be derived when it is timed or run:

>>> b = ProgramBuilder("add")
>>> x, w = b.input("x", (25600, 512), "bf16"), b.input("w", (25600, 512), "bf16")
>>> y = b.output("y", (25600, 512), "bf16")
>>> tiles = [b.sbuf(f"t{i}", 128, 512, "bf16", address=i * 1024) for i in range(6)]
>>> with b.loop(100) as i:
...     for half in range(2):
...         tx, tw, ty = tiles[3 * half : 3 * half + 3]
...         def rows(tensor):                      # 128 rows, two row tiles further each time
...             step = ((i, 256 * 512),)
...             return tensor.access(128, ((1, 512),), offset=half * 128 * 512, partition_stride=512, steps=step)
...         _ = b.emit("dma_copy", dst=tx, src=rows(x))
...         _ = b.emit("dma_copy", dst=tw, src=rows(w))
...         _ = b.emit("tensor_tensor", dst=ty, data1=tx, data2=tw, op="add")
...         _ = b.emit("dma_copy", engine="Scalar", dst=rows(y), src=ty)
>>> program = b.build(derived=True)
>>> verify(program, load_target("trn2"))
>>> program.executed
800

Operands are `Access` patterns made by `Tensor.access/rows` and `Tile.access/columns/view`; a `Tile` alone means all
of it. Numbers are allowed where the declaration says so (`operand0=2.0`). `neuroncore.machine.run` computes a
program, `neuroncore.timing.simulate` times it, `print_program`/`parse_program` convert to text and back.

Numbers: engines compute in fp32 and cast on write; see `dtypes` for how arrays are passed.
"""

from neuroncore.isa.builder import ProgramBuilder
from neuroncore.isa.dtypes import DTYPE_BYTES, from_float32, to_float32
from neuroncore.isa.instructions import INSTRUCTIONS, AttributeSpec, InstructionSpec, OperandSpec, instruction_spec
from neuroncore.isa.program import (
    ENGINES,
    Access,
    Instruction,
    Loop,
    Operand,
    Program,
    Signal,
    Tensor,
    Tile,
    Value,
    Wait,
)
from neuroncore.isa.semantics import ALU, FUNCTION_TABLES, FUNCTIONS, REDUCE
from neuroncore.isa.synchronize import synchronize
from neuroncore.isa.text import parse_program, print_program
from neuroncore.isa.verify import verify

__all__ = [
    "ALU",
    "DTYPE_BYTES",
    "ENGINES",
    "FUNCTIONS",
    "FUNCTION_TABLES",
    "INSTRUCTIONS",
    "REDUCE",
    "Access",
    "AttributeSpec",
    "Instruction",
    "InstructionSpec",
    "Loop",
    "Operand",
    "OperandSpec",
    "Program",
    "ProgramBuilder",
    "Signal",
    "Tensor",
    "Tile",
    "Value",
    "Wait",
    "from_float32",
    "instruction_spec",
    "parse_program",
    "print_program",
    "synchronize",
    "to_float32",
    "verify",
]
