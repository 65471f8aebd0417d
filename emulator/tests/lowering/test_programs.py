"""From a torch call to the machine: the program that is timed computes what torch computes.

Every case goes the whole way (torch → graph → program → machine) and is compared with torch on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from neuroncore import machine
from neuroncore.graph import Graph
from neuroncore.runtime import compile_graph
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.nn import functional as F
from torch_neuronx import lowering

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.int64: 0, torch.bool: 0}


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def storage(tensor: torch.Tensor) -> np.ndarray:
    """The memory a tensor looks at, from its first element."""
    count = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    flat = tensor.detach().as_strided((count,), (1,)).clone()
    return flat.view(torch.int16).numpy().view(np.uint16) if tensor.dtype == torch.bfloat16 else flat.numpy()


def loaded(array: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    flat = array.reshape(-1).copy()
    if like.dtype == torch.bfloat16:
        return torch.from_numpy(flat.view(np.int16)).view(torch.bfloat16).as_strided(like.shape, like.stride())
    return torch.from_numpy(flat).as_strided(like.shape, like.stride())


def check(graph: Graph, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
    """Execute a graph's program on the machine; compare all it wrote."""
    executable = compile_graph(graph)
    assert executable.estimated_ns == 0, f"{graph.name} is not lowered"
    written = machine.run(executable.program, [storage(tensor) for tensor in inputs])
    assert written
    for name, array in written.items():
        kind, number = name.rstrip("0123456789"), int(name.lstrip("inout"))
        if kind == "out":
            wanted = results[number]
        else:
            (value,) = [value for index, value in graph.mutates if index == number]
            wanted = results[[*graph.outputs, *(v for _, v in graph.mutates)].index(value)]
        limit = TOLERANCE[wanted.dtype]
        torch.testing.assert_close(loaded(array, wanted), wanted.detach(), rtol=limit, atol=limit)


BF16 = torch.bfloat16
CALLS = {
    "mul": ("aten::mul.Tensor", lambda: [draw(4, 512, dtype=BF16), draw(512, dtype=BF16)]),
    "mul by itself": ("aten::mul.Tensor", lambda: [draw(4, 512, dtype=BF16)] * 2),
    "mul by a number": ("aten::mul.Tensor", lambda: [draw(4, 512), 3]),
    "add with alpha": ("aten::add.Tensor", lambda: [draw(4, 8), draw(4, 8), 2]),
    "add a number": ("aten::add.Tensor", lambda: [draw(4, 1, dtype=BF16), 1e-6, 1]),
    "rsub": ("aten::rsub.Scalar", lambda: [draw(4, 8), 1, 1]),
    "div": ("aten::div.Tensor", lambda: [draw(4, 8), draw(4, 8).abs() + 1]),
    "pow": ("aten::pow.Tensor_Scalar", lambda: [draw(4, 8), 2]),
    "rsqrt": ("aten::rsqrt", lambda: [draw(4, 8).abs() + 0.1]),
    "gelu": ("aten::gelu", lambda: [draw(4, 64), "tanh"]),
    "clamp": ("aten::clamp", lambda: [draw(4, 64), -0.5, None]),
    "where": ("aten::where.self", lambda: [draw(4, 8) > 0, draw(4, 8), draw(8)]),
    "comparison": ("aten::gt.Scalar", lambda: [draw(4, 8), 0.5]),
    "cast": ("aten::_to_copy", lambda: [draw(4, 8), BF16, torch.strided, None, False, False, None]),
    "clone": ("aten::clone", lambda: [draw(8, 4).t(), torch.contiguous_format]),
    "mean": ("aten::mean.dim", lambda: [draw(4, 512, dtype=BF16), [-1], True, None]),
    "sum of all": ("aten::sum", lambda: [draw(4, 8), None]),
    "sum into a dtype": ("aten::sum.dim_IntList", lambda: [draw(4, 8, dtype=BF16), [0], False, torch.float32]),
    "amax": ("aten::amax", lambda: [draw(4, 8), [1], False]),
    "softmax": ("aten::_softmax", lambda: [draw(4, 33), -1, False]),
    "layer norm": ("aten::native_layer_norm", lambda: [draw(4, 64), [64], draw(64), draw(64), 1e-5]),
    "mm": ("aten::mm", lambda: [draw(32, 48), draw(48, 16)]),
    "mm of a transpose": ("aten::mm", lambda: [draw(48, 32).t(), draw(48, 16)]),
    "addmm": ("aten::addmm", lambda: [draw(16), draw(32, 48), draw(48, 16), 1, 1]),
    "bmm": ("aten::bmm", lambda: [draw(2, 8, 16), draw(2, 16, 4)]),
    "cat": ("aten::cat", lambda: [[draw(2, 8), draw(3, 8)], 0]),
    "linear": ("aten::linear", lambda: [draw(2, 8, 16), draw(4, 16), draw(4)]),
    "embedding": ("aten::embedding", lambda: [draw(20, 16), torch.tensor([[1, 3], [19, 0]]), -1, False, False]),
}


@pytest.mark.parametrize("name", CALLS)
def test_eager_call(name: str) -> None:
    op, make = CALLS[name]
    args = make()
    overload = lowering.operator_of(op)
    names = [argument.name for argument in overload._schema.arguments if argument.kwarg_only]
    positional = len(overload._schema.arguments) - len(names)
    result = overload(*args[:positional], **dict(zip(names, args[positional:], strict=False)))
    results = list(result) if isinstance(result, tuple | list) else [result]
    flat = [item for arg in args for item in (arg if isinstance(arg, list) else [arg])]
    inputs = list({id(item): item for item in flat if isinstance(item, torch.Tensor)}.values())
    check(lowering.graph_from_call(op, args, results=results), inputs, results)


def test_in_place_call_writes_its_argument() -> None:
    x, y = draw(4, 8), draw(8)
    before = x.clone()
    graph = lowering.graph_from_call("aten::mul_.Tensor", [x, y], results=[x.mul_(y)])
    check(graph, [before, y], [x])


def test_out_variant_writes_the_given_tensor() -> None:
    x, out = draw(4, 8), torch.zeros(4, 8)
    graph = lowering.graph_from_call("aten::add.out", [x, 2, 1, out], results=[torch.add(x, 2, out=out)])
    check(graph, [x, torch.zeros(4, 8)], [out])


def test_list_call_writes_every_tensor() -> None:
    tensors = [draw(4, 8), draw(6)]
    before = [tensor.clone() for tensor in tensors]
    graph = lowering.graph_from_call("aten::_foreach_mul_.Scalar", [tensors, 3.0])
    torch._foreach_mul_(tensors, 3.0)
    check(graph, before, tensors)


@pytest.fixture
def compiled_graphs() -> Callable[..., None]:
    """Check forward and backward graph of a function as torch.compile captures it on the CPU."""

    def run(function: Callable[..., Any], *args: torch.Tensor, backward: bool = False) -> None:
        seen: list[str] = []

        def compiler(module: torch.fx.GraphModule, inputs: Any) -> Any:
            graph = lowering.graph_from_fx(module, "test")

            def body(boxed: list[Any]) -> Any:
                inputs = [value.detach().clone() for value in boxed]
                results = module.forward(*boxed)
                tensors = [value for value in results if isinstance(value, torch.Tensor)]
                placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
                mutated = [boxed[index] for index, _ in graph.mutates]
                assert len(placeholders) == len(inputs)
                check(graph, inputs, [*tensors, *mutated])
                seen.append(graph.name)
                return results

            body._boxed_call = True
            return body

        torch._dynamo.reset()
        backend = aot_autograd(
            fw_compiler=compiler,
            partition_fn=min_cut_rematerialization_partition,
            keep_inference_input_mutations=True,
        )
        result = torch.compile(function, backend=backend, fullgraph=True)(*args)
        if backward:
            result.backward(draw(*result.shape).to(result.dtype))
        assert len(seen) == 1 + backward

    return run


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


def test_rms_norm(compiled_graphs: Callable[..., None]) -> None:
    compiled_graphs(rms_norm, draw(4, 512, dtype=BF16), draw(512, dtype=BF16))


def test_rms_norm_training(compiled_graphs: Callable[..., None]) -> None:
    compiled_graphs(rms_norm, draw(4, 64).requires_grad_(), draw(64).requires_grad_(), backward=True)


def test_perceptron_training(compiled_graphs: Callable[..., None]) -> None:
    def perceptron(x: torch.Tensor, first: torch.Tensor, bias: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return F.silu(x @ first + bias) @ second

    weights = [draw(16, 32), draw(32), draw(32, 8)]
    compiled_graphs(perceptron, draw(8, 16), *(weight.requires_grad_() for weight in weights), backward=True)


def test_attention(compiled_graphs: Callable[..., None]) -> None:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v

    compiled_graphs(attention, draw(2, 12, 16), draw(2, 10, 16), draw(2, 10, 16))


def test_mutation_with_views(compiled_graphs: Callable[..., None]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        left, right = y.chunk(2, -1)
        x.add_(left)
        return x * right

    compiled_graphs(function, draw(4, 8), draw(4, 16))
