"""The timing model: how long a program takes on a target, without computing a value.

`simulate(program, target)` returns a `Timeline`: total time, every instruction and DMA transfer with its start and
duration, traffic and utilization. `bounds(program, target)` gives the limits the total must lie between. The fixed
cost of launching an execution is not part of a program's time; the target file has it.

What is modelled: issue time and result latency of each instruction, semaphore hand-over, activation-table loads, the
TensorE's slow start after idling, Vector performance modes, descriptor generation per DMA and row, first-byte and
completion latency of DMAs, row-size efficiency, fair sharing of DMA engines and HBM between queues. Not modelled: port
conflicts between engines on SBUF and PSUM, the depth of descriptor rings (an engine never blocks on a full one), HBM
banks and refresh, the second physical core of a logical one, power throttling beyond the slow start.

`costs.py` prices one instruction, `dma.py` shares the DMA engines among the queues, `simulate.py` plays the streams.
"""

from neuroncore.timing.simulate import Bounds, Timeline, bounds, simulate

__all__ = ["Bounds", "Timeline", "bounds", "simulate"]
