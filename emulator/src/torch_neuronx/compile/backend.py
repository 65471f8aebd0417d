"""The backend that Dynamo calls: checks the options, fixes the shapes, hands the graph to aot_autograd."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from torch_neuronx.compile.attention import fuse_attention
from torch_neuronx.compile.decompositions import decompositions
from torch_neuronx.compile.errors import NEFFCompilationError
from torch_neuronx.compile.graph import compile_fx
from torch_neuronx.compile.names import get_model_name

__all__ = ["create_neuron_backend", "neuron_backend"]

_log = logging.getLogger("torch_neuronx.compile")
_OPTIONS = ("model_name", "fallback_execution", "compiler_args")

Backend = Callable[..., Callable[..., Any]]


def neuron_backend(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """`torch.compile(backend="neuron")`: compile one captured graph.

    Args:
        module: the graph Dynamo captured.
        example_inputs: fake tensors in the inputs' place.
        mode: only the default exists; anything else is warned about and ignored.
        options: `model_name` (see `set_model_name`), `fallback_execution` (run the graph op by op where it can't be
            compiled), `compiler_args` (accepted, without effect).

    Raises:
        NEFFCompilationError: dynamic=True, or the graph can't be compiled and falling back is off.
        TypeError: options is no dict.
    """
    chosen = _checked(options)
    if mode is not None and mode != "default":
        _log.warning("Neuron backend does not support mode='%s', falling back to default mode.", mode)
    if not torch._dynamo.config.assume_static_by_default:
        raise NEFFCompilationError(
            "Neuron backend does not support dynamic=True: programs have fixed shapes. "
            "Leave `dynamic` out; another input shape compiles another program."
        )
    _fix_shapes(example_inputs)
    model = chosen.get("model_name") or get_model_name()
    compiler = aot_autograd(
        fw_compiler=functools.partial(_compile, model=model, is_backward=False),
        bw_compiler=functools.partial(_compile, model=model, is_backward=True),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(),
        keep_inference_input_mutations=True,
    )
    try:
        return compiler(fuse_attention(module, example_inputs), example_inputs)
    except NEFFCompilationError as error:
        if not _may_fall_back(chosen):
            raise
        _log.warning("%s; running the graph op by op instead", error)
        return module.forward


def create_neuron_backend(model_name: str | None = None, **options: Any) -> Backend:
    """A backend with options of its own, for `torch.compile(backend=create_neuron_backend(model_name="llama"))`."""
    given = {**options, "model_name": model_name} if model_name else options

    def backend(
        module: fx.GraphModule,
        example_inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Callable[..., Any]:
        return neuron_backend(module, example_inputs, mode=mode, options={**given, **(options or {})})

    return backend


def _compile(module: fx.GraphModule, inputs: Sequence[Any], *, model: str, is_backward: bool) -> Callable[..., Any]:
    return compile_fx(module, inputs, model, is_backward=is_backward)


def _checked(options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(f"options must be a dict or None, got {type(options).__name__}")
    if unknown := sorted(set(options) - set(_OPTIONS)):
        _log.warning("Neuron backend ignores unknown options %s; known: %s", unknown, ", ".join(_OPTIONS))
    return options


def _fix_shapes(inputs: Sequence[Any]) -> None:
    """Make sizes that Dynamo took for variable constants again (it guards on them): every shape has its own program."""
    for value in inputs:
        if isinstance(value, torch.SymInt):
            int(value)
        elif isinstance(value, torch.Tensor):
            for size in (*value.shape, *value.stride()):
                int(size)


def _may_fall_back(options: Mapping[str, Any]) -> bool:
    if "fallback_execution" in options:
        return bool(options["fallback_execution"])
    return os.environ.get("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "1") == "0"
