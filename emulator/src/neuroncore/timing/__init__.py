"""The timing model: how long a program takes on a target, without computing a value.

`simulate(program, target)` returns a `Timeline`: total time, every instruction and DMA transfer with its start and
duration, traffic and utilization. `bounds(program, target)` gives the limits the total must lie between. The fixed
cost of launching an execution is not part of a program's time; the target file has it.

What is modelled: issue time and result latency of each instruction, semaphore hand-over, activation-table loads, the
TensorE's slow start after idling, Vector performance modes, descriptor generation per DMA and row, first-byte and
completion latency of DMAs, row-size efficiency, fair sharing of DMA engines and HBM between queues. Not modelled: port
conflicts between engines on SBUF and PSUM, the depth of descriptor rings (an engine never blocks on a full one), HBM
banks and refresh, power throttling beyond the slow start. `cores.py` times programs divided over several cores.

`costs.py` prices one instruction, `dma.py` shares the DMA engines among the queues, `play.py` plays the streams,
`simulate.py` makes the tables, `bounds.py` the limits.

More bandwidth, a faster clock or a shorter latency never makes a program slower, with two exceptions that real
hardware has too: a transfer that arrives earlier takes its share from a transfer of another queue, and TensorE that
waits longer for its next work is cold when that comes. A program gains at least nothing once these are set aside, and
loses at most what they cost (`tests/neuroncore/test_random_programs.py`).
No rule for sharing could do without the first. Let two queues each bring one transfer of time w. If A comes at w or
later, B, there at 0, is done at w when nothing idles that has work. If both come at 0, one of them is done at 2w;
call it B. So B is later because A came earlier, whatever the rule, unless DMA engines stand idle for transfers still
to come.
"""

from neuroncore.timing.bounds import Bounds, bounds, critical_path_ns
from neuroncore.timing.cores import DividedTime, divided_time
from neuroncore.timing.simulate import Timeline, simulate

__all__ = ["Bounds", "DividedTime", "Timeline", "bounds", "critical_path_ns", "divided_time", "simulate"]
