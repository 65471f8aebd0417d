"""`torch.compile(backend="neuron")`: one device execution per graph call. Start at `backend.neuron_backend`.

aot_autograd turns what Dynamo captured into ATen graphs (forward, backward); each is compiled to one program
(`graph.py`), whose values are computed by the same kernels as eager ops and whose launch is the only one a call makes.
"""

from __future__ import annotations

from torch_neuronx.compile.backend import create_neuron_backend, neuron_backend
from torch_neuronx.compile.metrics import get_dynamo_metrics, reset_dynamo_metrics
from torch_neuronx.compile.names import get_model_name, get_rank, set_model_name

__all__ = [
    "create_neuron_backend",
    "get_dynamo_metrics",
    "get_model_name",
    "get_rank",
    "neuron_backend",
    "reset_dynamo_metrics",
    "set_model_name",
]
