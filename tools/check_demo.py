"""Open the demo's profiles as a user would and check that the page tells the numbers of the printed tables.

Usage: python tools/check_demo.py build/demo [--serve] [--port 3001]
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any


def free_port() -> int:
    """A port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetch(url: str) -> Any:
    """The decoded JSON behind `url`, or its text."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        body = answer.read()
        return json.loads(body) if "json" in answer.headers.get("content-type", "") else body.decode()


def wait_until_up(url: str, server: subprocess.Popen[bytes], seconds: float = 120) -> None:
    """Return as soon as the server answers; exit with its output's last line when it ends first."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"the explorer stopped with exit code {server.returncode} before it served the demo")
        try:
            fetch(url)
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"the explorer did not answer within {seconds:.0f} s")


def check(address: str, expected: list[dict[str, Any]]) -> None:
    """Exit with a sentence when page or comparison differ from the printed numbers."""
    page = fetch(f"{address}/")
    if "<script" not in page:
        sys.exit("the explorer serves no page: `make ui` builds it")
    by_name = {p["name"]: p["id"] for p in fetch(f"{address}/api/profiles")}
    if missing := {run["name"] for run in expected} - set(by_name):
        sys.exit(f"the explorer did not open {', '.join(sorted(missing))}")
    ids = [by_name[run["name"]] for run in expected]
    comparison = fetch(f"{address}/api/compare?profiles={','.join(ids)}&base={ids[0]}")
    base = expected[0]
    for run, shown in zip(expected, comparison["profiles"], strict=True):
        for key in ("device_time_ns", "span_ns", "executions", "launch_ns", "program_ns", "gaps_ns"):
            if shown[key] != run[key]:
                sys.exit(f"{run['name']}: the page shows {key} = {shown[key]}, the table {run[key]}")
        if run["launch_ns"] + run["program_ns"] + run["gaps_ns"] != run["span_ns"]:
            sys.exit(f"{run['name']}: launches + engines and DMA + gaps is not the span")
        if shown["terms"] and sum(term["delta_ns"] for term in shown["terms"]) != run["span_ns"] - base["span_ns"]:
            sys.exit(f"{run['name']}: the terms do not sum to the difference in span")
    print(f"checked: {comparison['sentence']}")


def main() -> None:
    """Serve, check, and stop or stay."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--port", type=int, default=3001)
    options = parser.parse_args()
    expected = json.loads((options.folder / "compare.json").read_text())
    command = [str(Path(sys.executable).parent / "neuronscope"), "view", "--data-path", str(options.folder / "store")]
    command += [f"{run['name']}={options.folder / run['name']}" for run in expected]
    port = free_port()
    server = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL)
    try:
        wait_until_up(f"http://127.0.0.1:{port}/api/profiles", server)
        check(f"http://127.0.0.1:{port}", expected)
    finally:
        server.terminate()
        server.wait(timeout=20)
    if options.serve:
        try:
            subprocess.run([*command, "--port", str(options.port)], check=True)
        except KeyboardInterrupt:
            print()


if __name__ == "__main__":
    main()
