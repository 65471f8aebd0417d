"""`get_logical_neuron_cores`, where some scripts import it from."""

from __future__ import annotations

from torch_neuronx.utils import get_logical_neuron_cores

__all__ = ["get_logical_neuron_cores"]
