"""Saving, loading and copying tensors."""

import copy
import io

import torch
from torch import nn


def test_save_and_load_keep_device_and_sharing() -> None:
    x = torch.arange(9.0, device="neuron").view(3, 3)
    buffer = io.BytesIO()
    torch.save([x, x[1]], buffer)
    buffer.seek(0)
    y, row = torch.load(buffer)
    assert y.device.type == "neuron"
    assert torch.equal(x, y)
    row.zero_()
    assert y[1].tolist() == [0, 0, 0]


def test_load_onto_another_device() -> None:
    buffer = io.BytesIO()
    torch.save(torch.ones(2, device="neuron"), buffer)
    buffer.seek(0)
    assert torch.load(buffer, map_location="cpu").device.type == "cpu"
    buffer.seek(0)
    assert torch.load(buffer, map_location="neuron:1").device.index == 1


def test_state_dict_moves_between_devices() -> None:
    source, target = nn.Linear(3, 3), nn.Linear(3, 3, device="neuron")
    target.load_state_dict(source.state_dict())
    assert torch.equal(target.weight.cpu(), source.weight)


def test_deepcopy_is_a_copy() -> None:
    x = torch.ones(2, device="neuron")
    y = copy.deepcopy(x)
    y.zero_()
    assert x.tolist() == [1, 1]
