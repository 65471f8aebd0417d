"""What can't be lowered is marked, never silent; what can't exist is refused with a message."""

import pytest
import torch
from neuroncore.errors import CapacityError, NeuroncoreError, UnsupportedOpError
from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.runtime import compile_graph, is_lowered, op_status
from neuronscope.formats import neff

aten = torch.ops.aten
X, Y = Value(-1, 0), Value(-1, 1)


def unlowered_graph(rows: int = 64) -> Graph:
    x, i = TensorSpec((rows, 64), "fp32"), TensorSpec((rows, 64), "int64")
    return Graph("cummax", (x,), (Node("aten.cummax.default", (X,), (), (x, i), "m.py:1"),), (Value(0, 0), Value(0, 1)))


def test_an_op_without_a_lowering_is_an_estimate_with_its_reason():
    executable = compile_graph(unlowered_graph())
    assert executable.estimated_ns == executable.program_ns > 0
    (row,) = executable.instructions.to_pylist()
    assert (row["opcode"], row["op"], row["duration_ns"]) == ("estimate", "aten.cummax.default", executable.program_ns)
    assert neff.unpack(executable.neff).info["estimates"] == [
        ["aten.cummax.default", "no lowering", executable.program_ns]
    ]
    assert (executable.bytes_read, executable.bytes_written) == (64 * 64 * 4, 64 * 64 * 12)


def test_estimates_follow_the_bytes():
    small, large = compile_graph(unlowered_graph(64)), compile_graph(unlowered_graph(64_000))
    rate = load_rate()
    assert large.program_ns - small.program_ns == pytest.approx(64 * 16 * (64_000 - 64) / rate * 1e9, rel=1e-3)


def load_rate() -> float:
    from neuroncore.targets import load_target

    return load_target("trn2").dma_bytes_per_second


def test_a_graph_may_be_partly_lowered():
    x, i = TensorSpec((64, 64), "fp32"), TensorSpec((64, 64), "int64")
    nodes = (
        Node("aten.exp.default", (X,), (), (x,)),
        Node("aten.cummax.default", (Value(0, 0),), (), (x, i)),
        Node("aten.neg.default", (Value(1, 0),), (), (x,)),
    )
    executable = compile_graph(Graph("g", (x,), nodes, (Value(2, 0),)))
    assert 0 < executable.estimated_ns < executable.program_ns
    rows = executable.instructions.to_pylist()
    assert [r["id"] for r in rows] == list(range(len(rows)))
    estimate = next(r for r in rows if r["opcode"] == "estimate")
    before = [r for r in rows if r["op"] == "aten.exp.default"]
    after = [r for r in rows if r["op"] == "aten.neg.default"]
    assert max(r["offset_ns"] + r["duration_ns"] for r in before) <= estimate["offset_ns"]
    assert min(r["offset_ns"] for r in after) >= estimate["offset_ns"] + estimate["duration_ns"]
    engine = [r["pc"] for r in rows if r["engine"] == "Sync"]
    assert engine == list(range(len(engine)))


def test_unusual_forms_say_why():
    x = TensorSpec((8, 8), "fp32")
    row = TensorSpec((8,), "fp32")
    graph = Graph("g", (x,), (Node("aten.linalg_vector_norm.default", (X, 3, (1,)), (), (row,)),), (Value(0, 0),))
    (estimate,) = neff.unpack(compile_graph(graph).neff).info["estimates"]
    assert "norm of order 3" in estimate[1]


def test_foreign_ops_are_estimates_too():
    x = TensorSpec((8, 8), "fp32")
    graph = Graph("g", (x,), (Node("mylib.magic.default", (X, "mode", None), (), (x,)),), (Value(0, 0),))
    assert compile_graph(graph).estimated_ns > 0


def test_tensors_beyond_hbm_are_refused():
    x = TensorSpec((1 << 20, 1 << 16), "fp32")
    graph = Graph("big", (x,), (Node("aten.exp.default", (X,), (), (x,), "m.py:1"),), (Value(0, 0),))
    with pytest.raises(
        CapacityError, match=r"need \d+ B of HBM, a logical NeuronCore of trn2 has \d+ B; the largest is in0"
    ):
        compile_graph(graph)


def test_complex_tensors_are_refused():
    x = TensorSpec((8, 8), "complex64")
    graph = Graph("g", (x,), (Node("aten.exp.default", (X,), (), (x,)),), (Value(0, 0),))
    with pytest.raises(UnsupportedOpError, match="complex64 of in0 is not supported"):
        compile_graph(graph)


def test_unknown_target_is_refused():
    with pytest.raises(NeuroncoreError, match="trn9"):
        compile_graph(unlowered_graph(), "trn9")


def test_empty_tensors_cost_nothing():
    x = TensorSpec((0, 8), "fp32")
    graph = Graph("g", (x,), (Node("aten.exp.default", (X,), (), (x,)),), (Value(0, 0),))
    assert compile_graph(graph).program_ns == 0


def test_status_lists_what_is_lowered():
    status = dict(op_status(["aten::cummax", "aten::mul.Tensor", "aten::mul_"]))
    assert (status["aten::cummax"], status["aten::mul"], status["aten::mul_"]) == ("estimated", "lowered", "lowered")
    assert status["aten::_softmax"] == "lowered"
    assert is_lowered("aten.add_.Tensor") and not is_lowered("aten.cummax.default")


def test_an_in_place_estimate_writes_its_input_directly():
    x = TensorSpec((64, 64), "fp32")
    node = Node("aten.cauchy_.default", (X, 0.0, 1.0), (), (x,))
    executable = compile_graph(Graph("g", (x,), (node,), (Value(0, 0),), ((0, Value(0, 0)),)))
    assert executable.estimated_ns == executable.program_ns
    assert executable.bytes_written == 64 * 64 * 4
