"""The oracle: a program executed on the machine must give what torch computes on the CPU.

`oracle(calls, inputs)` runs ATen overloads on CPU tensors, builds the same graph for the compiler, executes the
program on the machine in
two orders (they must agree bit by bit: a missing semaphore would show) and compares every result with torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from neuroncore import machine
from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.runtime import Executable, compile_graph

DTYPES = {
    torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64", torch.int32: "int32",
    torch.int64: "int64", torch.uint8: "uint8", torch.bool: "bool", torch.complex64: "complex64",
}  # fmt: skip
#: How far a result rounded to a dtype may be off: the CPU kernels round intermediates elsewhere, so about two units.
TOLERANCE = {"fp32": 2e-5, "bf16": 2e-2, "fp16": 3e-3, "fp64": 2e-5}


@dataclass(frozen=True)
class Call:
    """One ATen call; arguments that are `Value`s are inputs or earlier results."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call(op: Any, *args: Any, **kwargs: Any) -> Call:
    return Call(op, args, kwargs)


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(tuple(tensor.shape), DTYPES[tensor.dtype], tuple(tensor.stride()))


def to_storage(tensor: torch.Tensor) -> np.ndarray:
    count = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
    flat = torch.as_strided(tensor, (count,), (1,), tensor.storage_offset()).clone()
    return flat.view(torch.int16).numpy().view(np.uint16) if tensor.dtype == torch.bfloat16 else flat.numpy()


def from_storage(array: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    flat = array.reshape(-1).copy()
    tensor = (
        torch.from_numpy(flat.view(np.int16)).view(torch.bfloat16)
        if like.dtype == torch.bfloat16
        else torch.from_numpy(flat)
    )
    return torch.as_strided(tensor, tuple(like.shape), tuple(like.stride()))


def build(
    calls: Sequence[Call], inputs: Sequence[torch.Tensor], outputs: Sequence[Value] | None = None, mutates: Any = ()
) -> tuple[Graph, dict[Value, torch.Tensor]]:
    """The graph of some calls and the value of every tensor in it."""
    values = {Value(-1, i): t for i, t in enumerate(inputs)}
    specs = tuple(spec_of(t) for t in inputs)
    nodes: list[Node] = []

    def real(arg: Any) -> Any:
        if isinstance(arg, Value):
            return values[arg]
        return [real(a) for a in arg] if isinstance(arg, tuple | list) else arg

    def plain(arg: Any) -> Any:
        if isinstance(arg, torch.dtype):
            return DTYPES[arg]
        return tuple(plain(a) for a in arg) if isinstance(arg, tuple | list) else arg

    for number, c in enumerate(calls):
        result = c.op(*[real(a) for a in c.args], **{k: real(v) for k, v in c.kwargs.items()})
        results = tuple(result) if isinstance(result, tuple | list) else (result,)
        values |= {Value(number, i): r for i, r in enumerate(results)}
        kwargs = tuple((k, plain(v)) for k, v in c.kwargs.items())
        nodes.append(
            Node(
                str(c.op),
                tuple(plain(a) for a in c.args),
                kwargs,
                tuple(spec_of(r) for r in results),
                f"model.py:{number}",
            )
        )
    outputs = (
        tuple(outputs)
        if outputs is not None
        else tuple(Value(len(calls) - 1, i) for i in range(len(nodes[-1].outputs)))
    )
    return Graph("test", specs, tuple(nodes), outputs, tuple(mutates)), values


Oracle = Callable[..., Executable]


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    """Compile, execute and compare; returns the executable for further questions."""

    def check(
        calls: Sequence[Call],
        inputs: Sequence[torch.Tensor],
        *,
        outputs: Sequence[Value] | None = None,
        mutates: Any = (),
        tolerance: float | None = None,
        target: str | None = None,
    ) -> Executable:
        stored = [to_storage(t) for t in inputs]
        graph, values = build(calls, inputs, outputs, mutates)
        executable = compile_graph(graph, target)
        assert executable.estimated_ns == 0, neff_estimates(executable)
        first, late = (machine.run(executable.program, stored, order=order) for order in ("program", "late"))
        for name in first:
            assert first[name].tobytes() == late[name].tobytes(), (
                f"{name} depends on the order of execution: a semaphore is missing"
            )
        compared = 0
        for position, value in enumerate(graph.outputs):
            if f"out{position}" in first:
                _close(from_storage(first[f"out{position}"], values[value]), values[value], tolerance)
                compared += 1
        for number, tensor in enumerate(inputs):
            if f"in{number}" in first:
                expected = dict(mutates).get(number)
                wanted = values[expected] if expected is not None else tensor
                _close(from_storage(first[f"in{number}"], tensor), wanted, tolerance)
                compared += 1
        assert compared, "the program writes nothing that could be compared"
        return executable

    return check


def neff_estimates(executable: Executable) -> Any:
    from neuronscope.formats import neff

    return neff.unpack(executable.neff).info["estimates"]


def _close(got: torch.Tensor, wanted: torch.Tensor, tolerance: float | None) -> None:
    limit = TOLERANCE.get(DTYPES[wanted.dtype], 0.0) if tolerance is None else tolerance
    torch.testing.assert_close(got.double(), wanted.double(), rtol=limit, atol=limit, equal_nan=True)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with `golden/<name>.txt`; `--update-golden` rewrites the file."""

    def compare(name: str, text: str) -> None:
        path = Path(__file__).parent / "golden" / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path.name} is missing: run pytest --update-golden"
        assert text == path.read_text(), f"{path.name} differs: review, then run pytest --update-golden"

    return compare


@pytest.fixture(scope="session")
def graph_of() -> Callable[..., Graph]:
    """The graph alone, for tests of timing and text."""
    return lambda *args, **kwargs: build(*args, **kwargs)[0]


@pytest.fixture(scope="session")
def aten_call() -> Callable[..., Call]:
    return call
