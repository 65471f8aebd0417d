"""The machine: executes a program on HBM, SBUF and PSUM, and so defines what programs mean. It never looks at a clock.

>>> import numpy as np
>>> from neuroncore.isa import ProgramBuilder, synchronize
>>> b = ProgramBuilder("double")
>>> x, y = b.input("x", (4, 8), "fp32"), b.output("y", (4, 8), "fp32")
>>> t = b.sbuf("t", 4, 8, "fp32", address=0)
>>> _ = b.emit("dma_copy", dst=t, src=x.rows(0, 4))
>>> _ = b.emit("tensor_scalar", dst=t, data=t, operand0=2.0, op0="multiply")
>>> _ = b.emit("dma_copy", dst=y.rows(0, 4), src=t)
>>> run(synchronize(b.build()), [np.ones((4, 8), np.float32)])["y"][0, :3]
array([2., 2., 2.], dtype=float32)

bf16 and fp8 arrays are passed as bit patterns (`uint16`, `uint8`); `neuroncore.isa.to_float32` and `from_float32`
convert.
"""

from neuroncore.machine.machine import Machine, run, run_divided

__all__ = ["Machine", "run", "run_divided"]
