"""Reading a synthetic CUDA trace, end to end, beside other tools on the same file: 1 and 10 million events.

The trace is that of the explorer's tests (`explorer/tests/synthetic.py`: steps, stacks, arrows, counters), whose
figures are known: a run of ours that finds others fails. All read the file from the page cache, each in a process of
its own; the clock covers its imports. Ours, with each of its tokenizers, links the events and writes Parquet and the
timeline's index; `json.load` only parses; HolisticTraceAnalysis (and traceinsight, its successor) parses and makes its
kernel breakdown; Perfetto's engine loads the trace and answers one query. Peak memory is that of the process and its
helpers, each at its own peak, with the pages of mapped files that were resident. `device time off` is how far the sum
of the kernels that the tool reports is from the true one.

Of 10 million events (2.6 GB) only ours and Perfetto are run. `--events N` takes one other size, `--large` adds 10 GB
where there is disk for it. The peers are installed into build/peers by the run (`_peers.py`); one that can't be is
left out with a note.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from neuronscope.readers import native

from benchmarks import _peers
from benchmarks._memory import PeakOf

NAME = "Ingest"
EVENTS = (1_000_000, 10_000_000)
LARGE = 38_800_000  # 10 GB
STEPS = 10
ROUNDS = 3
_SLOW_UP_TO = 2_000_000  # events; beyond it the slow peers are left out

_LARGE_BYTES_PER_EVENT = 262 + 200  # of the trace and of what is made from it on the way

_OURS = """
from neuronscope import readers
result = readers.ingest(path, folder)
answer = [result.device_slices, result.device_time_ns, result.events_in_file, result.stored]
"""
_CHECK = """
from pathlib import Path
from neuronscope.index import arrays
index = arrays.load(Path(folder, arrays.INDEX, "timeline"), arrays.key_of(Path(folder), ("Slice",)))
assert index is not None and len(index["start"]) == result.tables["Slice"], "no index of the timeline"
"""
_JSON = """
import json
with open(path, "rb") as file:
    json.load(file)
answer = []
"""
_TIMED = """
import json, sys, time
path, folder = sys.argv[1:]
began = time.perf_counter()
{body}
seconds = time.perf_counter() - began
{check}
print(json.dumps(dict(seconds=seconds, answer=answer)))
"""


def run(sizes: Sequence[int] = EVENTS) -> list[dict[str, object]]:
    """Best of `ROUNDS`, alternating, so that a busy machine slows all alike; the slow peers and long runs once."""
    peers = _peers.install()
    return [row for events in sizes for row in _of_size(events, peers)]


def _of_size(events: int, peers: Sequence[_peers.Peer]) -> list[dict[str, object]]:
    synthetic = _synthetic()
    calls = round(events / STEPS / (synthetic.EVENTS_PER_CALL + 0.1))
    tokenizers = ["plain"] if native.tokenizer() == "plain" else ["native", "plain"]
    ours = {f"neuronscope ingest, {name} tokenizer (Parquet and index written)": name for name in tokenizers}
    best: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        if shutil.disk_usage(folder).free < events * _LARGE_BYTES_PER_EVENT:
            _peers.note(f"{events:,} events: left out, too little disk is free")
            return []
        path = Path(folder) / "trace.json"
        expected = synthetic.write(path, STEPS, calls, counters=True)
        size = path.stat().st_size / 1e6
        wanted = [expected.kernels, expected.kernel_total_ns, expected.events, expected.events]
        # As an installed package our modules are compiled; what is compiled here goes when the folder does.
        compiled = {"PYTHONPYCACHEPREFIX": str(Path(folder) / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
        imports = "import neuronscope.readers.detection, neuronscope.index.arrays"
        _measured([sys.executable, "-c", imports], compiled, "", answers=False)
        for number in range(ROUNDS if events <= _SLOW_UP_TO else 1):
            for what, name in ours.items():
                made = Path(folder) / "profile"
                found = _body(_OURS, path, made, {"NEURONSCOPE_TOKENIZER": name, **compiled}, _CHECK)
                shutil.rmtree(made)
                if found["answer"] != wanted:
                    raise SystemExit(f"wrong figures: {found['answer']}, expected {wanted}")
                _keep(best, what, found)
            if events <= _SLOW_UP_TO:
                _keep(best, "json.load (parse only)", _body(_JSON, path, Path(folder), {}))
            for peer in peers:
                slow = "Perfetto" not in peer.name
                if number == 0 if slow and events <= _SLOW_UP_TO else not slow and events <= EVENTS[-1]:
                    command = [*peer.command, str(path), *peer.last]
                    _keep(best, peer.name, _measured(command, peer.environment, peer.name))
    first = best[next(iter(ours))]["seconds"]
    return [
        {
            "events": f"{events / 1e6:.3g} M",
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


def _body(body: str, path: Path, folder: Path, environment: dict[str, str], check: str = "") -> dict[str, Any]:
    command = [sys.executable, "-c", _TIMED.format(body=body, check=check), str(path), str(folder)]
    found = _measured(command, environment, "")
    assert found is not None
    return found


def _measured(
    command: list[str], environment: dict[str, str], peer: str, *, answers: bool = True
) -> dict[str, Any] | None:
    """What a process of its own prints (seconds, answer) and its peak memory. A peer that fails is left out."""
    with (
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            cwd=tempfile.gettempdir(),
        ) as process,
        PeakOf(process.pid) as peak,
    ):
        said, complaint = process.communicate()
    if process.returncode:
        if not peer:
            raise SystemExit(f"the benchmark's process failed:\n{complaint[-2000:]}")
        lines = [line for line in complaint.splitlines() if line.strip()]
        _peers.note(f"{peer}: left out, it failed ({lines[-1][:160] if lines else process.returncode})")
        return None
    if not answers:
        return None
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return {**found, "peak_mb": peak.bytes / 1e6}


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
    """Print the table, with --json as JSON; `--events N` for one other size, `--large` also for 10 GB."""
    sizes = (int(arguments[arguments.index("--events") + 1]),) if "--events" in arguments else EVENTS
    rows = run((*sizes, LARGE) if "--large" in arguments else sizes)
    if "--json" in arguments:
        print(json.dumps(rows))
    else:
        for row in rows:
            print("  ".join(f"{key}: {value}" for key, value in row.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
