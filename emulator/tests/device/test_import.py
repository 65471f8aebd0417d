"""Loading: `import torch` alone, either order, and a device that can't be loaded."""

import sys
from importlib import metadata

import pytest
import torch
from torch_neuronx import _load

USE = "print(torch.ones(2, device='neuron').sum().item())"


@pytest.mark.parametrize(
    "imports",
    [
        "import torch",
        "import torch_neuronx, torch",
        "import torch, torch_neuronx",
        "import torch_neuronx.profiling, torch",
    ],
)
def test_any_import_order(script, imports: str) -> None:
    result = script(f"{imports}\n{USE}")
    assert result.stdout.strip() == "2.0", result.stderr
    assert result.stderr == ""


def test_autoload_can_be_switched_off(script) -> None:
    source = "import torch; print(hasattr(torch, 'neuron'))"
    assert script(source, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.strip() == "False"
    source = f"import torch_neuronx, torch\n{USE}"
    assert script(source, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.strip() == "2.0"


def test_importing_torch_stays_light(script) -> None:
    source = """
    import sys, torch
    print([name for name in ("pyarrow", "neuroncore", "torch._dynamo", "duckdb") if name in sys.modules])
    """
    assert script(source).stdout.strip() == "[]"


BROKEN = """
import sys

class Broken:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch_neuronx._C":
            raise ImportError("_C.so: undefined symbol: _ZN2at4_ops")

sys.meta_path.insert(0, Broken)
import torch
print(torch.ones(2).sum().item(), torch.neuron.is_available())
for use in (
    lambda: torch.ones(1, device="neuron"),
    lambda: torch.neuron.synchronize(),
    lambda: __import__("torch_neuronx").get_fallback_ops(),
):
    try:
        use()
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
"""


def test_a_broken_extension_breaks_only_the_device(script) -> None:
    result = script(BROKEN)
    lines = result.stdout.splitlines()
    assert lines[0] == "2.0 False", result.stderr
    assert len(lines) == 4
    assert all("undefined symbol" in line and "rebuild" in line for line in lines[1:])
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("neuron device not available: ")


def test_refusals_name_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _load.obstacle() is None
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "2.14.3")
        assert "built for torch 2.13, but torch is 2.14.3; install 'torch==2.13.*'" in _load.obstacle()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "darwin")
        assert _load.obstacle().startswith("the emulator runs on Linux (x86-64, aarch64), this is darwin")
    with monkeypatch.context() as patch:
        patch.setattr(metadata, "version", {"torch-neuronx": "2.13.3"}.__getitem__)
        assert "torch-neuronx 2.13.3, the vendor's package for real NeuronCores" in _load.obstacle()
