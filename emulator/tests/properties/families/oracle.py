"""The oracle: one ATen call, lowered, executed on the machine, compared with torch on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from neuroncore import machine
from neuroncore.isa import parse_program, print_program
from neuroncore.runtime import Executable, compile_graph
from neuroncore.targets import load_target
from neuroncore.timing import bounds, critical_path_ns
from torch.utils._pytree import tree_leaves
from torch_neuronx import lowering
from torch_neuronx.compile.trace import trace_graphs

TARGET = load_target("trn2")
TORCH = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int64": torch.int64, "bool": torch.bool}

#: How far a result in a dtype may be off, relative to its largest value: two roundings.
TOLERANCE = {torch.float32: 2e-5, torch.float64: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@dataclass(frozen=True)
class Case:
    """One call, as hypothesis prints it.

    Attributes:
        op: the overload ("aten::mul.Tensor").
        args: all arguments in the schema's order.
        reference: computes the results where the overload has no CPU kernel, or one that writes its arguments.
        loose: factor on the dtype's tolerance, for ops that add many numbers or amplify errors.
        compared: positions of the results that are defined; None all.
    """

    op: str
    args: tuple[Any, ...]
    reference: Callable[..., Any] | None = None
    loose: float = 1.0
    compared: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        return f"{self.op}({', '.join(map(shown, self.args))})"


def shown(arg: Any) -> str:
    if isinstance(arg, torch.Tensor):
        return f"{str(arg.dtype).removeprefix('torch.')}{list(arg.shape)}/{list(arg.stride())}"
    return f"[{', '.join(map(shown, arg))}]" if isinstance(arg, list | tuple) else repr(arg)


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def storage(tensor: torch.Tensor) -> np.ndarray:
    """The memory a tensor looks at, from its first element."""
    count = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
    flat = tensor.detach().as_strided((count,), (1,)).clone()
    return flat.view(torch.int16).numpy().view(np.uint16) if tensor.dtype == torch.bfloat16 else flat.numpy()


def loaded(array: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    flat = array.reshape(-1).copy()
    if like.dtype == torch.bfloat16:
        return torch.from_numpy(flat.view(np.int16)).view(torch.bfloat16).as_strided(like.shape, like.stride())
    return torch.from_numpy(flat).as_strided(like.shape, like.stride())


def execute(case: Case) -> tuple[Executable, list[tuple[str, torch.Tensor, torch.Tensor]]]:
    """Compile and run a call: its executable, and (name, machine's, torch's) of everything it writes."""
    overload = lowering.operator_of(case.op)
    arguments = overload._schema.arguments
    positional = sum(not a.kwarg_only for a in arguments)
    tensors = list({id(t): t for t in leaves(case.args) if isinstance(t, torch.Tensor)}.values())
    stored = [storage(t) for t in tensors]
    originals = [t.clone() for t in tensors]  # before an op that writes in place
    named = {a.name: v for a, v in zip(arguments[positional:], case.args[positional:], strict=False)}
    function = case.reference or overload
    found = function(*case.args[:positional], **named)
    results = list(leaves(found))
    graph = lowering.graph_from_call(case.op, case.args, results=found)
    assert len(graph.inputs) == len(tensors)
    executable = compile_graph(graph)
    if executable.estimated_ns or not executable.program.outputs:
        return executable, []
    first, late = (machine.run(executable.program, stored, order=order) for order in ("program", "late"))
    pairs = []
    for name, array in first.items():
        assert array.tobytes() == late[name].tobytes(), f"{name} depends on the order of execution"
        kind, number = name.rstrip("0123456789"), int(name.lstrip("inout"))
        if kind == "in":
            pairs.append((name, loaded(array, originals[number]), tensors[number]))
        elif results[number] is not None and (case.compared is None or number in case.compared):
            pairs.append((name, loaded(array, results[number]), results[number]))
    return executable, pairs


def compare(case: Case, pairs: Sequence[tuple[str, torch.Tensor, torch.Tensor]]) -> None:
    for name, got, wanted in pairs:
        limit = case.loose * TOLERANCE.get(wanted.dtype, 0.0)
        finite = wanted.double()[torch.isfinite(wanted.double())]
        scale = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
        torch.testing.assert_close(
            got.double(),
            wanted.detach().double(),
            rtol=limit,
            atol=limit * scale,
            equal_nan=True,
            msg=lambda text, n=name: f"{n}: {text}",
        )


def possible(executable: Executable) -> None:
    """The program's time lies between what its work needs and what it takes serially; its printed form parses back."""
    program = executable.program
    if executable.estimated_ns or not 0 < program.executed < 20_000:
        return
    spent, limits = executable.program_ns, bounds(program, TARGET)
    assert limits.roofline_ns <= spent + 1, f"faster than its roofline: {spent} < {limits.roofline_ns}"
    assert critical_path_ns(program, TARGET) <= spent + 1, f"faster than its longest chain: {spent}"
    assert parse_program(print_program(program)) == program
    assert spent <= limits.serial_ns + 1, f"slower than one after the other: {spent} > {limits.serial_ns}"


def check(case: Case) -> Executable:
    """Check one case; its executable, whose `estimated_ns` says whether there was a program to check."""
    executable, pairs = execute(case)
    compare(case, pairs)
    possible(executable)
    return executable


def on_machine(function: Callable[..., Any], *args: Any) -> list[torch.Tensor]:
    """Results of a function as its compiled graph's program computes them, in the order of its leaves."""
    (graph,) = trace_graphs(function, *args)
    executable = compile_graph(graph)
    assert executable.estimated_ns == 0
    possible(executable)
    found = machine.run(executable.program, [storage(t.contiguous()) for t in tree_leaves(args)])
    results = []
    for position, value in enumerate(graph.outputs):
        written = [number for number, result in graph.mutates if result == value]
        array = found[f"in{written[0]}" if written else f"out{position}"]
        spec = graph.inputs[value.index] if value.node == -1 else graph.nodes[value.node].outputs[value.index]
        like = torch.empty_strided(spec.shape, spec.strides or (1,) * len(spec.shape), dtype=TORCH[spec.dtype])
        results.append(loaded(np.array(array), like))
    return results
