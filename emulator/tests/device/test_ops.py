"""Operators: values as on the CPU, one execution each, and the CPU fallback for what the device lacks."""

import pytest
import torch
import torch.nn.functional as F
import torch_neuronx
from torch_neuronx import _C


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


CALLS = {
    "mul": lambda a, b: a * b,
    "same operand": lambda a, b: a * a,
    "host scalar": lambda a, b: a + 1e-6,
    "host scalar tensor": lambda a, b: a * torch.tensor(3.0),
    "inplace": lambda a, b: a.clone().mul_(b),
    "mm": lambda a, b: a @ b.t(),
    "sum": lambda a, b: a.sum(-1, keepdim=True),
    "softmax": lambda a, b: a.softmax(-1),
    "cat": lambda a, b: torch.cat([a, b], 1),
    "stack": lambda a, b: torch.stack([a, b]),
    "where": lambda a, b: torch.where(a > 0, a, b),
    "topk": lambda a, b: torch.cat([t.to(a.dtype) for t in a.topk(2)]),
    "mask": lambda a, b: a[a > 0],
    "index": lambda a, b: a[torch.tensor([1, 0])],
    "strided": lambda a, b: a[:, ::2] * b.t()[::2].t(),
    "fallback": lambda a, b: torch.maximum(a, b).sort(-1)[0],
    "foreach": lambda a, b: torch.stack(torch._foreach_add([a, b], 2.0)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CALLS)
def test_values_equal_the_cpu_on_first_and_later_calls(name: str, dtype: torch.dtype) -> None:
    a, b = rand(4, 6, dtype=dtype), rand(4, 6, dtype=dtype).flip(0)
    expected = CALLS[name](a, b)
    for _ in range(3):
        actual = CALLS[name](a.to("neuron"), b.to("neuron"))
        assert actual.device.type == "neuron"
        assert actual.stride() == expected.stride()
        assert torch.equal(actual.cpu(), expected)


def test_one_dispatch_per_op() -> None:
    a = torch.ones(4, device="neuron")
    torch_neuronx.clear_op_tracking()
    a + a
    assert torch_neuronx.get_executed_ops() == ["aten::add.Tensor"]


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (F.linear, ["aten::linear"]),
        (lambda x, w: torch.rms_norm(x, [8], w[0]), ["aten::_fused_rms_norm"]),
        (lambda x, w: F.embedding(torch.tensor([1, 2]).to("neuron"), w), ["aten::embedding"]),
        (
            lambda x, w: F.scaled_dot_product_attention(*[x.view(1, 2, 2, 8)] * 3),
            ["aten::_scaled_dot_product_fused_attention_overrideable"],
        ),
        (lambda x, w: F.conv1d(x.view(1, 8, 4), w.view(8, 8, 1)), ["aten::convolution"]),
    ],
)
def test_composite_ops_are_one_execution_under_the_outer_name(call, names) -> None:
    x, w = rand(4, 8).to("neuron"), rand(8, 8).to("neuron")
    torch_neuronx.clear_op_tracking()
    call(x, w)
    assert torch_neuronx.get_executed_ops() == names


def test_unregistered_ops_fall_back_and_are_listed() -> None:
    x = rand(4, 4).to("neuron")
    torch_neuronx.clear_op_tracking()
    signatures = _C.cached_signatures()
    torch.linalg.qr(x)
    assert torch_neuronx.get_fallback_ops() == ["aten::linalg_qr"]
    assert torch_neuronx.get_executed_ops() == []
    assert _C.cached_signatures() == signatures  # never a NEFF
    torch_neuronx.clear_op_tracking()
    assert torch_neuronx.get_fallback_ops() == []


def test_a_fallback_is_two_copies_in_device_time() -> None:
    x = torch.zeros(1 << 20, device="neuron")
    torch.neuron.synchronize()
    start = _C.simulated_end_ns(0)
    torch.maximum(x, x)
    copied_ns = 3 * x.numel() * x.element_size() / 16e9 * 1e9
    assert _C.simulated_end_ns(0) - start >= copied_ns


def test_a_scalar_does_not_recompile() -> None:
    x = torch.ones(17, device="neuron")
    x * 0.5
    signatures = _C.cached_signatures()
    assert [(x * (step / 4)).sum().item() for step in range(1, 4)] == [17 / 4, 17 / 2, 17 * 3 / 4]
    assert _C.cached_signatures() <= signatures + 1  # the sum


def test_registered_op_names() -> None:
    from torch_neuronx.utils import get_neuron_registered_ops

    assert {"mul", "_fused_rms_norm", "linear"} <= set(get_neuron_registered_ops())
    assert "linalg_qr" not in get_neuron_registered_ops()
    assert "add.Tensor" in get_neuron_registered_ops(keep_variant=True)
    names = get_neuron_registered_ops(as_sorted=True)
    assert names == sorted(names)


def test_ops_without_a_cpu_kernel_say_so() -> None:
    library = torch.library.Library("neuron_test", "FRAGMENT")
    library.define("nowhere(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="neuron_test::nowhere is not implemented for Neuron"):
        torch.ops.neuron_test.nowhere(torch.ones(1, device="neuron"))


def test_a_custom_cpu_op_runs_on_the_host() -> None:
    library = torch.library.Library("neuron_test", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    assert torch.ops.neuron_test.twice(torch.ones(2, device="neuron")).tolist() == [2, 2]
    assert "neuron_test::twice" in torch_neuronx.get_fallback_ops()


def test_printing_and_scalars() -> None:
    x = torch.tensor([1.5, 2.0], device="neuron")
    assert repr(x) == "tensor([1.5000, 2.0000], device='neuron:0')"
    assert (x[0].item(), int(x[1]), bool(x[0] > 1)) == (1.5, 2, True)


def test_sparse_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="neuron tensors are strided"):
        torch.eye(2, device="neuron").to_sparse()
