"""Run every benchmark and write benchmarks/RESULTS.md: `python -m benchmarks [name …]`.

Each benchmark is a module with `NAME` (heading), `run() -> list[dict[str, object]]` (rows of one table, same keys) and
a docstring that says what is measured against what; `notes() -> str`, if it has one, follows the table.
"""

from __future__ import annotations

import datetime
import importlib
import os
import platform
import sys
import time
from pathlib import Path

MODULES = ("accuracy", "compiler", "roofline", "coverage", "simulator", "monotony", "dispatch", "ingest", "tiles")
RESULTS = Path(__file__).parent / "RESULTS.md"


def machine() -> str:
    """Processor, cores and memory of this machine, without its name."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def _markdown(rows: list[dict[str, object]]) -> str:
    keys = list(rows[0])
    lines = ["| " + " | ".join(keys) + " |", "|" + "---|" * len(keys)]
    lines += ["| " + " | ".join(str(row.get(key, "")) for key in keys) + " |" for row in rows]
    return "\n".join(lines)


def main() -> int:
    """Run the named benchmarks (default all); a complete run replaces RESULTS.md."""
    chosen = sys.argv[1:] or list(MODULES)
    parts = [
        "# Benchmark results",
        "",
        f"Written by `make bench` on {datetime.date.today().isoformat()}: {machine()}. "
        "Ratios are within one run; absolute times hold for this machine only.",
    ]
    for name in chosen:
        module = importlib.import_module(f"benchmarks.{name}")
        print(f"{name} …", file=sys.stderr, flush=True)
        begin = time.perf_counter()
        rows = module.run()
        text = f"## {module.NAME}\n\n{' '.join(str(module.__doc__).split())}\n\n{_markdown(rows)}"
        if hasattr(module, "notes"):
            text += f"\n\n{module.notes()}"
        print(f"{text}\n\n({time.perf_counter() - begin:.0f} s)\n", flush=True)
        parts += ["", text]
    if chosen == list(MODULES):
        RESULTS.write_text("\n".join(parts) + "\n")
        print(f"wrote {RESULTS.name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
