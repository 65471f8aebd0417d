"""NEURONSCOPE_EXECUTE=program: values come from the programs, executed on the machine."""

import json

EAGER = """
    import json, torch, torch_neuronx
    torch.manual_seed(0)

    def work(x, w):
        y = torch.softmax(torch.nn.functional.linear(x, w), -1)
        a = x.clone()
        a.mul_(2.0)
        a[3:5] = 1.0
        top, place = torch.topk(y, 3)
        return [y, y.sum(0), a, top, place, torch.cat([x, a]), x.t().contiguous(), x.to(torch.int32), x.bfloat16() * 3,
                torch.arange(10, device=x.device) * 3 + 2**20, torch.nn.functional.layer_norm(x, [65])]

    x, w = torch.randn(33, 65), torch.randn(20, 65)
    print(json.dumps([float((one.double() - two.cpu().double()).abs().max())
                      for one, two in zip(work(x, w), work(x.to("neuron"), w.to("neuron")))]))
"""
GRAPHS = """
    import copy, json, torch, torch_neuronx
    torch.manual_seed(0)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = torch.nn.Linear(65, 40), torch.nn.Linear(40, 7)
            self.register_buffer("shift", torch.randn(7))
        def forward(self, x):
            return self.down(torch.nn.functional.gelu(self.up(x))) + self.shift

    host = Net()
    device = copy.deepcopy(host).to("neuron")
    compiled = torch.compile(device, backend="neuron")
    x = torch.randn(33, 65)
    for model, call, data in ((host, host, x), (device, compiled, x.to("neuron"))):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        for _ in range(2):
            call(data).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    pairs = zip(host.parameters(), device.parameters())
    print(json.dumps([float((one - two.cpu()).detach().abs().max()) for one, two in pairs]))
"""


def test_eager_ops_are_computed_by_their_programs(script):
    differences = {}
    for mode in ("kernel", "program"):
        result = script(EAGER, NEURONSCOPE_EXECUTE=mode)
        assert result.returncode == 0, result.stderr
        differences[mode] = json.loads(result.stdout.splitlines()[-1])
    assert set(differences["kernel"]) == {0.0}  # the same kernels
    assert 0 < max(differences["program"]) < 1e-5


def test_compiled_graphs_and_their_gradients_are_computed_by_their_programs(script):
    result = script(GRAPHS, NEURONSCOPE_EXECUTE="program")
    assert result.returncode == 0, result.stderr
    differences = json.loads(result.stdout.splitlines()[-1])
    assert 0 < max(differences) < 1e-5


ATTENTION = """
    import json, torch, torch_neuronx
    torch.manual_seed(0)
    attend = lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    drawn = [torch.randn(2, 4, 8, 16) for _ in range(3)]
    found = []
    for device, call in (("cpu", attend), ("neuron", torch.compile(attend, backend="neuron"))):
        tensors = [t.clone().to(device).detach().requires_grad_() for t in drawn]
        result = call(*tensors)
        result.square().sum().backward()
        found.append([result.detach().cpu(), *(t.grad.cpu() for t in tensors)])
    print(json.dumps([float((one - two).abs().max()) for one, two in zip(*found)]))
"""


def test_a_graph_reads_what_another_wrote_in_the_layout_it_was_compiled_for(script):
    result = script(ATTENTION, NEURONSCOPE_EXECUTE="program")
    assert result.returncode == 0, result.stderr
    assert 0 < max(json.loads(result.stdout.splitlines()[-1])) < 1e-4


def test_numbers_of_64_bits_are_computed_in_32_as_on_the_hardware(script):
    source = """
        import torch, torch_neuronx
        x = torch.tensor([2**31 - 1, -(2**31), 2**24 + 1, 7]).to("neuron")
        print((x + 0).tolist(), (x * 1).tolist(), torch.maximum(x, x).tolist(), ((x + 1) - 1).tolist())
    """
    result = script(source, NEURONSCOPE_EXECUTE="program")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == " ".join(["[2147483647, -2147483648, 16777217, 7]"] * 4)


def test_another_value_is_refused(script):
    result = script("import torch, torch_neuronx; torch.ones(2, device='neuron')", NEURONSCOPE_EXECUTE="machine")
    assert result.returncode != 0 and "write program" in result.stderr
