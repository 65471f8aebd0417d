"""Traces made inside the tests, and the golden session."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from neuronscope.store import Profile, Store

TESTS = Path(__file__).parents[1]

# A slow machine must not fail a property; the same examples each time, as CI wants them.
settings.register_profile("readers", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("readers")


def load(name: str, path: Path) -> ModuleType:
    """Import a module of the tests by its path."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    return load("synthetic_trace", TESTS / "synthetic.py")


@pytest.fixture(scope="session")
def make_session() -> ModuleType:
    return load("make_session", TESTS / "golden" / "make_session.py")


@pytest.fixture(scope="session")
def golden() -> Path:
    """The checked-in session directory's output folder."""
    return TESTS / "golden" / "session"


Ingest = Callable[..., Profile]


@pytest.fixture
def ingest(tmp_path: Path) -> Ingest:
    """Ingest a path, the text of a trace, or a list of events; returns the stored profile."""

    def run(source: Path | str | bytes | list[dict[str, Any]], name: str = "trace.json") -> Profile:
        path = tmp_path / name
        if isinstance(source, Path):
            path = source
        elif isinstance(source, bytes):
            path.write_bytes(source)
        elif isinstance(source, str):
            path.write_text(source, encoding="utf-8")
        else:
            path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": source}), encoding="utf-8")
        return Store(tmp_path / "store").add(path)

    return run
