"""The timing model: how long a program takes on a target, without computing a value.

`simulate(program, target)` returns a `Timeline`: total time, every instruction and DMA transfer with its start and
duration, traffic and utilization. `bounds(program, target)` gives the limits the total must lie between. The fixed
cost of launching an execution is not part of a program's time; the target file has it.

`costs.py` prices one instruction, `dma.py` shares the DMA engines among the queues, `simulate.py` plays the streams.
"""

from neuroncore.timing.simulate import Bounds, Timeline, bounds, simulate

__all__ = ["Bounds", "Timeline", "bounds", "simulate"]
