"""Real device memory: tensors, views and resizing share and keep storage."""

import pytest
import torch


def test_views_share_memory() -> None:
    x = torch.arange(12.0, device="neuron").view(3, 4)
    column = x[:, 1]
    column.add_(100)
    x.t()[3, 2] = -1
    assert x.tolist() == [[0, 101, 2, 3], [4, 105, 6, 7], [8, 109, 10, -1]]
    assert column.data_ptr() == x.data_ptr() + 4


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.expand(2, 3, 4),
        lambda t: t.permute(1, 0),
        lambda t: t.unfold(1, 2, 1),
        lambda t: t.diagonal(),
        lambda t: t.view(torch.int32),
        lambda t: t.chunk(2, 1)[1],
        lambda t: t.as_strided((2, 2), (4, 1), 5),
    ],
)
def test_views_have_the_cpu_layout_and_the_same_storage(view) -> None:
    base = torch.arange(12.0).view(3, 4)
    on_device = base.to("neuron")
    expected, actual = view(base), view(on_device)
    assert actual.stride() == expected.stride()
    assert actual.storage_offset() == expected.storage_offset()
    assert actual.untyped_storage().data_ptr() == on_device.untyped_storage().data_ptr()
    assert torch.equal(actual.cpu(), expected)


def test_views_and_empty_tensors_launch_nothing() -> None:
    import torch_neuronx
    from torch_neuronx import _C

    x = torch.zeros(4, 4, device="neuron")
    torch_neuronx.clear_op_tracking()
    end = _C.simulated_end_ns(0)
    x.view(16).unsqueeze(0).expand(3, 16)[1].t()
    torch.empty(5, device="neuron")
    x.contiguous()
    assert _C.simulated_end_ns(0) == end
    assert torch_neuronx.get_executed_ops() == []


def test_resize_keeps_values() -> None:
    x = torch.arange(4.0, device="neuron")
    x.resize_(8)
    assert x.shape == (8,)
    assert x[:4].tolist() == [0, 1, 2, 3]


def test_out_argument_is_resized() -> None:
    out = torch.empty(0, device="neuron")
    torch.add(torch.ones(3, device="neuron"), 1, out=out)
    assert out.tolist() == [2, 2, 2]


def test_set_shares_a_storage() -> None:
    x = torch.arange(6.0, device="neuron")
    y = torch.empty(0, device="neuron")
    y.set_(x.untyped_storage(), 2, (2, 2))
    y.zero_()
    assert x.tolist() == [0, 1, 0, 0, 0, 0]


def test_memory_freed_while_queued_work_reads_it_is_not_reused() -> None:
    x = torch.ones(256, 256, device="neuron")
    total = torch.zeros(256, 256, device="neuron")
    for step in range(200):
        term = x * step
        total = total + term
        del term
    assert total.unique().tolist() == [sum(range(200))]


def test_channels_last_strides() -> None:
    assert torch.empty(2, 3, 4, 5, memory_format=torch.channels_last, device="neuron").stride() == (60, 1, 15, 3)


def test_host_memory_may_change_right_after_a_copy() -> None:
    queue = torch.ones(512, 512, device="neuron")
    for _ in range(4):
        queue = queue @ queue / 512
    source = torch.ones(8)
    copy = source.to("neuron", non_blocking=True)
    source.zero_()
    assert copy.tolist() == [1] * 8


def test_cpu_view_and_adopt_share_memory() -> None:
    from torch_neuronx import _C

    x = torch.zeros(3, device="neuron")
    torch.neuron.synchronize()
    _C.cpu_view(x)[1] = 7
    assert x.tolist() == [0, 7, 0]
    host = torch.zeros(2)
    _C.adopt(host, 0).add_(5)
    torch.neuron.synchronize()
    assert host.tolist() == [5, 5]


def test_copies_between_devices() -> None:
    x = torch.arange(3.0, device="neuron:0")
    y = x.to("neuron:1")
    assert y.device == torch.device("neuron", 1)
    assert y.tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="same device, but found at least two devices, neuron:0 and neuron:1"):
        x + y


@pytest.mark.parametrize(
    ("op", "copy"),
    [
        ("aten::clone", lambda x: x.contiguous(memory_format=torch.channels_last)),
        ("aten::clone", lambda x: x.clone(memory_format=torch.channels_last)),
        ("aten::_to_copy", lambda x: x.to(memory_format=torch.channels_last)),
    ],
)
def test_no_copy_into_another_memory_format(op, copy) -> None:
    x = torch.ones(1, 2, 3, 4, device="neuron")
    with pytest.raises(RuntimeError, match=f"{op}: Neuron tensors only support contiguous or preserve memory format"):
        copy(x)
    assert x.clone(memory_format=torch.contiguous_format).is_contiguous()
    assert x.to("cpu", memory_format=torch.channels_last).is_contiguous(memory_format=torch.channels_last)
    assert torch.empty(1, 2, 3, 4, device="neuron", memory_format=torch.channels_last).stride() == (24, 1, 8, 2)
