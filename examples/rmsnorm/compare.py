"""Profile the three RMSNorms, each in a process of its own, and say why one takes longer than another.

The profiles stay in --out: one folder per implementation, and `store`, where the explorer keeps what it has read.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

NAMES = ("naive", "fused", "compiled")
HERE = Path(__file__).resolve().parent


def main() -> None:
    """Run, print, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="4", help="rows of the input (default 4)")
    parser.add_argument("--cols", default="512", help="columns, normalised over (default 512)")
    parser.add_argument("--dtype", default="bfloat16", help="bfloat16, float16 or float32 (default bfloat16)")
    parser.add_argument("--out", type=Path, default=Path("profile_output"), help="folder for the profiles")
    parser.add_argument("--json", type=Path, help="write the comparison's exact numbers to this file")
    options = parser.parse_args()
    shape = ["--rows", options.rows, "--cols", options.cols, "--dtype", options.dtype]
    for number, name in enumerate(NAMES, 1):
        print(f"[{number}/{len(NAMES)}] {name}: {options.rows} x {options.cols} {options.dtype}", flush=True)
        run([str(HERE / f"{name}.py"), *shape, "--out", str(options.out / name)])
        print(flush=True)
    command = ["-m", "neuronscope.cli", "compare", "--data-path", str(options.out / "store")]
    command += [f"{name}={options.out / name}" for name in NAMES]
    run(command)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(run([*command, "--json"], capture=True))
    print(f"\nSee the timelines: neuronscope view {' '.join(command[5:])}", flush=True)


def run(arguments: list[str], capture: bool = False) -> str:
    """Run Python with these arguments; a failure ends this program with the same exit code."""
    done = subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.PIPE if capture else None, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(done.returncode)
    return done.stdout or ""


if __name__ == "__main__":
    main()
