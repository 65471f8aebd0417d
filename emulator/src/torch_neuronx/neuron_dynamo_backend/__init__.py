"""The names under which scripts import the compile backend; it lives in `torch_neuronx.compile`."""

from __future__ import annotations

from torch_neuronx.compile import create_neuron_backend, get_model_name, get_rank, neuron_backend, set_model_name
from torch_neuronx.compile import metrics as metrics
from torch_neuronx.neuron_dynamo_backend import exceptions

__all__ = [
    "create_neuron_backend",
    "exceptions",
    "get_model_name",
    "get_rank",
    "metrics",
    "neuron_backend",
    "set_model_name",
]
