"""Reading a synthetic CUDA trace of 1 million events to Parquet, end to end, beside `json.load` of the same file.

The trace is that of the explorer's tests (`explorer/tests/synthetic.py`), whose figures are known: a run that finds
others fails. All read the file from the page cache; `json.load` only parses, the explorer also links and writes. Each
runs in a process of its own, so that its peak memory (of its largest process) can be told.

`--events 10000000` takes a trace of 2.6 GB; `json.load` is left out above 2 million. HolisticTraceAnalysis joins where
`hta` can be imported (`pip install HolisticTraceAnalysis`): it parses the file and makes its kernel breakdown.
"""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

NAME = "Ingest"
EVENTS = 1_000_000
STEPS = 10
ROUNDS = 3
_PEERS_UP_TO = 2_000_000  # events; beyond it only ours is measured

_OURS = """
from neuronscope import readers
result = readers.ingest(path, folder)
answer = [result.events_in_file, result.stored, result.device_slices, result.device_time_ns]
"""
_JSON = """
import json
with open(path, "rb") as file:
    json.load(file)
answer = []
"""
_HTA = """
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: path})
analysis.get_gpu_kernel_breakdown(visualize=False)
answer = []
"""
_TIMED = """
import json, resource, sys, time
path, folder = sys.argv[1:]
began = time.perf_counter()
{body}
seconds = time.perf_counter() - began
peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps([seconds, peak * 1024 / 1e6, answer]))
"""


def run(events: int = EVENTS) -> list[dict[str, object]]:
    """Best of `ROUNDS`, alternating, so that a busy machine slows all alike."""
    synthetic = _synthetic()
    calls = round(events / STEPS / (synthetic.EVENTS_PER_CALL + 0.1))
    peers = {"neuronscope ingest (Parquet written)": _OURS}
    if events <= _PEERS_UP_TO:
        peers["json.load (parse only)"] = _JSON
        if importlib.util.find_spec("hta") is not None:
            peers["HolisticTraceAnalysis (kernel breakdown)"] = _HTA
    best: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        expected = synthetic.write(path, STEPS, calls, counters=True)
        wanted = [expected.events, expected.events, expected.kernels, expected.kernel_total_ns]
        for number in range(ROUNDS if events <= _PEERS_UP_TO else 1):
            for what, body in peers.items():
                seconds, peak, answer = _measured(body, path, Path(folder) / str(number))
                if answer not in ([], wanted):
                    raise SystemExit(f"wrong figures: {answer}, expected {wanted}")
                best[what] = min(best.get(what, (math.inf, 0.0)), (seconds, peak))
        size = path.stat().st_size / 1e6
    ours = best["neuronscope ingest (Parquet written)"][0]
    return [
        {
            "what": what,
            "seconds": round(seconds, 3),
            "MB/s": round(size / seconds),
            "events/s": round(expected.events / seconds),
            "peak MB": round(peak),
            "time relative to ours": round(seconds / ours, 2),
        }
        for what, (seconds, peak) in sorted(best.items(), key=lambda item: item[1][0])
    ]


def _measured(body: str, path: Path, folder: Path) -> tuple[float, float, list[int]]:
    """Seconds, peak memory in MB and the answer of some code that runs in a process of its own."""
    command = [sys.executable, "-c", _TIMED.format(body=body), str(path), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the benchmark's process failed:\n{done.stderr[-2000:]}")
    seconds, peak, answer = json.loads(done.stdout.splitlines()[-1])
    return seconds, peak, answer


def _synthetic() -> ModuleType:
    path = Path(__file__).parents[1] / "explorer" / "tests" / "synthetic.py"
    spec = importlib.util.spec_from_file_location("synthetic_trace", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is missing")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main(arguments: list[str]) -> None:
    """Print the table, with --json as JSON; `--events N` for another size."""
    events = int(arguments[arguments.index("--events") + 1]) if "--events" in arguments else EVENTS
    rows = run(events)
    if "--json" in arguments:
        print(json.dumps(rows))
    else:
        for row in rows:
            print("  ".join(f"{key}: {value}" for key, value in row.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
