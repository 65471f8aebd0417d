"""Statistics of the caching allocator."""

import torch
import torch_neuronx


def test_allocated_reserved_and_cache() -> None:
    torch.neuron.empty_cache()
    before = torch.neuron.memory_allocated()
    x = torch.empty(1000, dtype=torch.uint8, device="neuron")
    assert torch.neuron.memory_allocated() - before == 1024  # size class
    y = torch.empty(0, device="neuron")
    assert torch.neuron.memory_allocated() - before == 1024 + 256  # empty tensors own the minimum
    reserved = torch.neuron.memory_reserved()
    del x, y
    assert torch.neuron.memory_allocated() == before
    assert torch.neuron.memory_reserved() == reserved  # kept for reuse
    torch.neuron.empty_cache()
    assert torch.neuron.memory_reserved() <= reserved - 1280


def test_peaks_and_both_spellings() -> None:
    torch.neuron.reset_peak_memory_stats()
    before = torch.neuron.memory_allocated()
    x = torch.empty(20 << 20, dtype=torch.uint8, device="neuron")
    del x
    assert torch.neuron.max_memory_allocated() == before + (20 << 20)
    stats = torch_neuronx.memory_stats()
    assert stats["allocated_bytes"]["peak"] == stats["allocated_bytes.all.peak"]
    assert stats["reserved_bytes"]["current"] >= stats["allocated_bytes"]["current"] >= stats["active_bytes"]["current"]
    torch.neuron.reset_peak_memory_stats()
    assert torch.neuron.max_memory_allocated() == torch.neuron.memory_allocated()
    torch.neuron.reset_accumulated_memory_stats()
    assert torch.neuron.memory_stats()["num_tensor_frees"] == 0


def test_summary_names_the_device() -> None:
    assert torch.neuron.memory_summary(1).splitlines()[0] == "Neuron Memory Summary, Device 1"
    short, long = (torch.neuron.memory.memory_summary(0, abbreviated=short) for short in (True, False))
    assert len(short.splitlines()) < len(long.splitlines())


def test_results_of_ops_are_counted() -> None:
    before = torch.neuron.memory_allocated()
    x = torch.ones(1 << 20, device="neuron")
    y = x + 1
    torch.neuron.synchronize()
    assert torch.neuron.memory_allocated() - before == 2 * (4 << 20)
    del x, y
    assert torch.neuron.memory_allocated() == before
    free, total = torch.neuron.mem_get_info()
    assert 0 < free <= total == 24 << 30


def test_memory_released_before_queued_work_ran_is_free_for_what_comes_next() -> None:
    x = torch.ones(1 << 20, device="neuron")
    torch.relu(x * 2 + 1)
    torch.neuron.synchronize()
    torch.neuron.reset_peak_memory_stats()
    before = torch.neuron.memory_allocated()
    for _ in range(200):  # the host is far ahead of the arithmetic
        y = torch.relu(x * 2 + 1)
    assert torch.neuron.memory_allocated() - before == 4 << 20
    torch.neuron.synchronize()
    assert torch.neuron.memory_allocated() - before == 4 << 20
    assert torch.neuron.max_memory_allocated() - before <= 3 * (4 << 20)  # y of the iteration before, and two operands
    assert y.eq(3).all().item()


def test_reserved_covers_allocated_while_work_is_queued() -> None:
    x = torch.ones(1 << 16, device="neuron")
    for size in (1000, 70_000, 3 << 20, 1000):
        parts = [torch.empty(size, device="neuron", dtype=torch.uint8) for _ in range(3)]
        x = x + 1
        del parts
        stats = torch.neuron.memory_stats()
        current = [stats[f"{name}_bytes.all.current"] for name in ("reserved", "allocated", "active")]
        assert current == sorted(current, reverse=True)
    torch.neuron.empty_cache()
    assert torch.neuron.memory_reserved() == torch.neuron.memory_allocated()
