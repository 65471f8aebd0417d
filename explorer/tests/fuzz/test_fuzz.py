"""The fuzzer finds nothing: a few inputs always, more of them among the slow tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def fuzzer() -> ModuleType:
    path = Path(__file__).parent / "run.py"
    spec = importlib.util.spec_from_file_location("fuzz_run", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["fuzz_run"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("count", [25, pytest.param(500, marks=pytest.mark.slow)])
def test_damaged_inputs_of_all_formats(fuzzer: ModuleType, tmp_path: Path, count: int) -> None:
    assert fuzzer.fuzz(600, 20261129, tmp_path, count=count) == 0
