"""Errors: those of the call at once, those of the data at the next synchronization."""

import pytest
import torch
import torch.nn.functional as F


@pytest.fixture
def table() -> torch.Tensor:
    return torch.randn(4, 4, device="neuron")


@pytest.fixture
def bad() -> torch.Tensor:
    return torch.tensor([9, 2], device="neuron")


def test_data_errors_surface_at_synchronize(table: torch.Tensor, bad: torch.Tensor) -> None:
    rows = torch.index_select(table, 0, bad)
    later = rows + 1  # skipped: its input doesn't exist
    assert later.shape == (2, 4)
    with pytest.raises(IndexError, match="out of range"):
        torch.neuron.synchronize()
    torch.neuron.synchronize()  # reported once
    assert (table + 1).shape == (4, 4)


def test_data_errors_surface_at_copies_and_item(table: torch.Tensor, bad: torch.Tensor) -> None:
    F.embedding(torch.tensor([1, 2], device="neuron"), table)  # the same signature, known and queued
    with pytest.raises(IndexError, match="out of range"):
        F.embedding(bad, table).cpu()
    rows = F.embedding(bad, table)
    with pytest.raises(IndexError, match="out of range"):
        rows.sum().item()


def test_call_errors_are_immediate_and_worded_as_on_the_cpu(table: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(4x4 and 3x3\)"):
        table @ torch.ones(3, 3, device="neuron")
    with pytest.raises(RuntimeError, match="same device, but found at least two devices, neuron:0 and cpu"):
        table + torch.ones(4)
    with pytest.raises(RuntimeError, match=r"Device index 77 is out of range. Valid range is 0 to 3 for this"):
        torch.zeros(1, device="neuron:77")
    torch.neuron.synchronize()


BLOCKING = """
import torch
w, bad = torch.randn(4, 4, device="neuron"), torch.tensor([9], device="neuron")
torch.index_select(w, 0, torch.tensor([1], device="neuron"))
try:
    torch.index_select(w, 0, bad)
except IndexError as error:
    print("raised", error)
"""


def test_launch_blocking_raises_at_the_op(script) -> None:
    result = script(BLOCKING, NEURON_LAUNCH_BLOCKING="1")
    assert result.stdout.startswith("raised index out of range"), result.stderr


def test_out_of_memory_names_size_and_limit() -> None:
    with pytest.raises(RuntimeError, match=r"NRT allocation failed for size \d+ \(OOM\)"):
        torch.empty(200 << 30, dtype=torch.uint8, device="neuron")
    assert torch.neuron.memory_stats()["num_ooms"] == 1
