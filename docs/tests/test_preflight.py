"""What `make` says before it installs anything."""

import subprocess
import sys
from pathlib import Path

PREFLIGHT = Path(__file__).parents[2] / "tools" / "preflight.py"


def preflight(tmp_path, *options, path=(), **environment):
    return subprocess.run(
        [sys.executable, str(PREFLIGHT), str(tmp_path / "venv"), *options],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(map(str, path)), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_fit_machine_is_silent(tmp_path):
    run = preflight(tmp_path, "--emulator")
    assert (run.returncode, run.stderr) == (0, "")


def test_the_vendors_device_is_not_replaced(tmp_path):
    metadata = tmp_path / "site" / "torch_neuronx-2.13.3.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-neuronx\nVersion: 2.13.3\n")
    run = preflight(tmp_path, "--emulator", path=[tmp_path / "site"])
    assert run.returncode == 1
    assert "torch-neuronx 2.13.3 is installed" in run.stderr and "pip install ./explorer" in run.stderr
    assert preflight(tmp_path, path=[tmp_path / "site"]).returncode == 0, "the explorer alone may be installed there"


def test_a_missing_compiler_is_named(tmp_path):
    run = preflight(tmp_path, "--emulator", PATH=str(tmp_path))
    assert run.returncode == 1
    assert run.stderr.count("\n") == 1 and "no C++ compiler" in run.stderr
