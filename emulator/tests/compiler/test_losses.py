"""Losses, linear gradients, dropout, random fills and optimizers."""

import pytest
import torch
from neuroncore import machine
from neuroncore.graph import Graph, Node, TensorSpec, Value
from neuroncore.runtime import compile_graph

aten = torch.ops.aten
X, Y, Z, W = (Value(-1, i) for i in range(4))


def values(shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(40, 10), (300, 33)])
def test_nll_loss(oracle, aten_call, reduction, weighted, shape):
    rows, classes = shape
    x = torch.log_softmax(values(shape), -1)
    target = torch.randint(0, classes, (rows,), generator=torch.Generator().manual_seed(1))
    target[::7] = -100
    weight = values((classes,), seed=3).abs()
    inputs = [x, target, weight] if weighted else [x, target]
    call = aten_call(aten.nll_loss_forward.default, X, Y, Z if weighted else None, reduction, -100)
    oracle([call], inputs, tolerance=1e-4)
    y, total = aten.nll_loss_forward.default(x, target, weight if weighted else None, reduction, -100)
    names = [Value(-1, i) for i in range(5)]
    call = aten_call(
        aten.nll_loss_backward.default, *names[:3], names[4] if weighted else None, reduction, -100, names[3]
    )
    oracle([call], [values(y.shape, seed=4), x, target, total, *([weight] if weighted else [])])


def test_mse_loss(oracle, aten_call):
    x, y = values((30, 40)), values((30, 40), seed=1)
    for reduction in (0, 1, 2):
        oracle([aten_call(aten.mse_loss.default, X, Y, reduction)], [x, y], tolerance=1e-4)
    g = values((), seed=2)
    oracle([aten_call(aten.mse_loss_backward.default, X, Y, Z, 1)], [g, x, y])


class Named:
    """Stands in for an overload without a CPU kernel."""

    def __init__(self, name, function):
        self.name, self.function = name, function

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    def __str__(self):
        return self.name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_linear_gradient(oracle, aten_call, dtype):
    x, g, w = values((3, 50, 20), dtype), values((3, 50, 30), dtype, 1), values((30, 20), dtype, 2)

    def gradients(x, g, w, mask):
        flat, rows = g.reshape(-1, 30).float(), x.reshape(-1, 20).float()
        return (g.float() @ w.float()).to(dtype), (flat.T @ rows).to(dtype), flat.sum(0).to(dtype)

    call = aten_call(Named("aten.linear_backward.default", gradients), X, Y, Z, [True, True, True])
    oracle([call], [x, g, w], tolerance=1e-4 if dtype == torch.float32 else 0.1)


def run(target, args, inputs, outputs):
    specs = tuple(TensorSpec(tuple(t.shape), "fp32") for t in inputs)
    node = Node(target, args, (), outputs)
    graph = Graph("g", specs, (node,), tuple(Value(0, i) for i in range(len(outputs))))
    executable = compile_graph(graph)
    assert executable.estimated_ns == 0
    return machine.run(executable.program, [t.numpy().reshape(-1) for t in inputs])


def test_dropout_keeps_what_its_mask_says():
    x = values((200, 300))
    spec = TensorSpec((200, 300), "fp32")
    result = run("aten.native_dropout.default", (X, 0.25, True), [x], (spec, TensorSpec((200, 300), "bool")))
    y, mask = torch.from_numpy(result["out0"]), torch.from_numpy(result["out1"])
    assert abs(mask.float().mean() - 0.75) < 0.01
    torch.testing.assert_close(y, x.reshape(-1) * mask / 0.75)
    halves = mask.reshape(2, -1)
    assert not torch.equal(halves[0], halves[1])


def test_dropout_gradient(oracle, aten_call):
    oracle([aten_call(aten.native_dropout_backward.default, X, Y, 1.25)], [values((30, 40)), values((30, 40)) > 0])


def test_random_numbers_have_their_distribution():
    x = torch.zeros(100, 400)
    spec = TensorSpec((100, 400), "fp32")
    uniform = run("aten.uniform.default", (X, -1.0, 3.0), [x], (spec,))["out0"]
    assert uniform.min() >= -1 and uniform.max() < 3 and abs(uniform.mean() - 1) < 0.02
    normal = run("aten.normal_functional.default", (X, 1.0, 2.0), [x], (spec,))["out0"]
    assert abs(normal.mean() - 1) < 0.03 and abs(normal.std() - 2) < 0.03
    coins = run("aten.bernoulli.p", (X, 0.1), [x], (spec,))["out0"]
    assert set(coins.tolist()) == {0.0, 1.0} and abs(coins.mean() - 0.1) < 0.01


def parameters(count=3):
    shapes = [(30, 20), (7,), (2, 3, 4)][:count]
    return [[values(s, seed=10 * j + i) for i, s in enumerate(shapes)] for j in range(3)]


def numbered(lists):
    flat = [t for tensors in lists for t in tensors]
    names = iter(Value(-1, i) for i in range(len(flat)))
    return flat, [[next(names) for _ in tensors] for tensors in lists]


@pytest.mark.parametrize(
    ("name", "overload", "extra"),
    [("addcmul", "Scalar", (0.5,)), ("addcdiv", "Scalar", (-2.0,)), ("addcdiv", "ScalarList", ([1.0, -2.0, 0.5],))],
)
def test_lists_of_products(oracle, aten_call, name, overload, extra):
    flat, (x, y, z) = numbered(parameters())
    op = getattr(getattr(aten, f"_foreach_{name}"), overload)
    oracle([aten_call(op, x, y, z, *extra)], flat, tolerance=1e-3)


def test_lists(oracle, aten_call):
    flat, (x, y, _) = numbered([*parameters()[:2], []])
    oracle([aten_call(aten._foreach_lerp.Scalar, x, y, 0.1)], flat)
    oracle([aten_call(aten._foreach_lerp.ScalarList, x, y, [0.1, 0.5, 0.9])], flat)
    oracle([aten_call(aten._foreach_maximum.List, x, y)], flat)
    flat = [t.abs() + 0.1 for t in flat[:3]]
    for name in ("sqrt", "neg", "reciprocal"):
        oracle([aten_call(getattr(aten, f"_foreach_{name}").default, x)], flat)
    oracle([aten_call(aten._foreach_norm.Scalar, x, 2)], flat, tolerance=1e-4)


def test_fused_adamw(oracle, aten_call):
    p, g, m = parameters()
    v = [t.abs() for t in parameters()[0]]
    steps = [torch.tensor(3.0) for _ in p]
    flat, names = numbered([p, g, m, v, steps])
    options = {
        "lr": 0.01,
        "beta1": 0.9,
        "beta2": 0.99,
        "weight_decay": 0.1,
        "eps": 1e-8,
        "amsgrad": False,
        "maximize": False,
    }

    def step(p, g, m, v, largest, steps, **kwargs):
        tensors = [[t.clone() for t in ts] for ts in (p, g, m, v)]
        aten._fused_adamw_.default(*tensors, largest, steps, **kwargs)
        return [t for ts in tensors for t in ts]

    outputs = tuple(Value(0, i) for i in (*range(3), *range(6, 12)))
    call = aten_call(Named("aten._fused_adamw.default", step), *names[:4], [], names[4], **options)
    oracle([call], flat, outputs=outputs, tolerance=1e-4)


def test_long_rows_with_a_value_each_move_their_bytes_and_little_more(graph_of, aten_call):
    """A value per row is loaded once per row, whatever the width: near the time of the bytes."""
    from neuroncore.runtime import compile_graph
    from neuroncore.targets import load_target

    grad, output = (torch.randn(512, 4096) for _ in range(2))
    call = aten_call(aten._log_softmax_backward_data.default, X, Y, 1, torch.float32)
    executable = compile_graph(graph_of([call], [grad, output]))
    bytes_ns = (executable.bytes_read + executable.bytes_written) / load_target("trn2").dma_bytes_per_second * 1e9
    assert executable.program_ns < 1.3 * bytes_ns
