"""Reading a synthetic CUDA trace of 200,000 events to Parquet, end to end, beside `json.load` of the same file.

The trace is that of the explorer's tests (`explorer/tests/synthetic.py`), whose figures are known: a run that finds
others fails. Both read the file from the page cache; `json.load` only parses, the explorer also links and writes.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from neuronscope import readers

NAME = "Ingest"
STEPS, CALLS = 10, 2_857  # 200,000 events
ROUNDS = 3


def run() -> list[dict[str, object]]:
    """Best of `ROUNDS`, alternating, so that a busy machine slows both alike."""
    synthetic = _synthetic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        expected = synthetic.write(path, STEPS, CALLS)
        ours = plain = float("inf")
        for number in range(ROUNDS):
            began = time.perf_counter()
            result = readers.ingest(path, Path(folder) / str(number))
            ours = min(ours, time.perf_counter() - began)
            began = time.perf_counter()
            with path.open("rb") as file:
                json.load(file)
            plain = min(plain, time.perf_counter() - began)
            found = (result.events_in_file, result.stored, result.device_slices, result.device_time_ns)
            if found != (expected.events, expected.events, expected.kernels, expected.kernel_total_ns):
                raise SystemExit(f"wrong figures: {found}, expected {expected}")
        size = path.stat().st_size / 1e6
    return [
        _row("json.load (parse only)", plain, size, expected.events, plain),
        _row("neuronscope ingest (Parquet written)", ours, size, expected.events, plain),
    ]


def _row(what: str, seconds: float, megabytes: float, events: int, plain: float) -> dict[str, object]:
    return {
        "what": what,
        "seconds": round(seconds, 3),
        "MB/s": round(megabytes / seconds),
        "events/s": round(events / seconds),
        "speed relative to json.load": round(plain / seconds, 2),
    }


def _synthetic() -> ModuleType:
    path = Path(__file__).parents[1] / "explorer" / "tests" / "synthetic.py"
    spec = importlib.util.spec_from_file_location("synthetic_trace", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is missing")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main(arguments: list[str]) -> Any:
    """Print the table, with --json as JSON."""
    rows = run()
    if "--json" in arguments:
        print(json.dumps(rows))
    else:
        for row in rows:
            print("  ".join(f"{key}: {value}" for key, value in row.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
