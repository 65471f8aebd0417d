"""Say in one line each what this machine lacks, before anything is installed. Needs only the system's Python.

Usage: python3 tools/preflight.py VENV [--emulator]
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from pathlib import Path

MINIMUM_PYTHON = (3, 11)
NEEDED_BYTES = 4 * 10**9
VENDOR_DISTRIBUTIONS = ("torch-neuronx", "torch_neuronx")


def problems(venv: Path, emulator: bool) -> list[str]:
    """One line per thing that would make the installation fail, with what to do about it."""
    found = []
    if sys.version_info < MINIMUM_PYTHON:
        found.append(
            f"Python {platform.python_version()} is too old, 3.11 or newer is needed: "
            "install it and run `make PYTHON=python3.11 ...`."
        )
    free = shutil.disk_usage(venv.parent).free
    if not venv.exists() and free < NEEDED_BYTES:
        found.append(f"{venv.parent} has {free / 1e9:.1f} GB free, about 4 GB are needed: free some space.")
    if not emulator:
        return found
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        found.append(
            f"the emulator runs on Linux x86-64 and aarch64, this is {platform.system()} {platform.machine()}: "
            "install the explorer alone with `pip install ./explorer`."
        )
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None and shutil.which("g++") is None:
        found.append("no C++ compiler: install one (Debian: `apt-get install g++`) or set CXX.")
    for name in VENDOR_DISTRIBUTIONS:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        found.append(
            f"the vendor's {name} {version} is installed here, so this looks like a Trainium host. The emulator would "
            "replace its device: install the explorer alone with `pip install ./explorer`."
        )
        break
    return found


def main() -> int:
    """Print the problems; exit code 1 when there is one."""
    lines = problems(Path(sys.argv[1]).absolute(), "--emulator" in sys.argv)
    for line in lines:
        sys.stderr.write(f"neuronscope: {line}\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
