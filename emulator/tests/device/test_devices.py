"""Device selection and properties."""

import threading

import pytest
import torch
import torch_neuronx
from torch_neuronx import _initialize


def test_current_device_and_context() -> None:
    assert torch.neuron.current_device() == 0
    with torch.neuron.device(1):
        assert torch.empty(1, device="neuron").device.index == 1
    assert torch.neuron.current_device() == 0
    torch_neuronx.set_device("neuron:1")
    assert torch.neuron.current_device() == 1
    torch_neuronx.set_device(torch.device("neuron", 0))


def test_a_new_thread_starts_from_the_default_device() -> None:
    seen = []
    with torch.neuron.device(1):
        thread = threading.Thread(target=lambda: seen.append(torch.neuron.current_device()))
        thread.start()
        thread.join()
    assert seen == [0]


def test_wrong_devices() -> None:
    last = torch.neuron.device_count() - 1
    with pytest.raises(ValueError, match=f"Invalid device id: 99. Valid range is 0 to {last}"):
        torch.neuron.set_device(99)
    with pytest.raises(ValueError, match="Expected Neuron device, got: cpu"):
        torch.neuron.get_device_name("cpu")
    with pytest.raises(ValueError, match="Expected an int"):
        torch.neuron.get_device_properties(1.5)


def test_names_and_properties() -> None:
    assert torch.neuron.get_device_name() == "neuron:0"
    properties = torch_neuronx.get_device_properties("neuron:1")
    assert properties.name == "trn2"
    assert properties.total_memory == 24 << 30


def test_tensor_and_module_methods() -> None:
    assert torch.ones(1).neuron().is_neuron
    assert torch.nn.Linear(1, 1).neuron().weight.device.type == "neuron"


@pytest.mark.parametrize(
    ("environment", "count"),
    [
        ({}, 4),
        ({"NEURON_LOGICAL_NC_CONFIG": "1"}, 8),
        ({"NEURON_RT_NUM_CORES": "2"}, 2),
        ({"NEURON_RT_VISIBLE_CORES": "4-6,9"}, 4),
    ],
)
def test_device_count(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], count: int) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _initialize.device_count() == count


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"NEURON_RT_NUM_CORES": "129"}, "129 NeuronCores are visible, a process can use 128; set NEURON_RT_NUM_CORES"),
        ({"NEURON_RT_VISIBLE_CORES": "3-1"}, "the range 3-1 is empty"),
        ({"NEURON_RT_NUM_CORES": "two"}, "NEURON_RT_NUM_CORES: 'two' is no core number"),
        ({"NEURON_RT_VISIBLE_CORES": "0-2,1"}, "names core 1 twice"),
        ({"NEURON_LOGICAL_NC_CONFIG": "3"}, "a logical NeuronCore has 1 or 2 physical ones"),
    ],
)
def test_bad_environment(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], message: str) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        _initialize.device_count()


BAD_COUNT = """
import torch
assert not torch.neuron.is_available()
try:
    torch.zeros(1, device="neuron")
except ValueError as error:
    print(error)
"""


def test_a_bad_environment_is_reported_where_the_device_is_used(script) -> None:
    result = script(BAD_COUNT, NEURON_RT_NUM_CORES="two")
    assert result.stdout.startswith("NEURON_RT_NUM_CORES: 'two' is no core number"), result.stderr


FORK = """
import os, torch
torch.ones(2, device="neuron").sum().item()
import warnings
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    for use in (lambda: torch.ones(1, device="neuron"), torch.neuron.synchronize):
        try:
            use()
        except RuntimeError as error:
            print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(torch.ones(2, device="neuron").sum().item())
"""


def test_after_fork(script) -> None:
    lines = script(FORK).stdout.splitlines()
    assert len(lines) == 3
    assert all("Cannot re-initialize the Neuron runtime in a forked subprocess" in line for line in lines[:2])
    assert all("spawn" in line for line in lines[:2])
    assert lines[2] == "2.0"


def test_128_devices_are_more_than_torchs_index_type_counts(script) -> None:
    source = """
    import torch
    print(torch.neuron.device_count(), torch.accelerator.device_count())
    print(torch.ones(2, device="neuron:127").sum().item())
    """
    result = script(source, NEURON_RT_NUM_CORES="128")
    assert result.stdout.split() == ["128", "128", "2.0"], result.stderr


def test_no_device_at_all(script) -> None:
    source = """
    import torch
    print(torch.neuron.is_available())
    try:
        torch.ones(1, device="neuron")
    except RuntimeError as error:
        print(error)
    """
    lines = script(source, NEURON_RT_NUM_CORES="0").stdout.splitlines()
    assert lines[0] == "False"
    assert lines[1].startswith("No NeuronCore is visible to this process")
