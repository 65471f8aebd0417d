"""Builds `torch_neuronx._C` and `neuroncore._native`. Everything else is in pyproject.toml.

Build with TORCH_DEVICE_BACKEND_AUTOLOAD=0 so that a half-built device cannot break the torch that builds it.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
TESTED_TORCH = re.search(r'TESTED_TORCH = "(.+)"', (ROOT / "src/torch_neuronx/_torch_version.py").read_text())[1]


def refuse(message: str) -> None:
    """Stops the build with one line."""
    sys.exit(f"neuronscope-emulator: {message}")


if sys.platform != "linux" or platform.machine() not in {"x86_64", "aarch64"}:
    refuse(
        f"needs Linux on x86-64 or aarch64, this is {sys.platform} {platform.machine()}; the explorer runs anywhere."
    )

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
try:
    import torch
except ImportError:
    refuse(f"install torch {TESTED_TORCH} first (the CPU build is enough), then build with --no-build-isolation.")
from torch.utils.cpp_extension import BuildExtension, CppExtension  # noqa: E402 - after the switch above

if ".".join(torch.__version__.split(".")[:2]) != TESTED_TORCH:
    refuse(f"needs torch {TESTED_TORCH}, found {torch.__version__}; install 'torch>={TESTED_TORCH},<2.14'.")
os.environ.setdefault("MAX_JOBS", "2")

setup(
    ext_modules=[
        CppExtension(
            "torch_neuronx._C",
            sources=sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("csrc/**/*.cpp")),
            include_dirs=[str(ROOT / "csrc"), str(Path(torch.__file__).parent / "include" / "kineto")],
            define_macros=[
                ("USE_KINETO", None),
                ("FMT_HEADER_ONLY", "1"),
                ("NEURON_TORCH_MINOR", f'"{TESTED_TORCH}"'),
            ],
            # setuptools adds -g, which doubles the build's memory for symbols nobody reads.
            extra_compile_args=["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wno-sign-compare"],
        ),
        Extension(  # knows nothing of torch but the copy of pybind11 among its headers
            "neuroncore._native",
            sources=sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("native/*.cpp")),
            include_dirs=[str(ROOT / "native"), str(Path(torch.__file__).parent / "include")],
            # No contraction: nanoseconds must not depend on whether the processor has a fused multiply-add.
            extra_compile_args=["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-ffp-contract=off"],
            language="c++",
        ),
    ],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=True)},
)
