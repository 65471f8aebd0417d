"""Eager calls as compiler graphs: what each kind of argument becomes."""

from __future__ import annotations

import pytest
import torch
from neuroncore.graph import TensorSpec, Value
from torch_neuronx import lowering

IN = [Value(-1, number) for number in range(4)]
OUT = Value(0, 0)


def tensor(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def device_tensor(*shape: int) -> torch.Tensor:
    return tensor(*shape).to("neuron")


def test_operand_used_twice_is_one_input() -> None:
    x = tensor(4, 512)
    graph = lowering.graph_from_call("aten::mul.Tensor", [x, x], results=x * x)
    assert graph.inputs == (TensorSpec((4, 512), "bf16", (512, 1)),)
    (node,) = graph.nodes
    assert (node.target, node.args, node.kwargs) == ("aten.mul.Tensor", (IN[0], IN[0]), ())
    assert graph.outputs == (OUT,) and graph.mutates == ()


def test_defaults_are_left_out_wherever_they_come_from() -> None:
    x = tensor(4, 8)
    on_stack = lowering.graph_from_call("aten::sum.dim_IntList", [x, [-1], False, None], results=x.sum(-1))
    by_name = lowering.graph_from_call(torch.ops.aten.sum.dim_IntList, [x, [-1]], {"keepdim": False}, x.sum(-1))
    assert on_stack.nodes == by_name.nodes
    assert on_stack.nodes[0].args == (IN[0], (-1,)) and on_stack.nodes[0].kwargs == ()


def test_default_before_a_given_argument_keeps_its_place() -> None:
    x = tensor(4, 8)
    graph = lowering.graph_from_call("aten::slice.Tensor", [x, 0, None, None, 2], results=x[::2])
    assert graph.nodes[0].args == (IN[0], 0, None, None, 2)


@pytest.mark.parametrize("dtype", [torch.float32, 6], ids=["torch.dtype", "number of the scalar type"])
def test_dtype_arguments_become_names_and_layout_is_dropped(dtype: object) -> None:
    x = tensor(4)
    arguments = [x, dtype, torch.strided, torch.device("cpu"), False, True, torch.contiguous_format]
    graph = lowering.graph_from_call("aten::_to_copy", arguments, results=x.float())
    assert graph.nodes[0].kwargs == (("dtype", "fp32"),)
    assert graph.nodes[0].outputs[0].dtype == "fp32"


def test_number_on_the_host_is_inlined_beside_a_device_tensor() -> None:
    x = device_tensor(4)
    graph = lowering.graph_from_call("aten::add.Tensor", [x, torch.tensor(0.5, dtype=torch.float64), 1], results=x)
    assert graph.nodes[0].args == (IN[0], 0.5)
    assert len(graph.inputs) == 1


def test_single_element_on_the_device_stays_a_tensor() -> None:
    x, y = device_tensor(4), device_tensor()
    graph = lowering.graph_from_call("aten::add.Tensor", [x, y, 1], results=x)
    assert graph.nodes[0].args == (IN[0], IN[1])


def test_in_place_op_mutates_its_input() -> None:
    x, y = tensor(4, 8), tensor(8)
    graph = lowering.graph_from_call("aten::mul_.Tensor", [x, y], results=x)
    assert graph.nodes[0].target == "aten.mul_.Tensor"
    assert graph.mutates == ((0, OUT),)


def test_out_variant_mutates_the_given_output() -> None:
    x, y = tensor(4), tensor(4)
    graph = lowering.graph_from_call("aten::add.out", [x, 2.0, 1, y], results=y)
    assert graph.nodes[0].kwargs == (("out", IN[1]),)
    assert graph.mutates == ((1, OUT),)


def test_every_output_of_a_multi_output_out_variant_is_bound() -> None:
    x, values, indices = tensor(4, 8), tensor(4), tensor(4, dtype=torch.int64)
    graph = lowering.graph_from_call("aten::max.dim_max", [x, 1, False, values, indices], results=[values, indices])
    assert graph.mutates == ((1, Value(0, 0)), (2, Value(0, 1)))


def test_list_op_without_results_writes_what_it_mutates() -> None:
    x, y = tensor(4), tensor(8)
    graph = lowering.graph_from_call("aten::_foreach_add_.Scalar", [[x, y], 1.0])
    assert graph.nodes[0].args == ((IN[0], IN[1]), 1.0)
    assert [spec.shape for spec in graph.nodes[0].outputs] == [(4,), (8,)]
    assert graph.mutates == ((0, Value(0, 0)), (1, Value(0, 1)))


def test_list_results_are_numbered_flat() -> None:
    x = tensor(4, 8)
    graph = lowering.graph_from_call("aten::split.Tensor", [x, 2, 0], results=list(x.split(2)))
    assert [spec.shape for spec in graph.nodes[0].outputs] == [(2, 8), (2, 8)]
    assert graph.outputs == (Value(0, 0), Value(0, 1))


def test_missing_result_keeps_its_place() -> None:
    x = tensor(4, 8)
    graph = lowering.graph_from_call("aten::linear_backward", [x, x, x, [True, False, True]], results=[x, None, x])
    assert [spec.elements for spec in graph.nodes[0].outputs] == [32, 0, 32]


def test_strides_are_kept_and_offsets_are_not() -> None:
    x = tensor(8, 4).t()[:, 2:]
    graph = lowering.graph_from_call("aten::neg", [x], results=-x)
    assert graph.inputs == (TensorSpec((4, 6), "bf16", (1, 4), 0),)


def test_display_names_shapes_and_dtypes() -> None:
    x, y = tensor(4, 512), tensor(512, dtype=torch.float32)
    graph = lowering.graph_from_call("aten::mul.Tensor", [x, y], results=x * y)
    assert lowering.display(graph) == ("[4,512] x [512]", "bf16 x fp32")


def test_display_names_an_operand_as_often_as_it_is_used() -> None:
    x = tensor(4, 512)
    graph = lowering.graph_from_call("aten::mul.Tensor", [x, x], results=x * x)
    assert lowering.display(graph) == ("[4,512] x [4,512]", "bf16 x bf16")


def test_display_of_long_lists_says_how_many_more() -> None:
    tensors = [tensor(2) for _ in range(6)]
    graph = lowering.graph_from_call("aten::_foreach_add_.Scalar", [tensors, 1.0])
    assert lowering.display(graph) == ("[2] x [2] x [2] x [2] x 2 more", "bf16 x bf16 x bf16 x bf16 x 2 more")


def test_unknown_dtype_is_refused_by_name() -> None:
    x = torch.empty(4, dtype=torch.float8_e8m0fnu)
    with pytest.raises(lowering.LoweringError, match=r"torch\.float8_e8m0fnu has no counterpart"):
        lowering.tensor_spec(x)


def test_sparse_tensor_is_refused_with_what_to_do() -> None:
    with pytest.raises(lowering.LoweringError, match=r"to_dense"):
        lowering.tensor_spec(torch.eye(2).to_sparse())
