"""Graphs of models nobody runs: from meta tensors to a program, without the memory a real run would need."""

import torch
import torch_neuronx  # noqa: F401  (registers the device)
from neuroncore.runtime import compile_graph
from torch import nn
from torch_neuronx import memory_allocated
from torch_neuronx.compile.trace import trace_graphs, trace_ops


def mlp():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(64, 128, dtype=torch.bfloat16), nn.SiLU(), nn.Linear(128, 64).bfloat16())
        return model, torch.empty(16, 64, dtype=torch.bfloat16)


def test_a_meta_model_compiles_to_the_program_of_the_real_one():
    model, x = mlp()
    (graph,) = trace_graphs(model, x)
    assert [node.target for node in graph.nodes] == ["aten.linear.default", "aten.silu.default", "aten.linear.default"]
    executable = compile_graph(graph)
    assert executable.estimated_ns == 0
    assert executable.flops > 2 * 2 * 16 * 64 * 128


def test_backward_is_a_graph_of_its_own():
    model, x = mlp()
    forward, backward = trace_graphs(model, x, backward=True)
    assert len(forward.outputs) > 1  # what the backward needs is kept
    assert {n.target for n in backward.nodes} >= {"aten.silu_backward.default", "aten.linear_backward.default"}


def test_eager_ops_come_one_by_one_and_views_do_not():
    class Turned(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x).t().contiguous()

    model, x = mlp()
    ops = trace_ops(Turned(model), x)
    assert [graph.name for graph in ops] == ["aten::linear", "aten::silu", "aten::linear", "aten::clone"]
    assert all(len(graph.nodes) == 1 for graph in ops)


def test_nothing_is_allocated():
    before = memory_allocated()
    with torch.device("meta"):
        model = nn.Linear(1 << 16, 1 << 16, bias=False)  # 16 GiB
        x = torch.empty(4, 1 << 16)
    trace_graphs(model, x)
    assert memory_allocated() == before


class Block(nn.Module):
    """A decoder layer in the sizes of Llama 7B: attention and a gated MLP, each behind an RMSNorm."""

    def __init__(self, hidden, heads, intermediate):
        super().__init__()
        self.heads = heads
        sizes = {"q": hidden, "k": hidden, "v": hidden, "o": hidden, "gate": intermediate, "up": intermediate}
        for name, size in sizes.items():
            setattr(self, name, nn.Linear(hidden, size, bias=False))
        self.down = nn.Linear(intermediate, hidden, bias=False)
        self.first, self.second = nn.RMSNorm(hidden), nn.RMSNorm(hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        y = self.first(x)
        q, k, v = (p(y).view(batch, length, self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, hidden))
        y = self.second(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def test_a_decoder_layer_of_seven_billion_is_compiled_not_estimated():
    with torch.device("meta"):
        model, x = Block(4096, 32, 11008).bfloat16(), torch.empty(1, 2048, 4096, dtype=torch.bfloat16)
    (graph,) = trace_graphs(model, x)
    executable = compile_graph(graph, "trn2")
    assert executable.estimated_ns == 0
    assert executable.program.executed > 100_000
    assert sum(1 for _ in executable.program.text()) < executable.program.executed / 2
    products = 2 * 2048 * (4 * 4096**2 + 3 * 4096 * 11008)
    assert executable.flops > products
    assert executable.program_ns < 2.5 * products / 78.6e3  # of TensorE's peak, in flops per ns


def test_ops_in_place_on_lists_are_launches_though_they_return_nothing():
    with torch.device("meta"):
        tensors = [torch.empty(8), torch.empty(3, 4)]
    (graph,) = trace_ops(lambda tensors: torch._foreach_mul_(tensors, 2.0), tensors)
    assert graph.name == "aten::_foreach_mul_.Scalar"
    assert len(graph.mutates) == 2
