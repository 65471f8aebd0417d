"""The walk-through's examples as a user runs them: tables, files, and the numbers of the comparison."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "rmsnorm"
UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
SIX = ["aten::add", "aten::mean", "aten::mul", "aten::rsqrt"]


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / script), *options], capture_output=True, text=True, check=False, timeout=300
    )


def nanoseconds(text: str) -> float:
    number, unit = re.fullmatch(r"([\d.]+)(ns|us|ms|s)", text).groups()
    return float(number) * UNITS[unit]


def tables(output: str) -> list[dict[str, dict[str, float]]]:
    """Rows with device time of each printed table, by name."""
    found: list[dict[str, dict[str, float]]] = []
    for line in output.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if cells[:2] == ["Name", "Self CPU %"]:
            found.append({})
        elif len(cells) == 11 and cells[6] not in ("0.000us", "------------") and found:
            row = {"self_cpu_ns": cells[2], "device_time_ns": cells[6]}
            found[-1][cells[0]] = {key: nanoseconds(text) for key, text in row.items()}
            found[-1][cells[0]]["calls"] = int(cells[10])
    return found


def totals(output: str) -> list[float]:
    return [nanoseconds(text) for text in re.findall(r"Self NEURON time total: (\S+)", output)]


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]], Path]:
    """Output, JSON and folder of one run of compare.py."""
    out = tmp_path_factory.mktemp("demo")
    done = run("compare.py", "--out", str(out), "--json", str(out / "compare.json"))
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((out / "compare.json").read_text()), out


@pytest.mark.parametrize(
    ("script", "calls"),
    [
        ("naive.py", {"aten::mul": 3, "aten::add": 1, "aten::mean": 1, "aten::rsqrt": 1}),
        ("fused.py", {"aten::_fused_rms_norm": 1}),
        ("compiled.py", {"Torch-Compiled Region: 0/0": 1}),
    ],
)
def test_each_runs_alone(script: str, calls: dict[str, int], tmp_path: Path) -> None:
    done = run(script, "--rows", "8", "--cols", "256", "--dtype", "float32", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (table,) = tables(done.stdout)
    assert {name: row["calls"] for name, row in table.items()} == calls
    last = done.stdout.strip().splitlines()[-1]
    assert "emulated for trn2" in last and "measured on this machine" in last
    (session,) = tmp_path.glob("i-emulated*_pid_*/*")
    assert {"trace.json", "ntrace.pb", "trace_info.pb"} <= {file.name for file in session.iterdir()}


def test_first_column_of_the_tables_is_the_walk_through(comparison: tuple[str, Any, Path]) -> None:
    naive, fused, compiled = tables(comparison[0])
    assert sorted(naive) == SIX
    assert list(fused) == ["aten::_fused_rms_norm"]
    assert list(compiled) == ["Torch-Compiled Region: 0/0"]


def test_device_times_are_near_the_published_ones(comparison: tuple[str, Any, Path]) -> None:
    published = {"naive": 2_355_000, "fused": 403_300, "compiled": 375_500}
    for entry in comparison[1]:
        assert entry["device_time_ns"] == pytest.approx(published[entry["name"]], rel=0.05)


def test_json_holds_the_numbers_of_the_tables(comparison: tuple[str, list[dict[str, Any]], Path]) -> None:
    printed = tables(comparison[0])
    assert [entry["name"] for entry in comparison[1]] == ["naive", "fused", "compiled"]
    for entry, table, total in zip(comparison[1], printed, totals(comparison[0]), strict=True):
        assert entry["device_time_ns"] == pytest.approx(total, rel=1e-3)
        assert {op["name"] for op in entry["ops"]} == set(table)
        for op in entry["ops"]:
            row = table[op["name"]]
            assert op["calls"] == row["calls"]
            assert op["device_time_ns"] == pytest.approx(row["device_time_ns"], rel=1e-3)
            assert op["self_cpu_ns"] == pytest.approx(row["self_cpu_ns"], rel=1e-3, abs=5)


def test_json_adds_up(comparison: tuple[str, list[dict[str, Any]], Path]) -> None:
    for entry in comparison[1]:
        assert entry["launch_ns"] + entry["program_ns"] == entry["device_time_ns"]
        assert entry["launch_ns"] + entry["program_ns"] + entry["gaps_ns"] == entry["span_ns"]
        for key in ("device_time_ns", "launch_ns", "program_ns"):
            assert sum(op[key] for op in entry["ops"]) == entry[key]
        assert entry["bytes_moved"] > 0
    assert [entry["executions"] for entry in comparison[1]] == [6, 1, 1]
    assert all(op["estimated_ns"] == 0 for entry in comparison[1] for op in entry["ops"])


def test_comparison_names_the_launches_as_the_reason(comparison: tuple[str, Any, Path]) -> None:
    text = " ".join(comparison[0].split())
    assert "six launches instead of one" in text
    assert "Bytes are no reason at this size" in text


def test_device_time_is_the_same_in_the_next_run(comparison: tuple[str, Any, Path], tmp_path: Path) -> None:
    done = run("naive.py", "--out", str(tmp_path))
    first = tables(comparison[0])[0]
    (second,) = tables(done.stdout)
    assert {n: r["device_time_ns"] for n, r in second.items()} == {n: r["device_time_ns"] for n, r in first.items()}


@pytest.mark.parametrize("options", [("--rows", "0"), ("--dtype", "int8")], ids=" ".join)
def test_bad_arguments_are_one_usage_error(options: tuple[str, str]) -> None:
    done = run("naive.py", *options)
    assert done.returncode == 2
    assert options[0] in done.stderr and "Traceback" not in done.stderr


def test_unwritable_output_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("compare.py", "--out", str(tmp_path / "file"))
    assert done.returncode != 0
    assert "Traceback" not in done.stderr


def test_unknown_target_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn9")
    done = run("naive.py", "--out", str(tmp_path))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "trn9" in done.stderr
