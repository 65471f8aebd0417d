"""Programs divided over the two cores of a logical one: they compute the same, and no kernel takes longer for it."""

import numpy as np
import pytest
import torch
from neuroncore import machine
from neuroncore.compiler import compile_program, divide_program
from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.targets import load_target
from neuroncore.timing import divided_time, simulate

aten = torch.ops.aten
TRN2 = load_target("trn2")
X, Y, Z = (Value(-1, i) for i in range(3))


def values(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def calls(aten_call):
    image = values((4, 3, 20, 20))
    return {
        "rows": ([aten_call(aten.exp.default, X)], [values((1024, 600))]),
        "softmax": ([aten_call(aten._softmax.default, X, -1, False)], [values((1024, 700))]),
        "rows of a product": ([aten_call(aten.mm.default, X, Y)], [values((700, 300)), values((300, 500), 1)]),
        "columns of a product": ([aten_call(aten.mm.default, X, Y)], [values((100, 900)), values((900, 1500), 1)]),
        "batches": ([aten_call(aten.bmm.default, X, Y)], [values((6, 200, 130)), values((6, 130, 300), 1)]),
        "product, bias and activation": (
            [aten_call(aten.t.default, Y), aten_call(aten.addmm.default, Z, X, Value(0, 0)),
             aten_call(aten.gelu.default, Value(1, 0))],
            [values((600, 400)), values((512, 400), 1), values((512,), 2)],
        ),
        "convolution": (
            [aten_call(aten.convolution.default, X, Y, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)],
            [image, values((8, 3, 3, 3), 1)],
        ),
        "pooling": ([aten_call(aten.max_pool2d_with_indices.default, X, (3, 3), (2, 2))], [values((300, 1, 40, 40))]),
        "turned copy": ([aten_call(aten.clone.default, X)], [values((700, 900)).t()]),
        "gather": (
            [aten_call(aten.embedding.default, X, Y)],
            [values((300, 256)), torch.randint(0, 300, (2000,), generator=torch.Generator().manual_seed(1))],
        ),
        "two kernels": (
            [aten_call(aten.mm.default, X, Y), aten_call(aten._softmax.default, Value(0, 0), -1, False)],
            [values((900, 400)), values((400, 800), 1)],
        ),
        "a sum of everything": ([aten_call(aten.sum.default, X)], [values((900, 400))]),
    }  # fmt: skip


NAMES = ["rows", "softmax", "rows of a product", "columns of a product", "batches", "product, bias and activation",
         "convolution", "pooling", "turned copy", "gather", "two kernels", "a sum of everything"]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_cores_compute_what_one_does_and_no_kernel_is_slower(graph_of, aten_call, name):
    made, inputs = calls(aten_call)[name]
    graph = graph_of(made, inputs)
    one, two = divide_program(graph, TRN2, 1), divide_program(graph, TRN2, 2)
    flat = {f"in{i}": storage(t) for i, t in enumerate(inputs)}
    alone = machine.run(compile_program(graph, TRN2).program, flat)
    for order in ("program", "late"):
        together = machine.run_divided(two, flat, order=order)
        assert together.keys() == alone.keys()
        for key, wanted in alone.items():
            np.testing.assert_allclose(together[key], wanted, rtol=1e-4, atol=1e-4)
    before, after = divided_time(one, TRN2), divided_time(two, TRN2)
    assert before.barriers == 0 and after.program_ns <= before.program_ns
    assert [s.kernel for s in one.sections] == [s.kernel for s in two.sections]


def storage(tensor):
    count = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((count,), (1,)).numpy()


def bf16(*shape):
    strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
    return TensorSpec(shape, "bf16", tuple(strides))


def graph(op, inputs, args, output):
    return Graph("g", tuple(inputs), (Node(op, args, (), (output,)),), (Value(0, 0),))


@pytest.mark.parametrize(
    ("what", "least"),
    [
        (graph("aten.add.Tensor", [bf16(4096, 4096)] * 2, (X, Y), bf16(4096, 4096)), 1.8),
        (graph("aten.mm.default", [bf16(2048, 2048)] * 2, (X, Y), bf16(2048, 2048)), 1.6),
        (graph("aten._softmax.default", [bf16(8192, 2048)], (X, -1, False), bf16(8192, 2048)), 1.6),
    ],
)
def test_long_kernels_take_little_more_than_half(what, least):
    alone = simulate(compile_program(what, TRN2).program, TRN2).program_ns
    assert alone / divided_time(divide_program(what, TRN2, 2), TRN2).program_ns > least


def test_short_kernels_stay_on_one_core():
    small = graph("aten.mul.Tensor", [bf16(4, 512)] * 2, (X, Y), bf16(4, 512))
    divided = divide_program(small, TRN2, 2)
    assert [len(section.programs) for section in divided.sections] == [1]
    assert divided_time(divided, TRN2).program_ns == simulate(compile_program(small, TRN2).program, TRN2).program_ns


def test_an_estimate_is_not_divided():
    assert divide_program(graph("aten.unheard_of.default", [bf16(64, 64)], (X,), bf16(64, 64)), TRN2, 2) is None
