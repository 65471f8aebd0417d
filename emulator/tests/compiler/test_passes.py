"""Dumps after every pass, as golden texts small enough to review."""

import pytest
import torch
from neuroncore.compiler import PASSES, dump
from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.isa import parse_program, print_program
from neuroncore.runtime import compile_graph
from neuroncore.targets import load_target
from neuronscope.formats import neff

aten = torch.ops.aten
X, W = Value(-1, 0), Value(-1, 1)


def mul() -> Graph:
    x = TensorSpec((4, 512), "bf16")
    return Graph("mul", (x, x), (Node("aten.mul.Tensor", (X, W), (), (x,), "model.py:3"),), (Value(0, 0),))


def rms_norm() -> Graph:
    x, w, row = TensorSpec((4, 512), "bf16"), TensorSpec((512,), "bf16"), TensorSpec((4, 1), "bf16")
    nodes = (
        Node("aten.mul.Tensor", (X, X), (), (x,), "model.py:3"),
        Node("aten.mean.dim", (Value(0, 0), (-1,), True), (), (row,), "model.py:4"),
        Node("aten.add.Tensor", (Value(1, 0), 1e-6), (), (row,), "model.py:5"),
        Node("aten.rsqrt.default", (Value(2, 0),), (), (row,), "model.py:5"),
        Node("aten.mul.Tensor", (X, Value(3, 0)), (), (x,), "model.py:6"),
        Node("aten.mul.Tensor", (Value(4, 0), W), (), (x,), "model.py:6"),
    )
    return Graph("rms_norm", (x, w), nodes, (Value(5, 0),))


@pytest.mark.parametrize("step", ["decompose", "fuse", "tile", "synchronize"])
@pytest.mark.parametrize("graph", [mul(), rms_norm()], ids=lambda g: g.name)
def test_golden(golden, graph, step):
    golden(f"{graph.name}.{step}", dump(graph, step, load_target("trn2")))


def test_every_pass_can_be_dumped():
    for step in PASSES:
        assert dump(rms_norm(), step.name, load_target("trn2"))


def test_unknown_pass_is_named():
    with pytest.raises(ValueError, match="no pass 'fusion'; passes: decompose, "):
        dump(mul(), "fusion", load_target("trn2"))


def test_neff_holds_the_program_and_its_debug_information():
    executable = compile_graph(rms_norm())
    file = neff.unpack(executable.neff)
    program = parse_program(file.members["program.txt"].decode())
    assert print_program(program) == print_program(executable.program)
    assert file.hash == executable.hash
    assert file.info["target"] == "trn2"
    assert b"model.py:6" in file.members["debug_info.json"]
    assert set(executable.instructions.column("op").to_pylist()) >= {"aten.mul.Tensor", "aten.rsqrt.default"}


def test_the_hash_ignores_source_lines_and_the_name_of_the_call_site():
    graph = rms_norm()
    moved = Graph("Torch-Compiled Region: 1/0", graph.inputs, tuple(
        Node(n.target, n.args, n.kwargs, n.outputs, "other.py:1") for n in graph.nodes
    ), graph.outputs)  # fmt: skip
    assert compile_graph(graph).hash == compile_graph(moved).hash
    assert compile_graph(graph).hash != compile_graph(mul()).hash
    assert compile_graph(graph, "trn1").hash != compile_graph(graph, "trn2").hash


def test_an_instruction_names_every_op_it_carries(graph_of, aten_call):
    aten = torch.ops.aten
    calls = [aten_call(aten.mean.dim, Value(-1, 0), [-1], True), aten_call(aten.add.Scalar, Value(0, 0), 1e-5)]
    executable = compile_graph(graph_of(calls, [torch.ones(4, 512)]))
    ops = executable.instructions.column("op").to_pylist()
    assert "aten.mean.dim + aten.add.Scalar" in ops
    assert all(op.count("aten.mean.dim") <= 1 for op in ops)
