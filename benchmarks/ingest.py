"""Reading a synthetic CUDA trace to Parquet, end to end, beside other tools on the same file.

The trace is that of the explorer's tests (`explorer/tests/synthetic.py`: steps, stacks, arrows, counters), whose
figures are known: a run of ours that finds others fails. All read the file from the page cache. Ours links the events
and writes Parquet and counts, with each of its tokenizers; `json.load` only parses; HolisticTraceAnalysis (and
traceinsight, its successor) parses and makes its kernel breakdown; Perfetto's engine loads the trace and answers one
query. Each runs in a process of its own, so that its peak memory can be told: that of the process and of its largest
helper, with the pages of mapped files that were resident. `device time off` is how far the sum of the kernels that the
tool reports is from the true one.

`--events 10000000` takes a trace of 2.6 GB; above 2 million events only ours and Perfetto are run. The peers are
installed into build/peers by the run (`_peers.py`); one that can't be is left out with a note.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from neuronscope.readers import native

from benchmarks import _peers

NAME = "Ingest"
EVENTS = 1_000_000
STEPS = 10
ROUNDS = 3
_SLOW_UP_TO = 2_000_000  # events; beyond it the slow peers are left out

_OURS = """
from neuronscope import readers
result = readers.ingest(path, folder)
answer = [result.device_slices, result.device_time_ns, result.events_in_file, result.stored]
"""
_JSON = """
import json
with open(path, "rb") as file:
    json.load(file)
answer = []
"""
_TIMED = """
import json, resource, sys, time
path, folder = sys.argv[1:]
began = time.perf_counter()
{body}
seconds = time.perf_counter() - began
peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) * 1024 / 1e6
print(json.dumps(dict(seconds=seconds, peak_mb=peak, answer=answer)))
"""


def run(events: int = EVENTS) -> list[dict[str, object]]:
    """Best of `ROUNDS`, alternating, so that a busy machine slows all alike; the slow peers run once."""
    synthetic = _synthetic()
    calls = round(events / STEPS / (synthetic.EVENTS_PER_CALL + 0.1))
    tokenizers = ["plain"] if native.tokenizer() == "plain" else ["native", "plain"]
    ours = {f"neuronscope ingest, {name} tokenizer (Parquet written)": name for name in tokenizers}
    best: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        expected = synthetic.write(path, STEPS, calls, counters=True)
        size = path.stat().st_size / 1e6
        wanted = [expected.kernels, expected.kernel_total_ns, expected.events, expected.events]
        peers = _peers.install()
        for number in range(ROUNDS if events <= _SLOW_UP_TO else 1):
            for what, name in ours.items():
                found = _body(_OURS, path, Path(folder) / f"{name}{number}", {"NEURONSCOPE_TOKENIZER": name})
                if found["answer"] != wanted:
                    raise SystemExit(f"wrong figures: {found['answer']}, expected {wanted}")
                _keep(best, what, found)
            if events <= _SLOW_UP_TO:
                _keep(best, "json.load (parse only)", _body(_JSON, path, Path(folder), {}))
            for peer in peers:
                slow = "Perfetto" not in peer.name
                if (slow and events <= _SLOW_UP_TO and number == 0) or not slow:
                    command = [*peer.command, str(path), *peer.last]
                    _keep(best, peer.name, _measured(command, peer.environment, peer.name))
    first = best[next(iter(ours))]["seconds"]
    return [
        {
            "what": what,
            "seconds": round(found["seconds"], 3),
            "MB/s": round(size / found["seconds"]),
            "events/s": round(expected.events / found["seconds"]),
            "peak MB": round(found["peak_mb"]),
            "device time off": _off(found["answer"], expected.kernel_total_ns),
            "time relative to ours": round(found["seconds"] / first, 2),
        }
        for what, found in sorted(best.items(), key=lambda item: item[1]["seconds"])
    ]


def _off(answer: list[int], true_ns: int) -> str:
    return f"{(answer[1] - true_ns) / true_ns:+.2%}" if len(answer) > 1 else "not computed"


def _keep(best: dict[str, dict[str, Any]], what: str, found: dict[str, Any] | None) -> None:
    if found is not None and (what not in best or found["seconds"] < best[what]["seconds"]):
        best[what] = found


def _body(body: str, path: Path, folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-c", _TIMED.format(body=body), str(path), str(folder)]
    found = _measured(command, environment, "")
    assert found is not None
    return found


def _measured(command: list[str], environment: dict[str, str], peer: str) -> dict[str, Any] | None:
    """What a process of its own prints: seconds, peak memory in MB, answer. A peer that fails is left out."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        cwd=tempfile.gettempdir(),
    )
    if done.returncode:
        if not peer:
            raise SystemExit(f"the benchmark's process failed:\n{done.stderr[-2000:]}")
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        _peers.note(f"{peer}: left out, it failed ({lines[-1][:160] if lines else done.returncode})")
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


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
