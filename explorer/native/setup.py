"""Compiles the optional tokenizer and linking: what `hatch_build.py native` and the build hook run."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).resolve().parent

setup(
    name="neuronscope-native",
    ext_modules=[
        Extension(
            f"_{name}",
            sources=[str(HERE / f"{name}.cpp")],
            depends=[str(header) for header in HERE.glob("*.h")],
            extra_compile_args=["/std:c++20"]
            if os.name == "nt"
            else ["-std=c++20", "-O3", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra"],
            language="c++",
            py_limited_api=True,  # one file for Python 3.11 and all later ones
        )
        for name in ("tokenizer", "linking")
    ],
)
