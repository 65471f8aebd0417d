"""Fuzzes every reader: `python explorer/tests/fuzz/run.py [--seconds N] [--seed N] [--out DIR] [--only FORMAT]`.

Takes small inputs of all formats (`seeds`), damages bytes or structure, and reads each in a worker process under a time
and memory limit. A fault is: an error that is not one clear line, a hang, a dead worker, an account that does not add
up, or, where one place of a trace was damaged, more events missing than could have stood there. Faulty inputs are kept
in --out with what went wrong; the seed and the number of the input make them again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import mutate  # type: ignore[import-not-found]
import seeds as inputs  # type: ignore[import-not-found]

LIMIT_S = 30.0
LIMIT_BYTES = 4 << 30
NEAR = 4  # events that damage in one place can cost


@dataclass
class Case:
    """One damaged input: what to open, and whether at most `NEAR` events can have been lost."""

    number: int
    seed: inputs.Seed
    path: Path
    local: bool
    told: str


class Worker:
    """A process that reads inputs one after another."""

    def __init__(self) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "--worker"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "NEURONSCOPE_HELPERS": "0"}
        )

    def read(self, path: Path) -> dict[str, Any]:
        """What the reader made of the input, or `fault`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(os.fsencode(path) + b"\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], LIMIT_S)
        line = self.process.stdout.readline() if ready else b""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        return {"fault": "the worker died" if ready else f"no end after {LIMIT_S:g} s", "code": self.stop()}

    def stop(self) -> int:
        """End the process; its exit code."""
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        return self.process.wait()


def work() -> None:
    """Read the paths that come in; one JSON line each goes out."""
    import resource

    import pyarrow.parquet as pq
    from neuronscope.formats.errors import NeuronscopeError
    from neuronscope.readers import ingest

    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_BYTES, LIMIT_BYTES))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        with tempfile.TemporaryDirectory() as store:
            answer: dict[str, Any]
            try:
                result = ingest(line.rstrip("\n"), store)
                answer = result.as_json()
                tables = {file.name: pq.read_table(file) for file in sorted(Path(store).glob("*.parquet"))}
                answer["rows"] = sum(table.num_rows for table in tables.values())
                answer["actions"] = sorted({row.action for row in result.report})
                answer["left"] = sorted(path.name for path in Path(store).iterdir() if path.suffix not in _TABLES)
                path = Path(line.rstrip("\n"))
                answer["account"] = account_of(result, Path(store), path)
                answer["differs"] = differences(line.rstrip("\n"), result.as_json(), tables)
            except (NeuronscopeError, OSError) as error:
                answer = {"error": str(error)}
            except BaseException as error:
                answer = {"fault": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-3000:]}
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


_TABLES = (".parquet", ".arrow")


def account_of(result: Any, store: Path, path: Path) -> str:
    """What is wrong with the account of a reading, "" when nothing is."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "readers"))
    import account  # type: ignore[import-not-found]

    try:
        account.check(result, store, path.read_bytes() if path.suffix in (".json", ".gz") else None)
    except AssertionError as error:
        return str(error) or traceback.format_exc()[-300:]
    return ""


def differences(path: str, told: dict[str, Any], tables: dict[str, Any]) -> list[str]:
    """What the plain tokenizer makes of an input that the native one has read, where that is another thing."""
    import pyarrow.parquet as pq
    from neuronscope.readers import ingest, native

    if native.tokenizer() != "native":
        return []
    os.environ["NEURONSCOPE_TOKENIZER"] = "plain"
    try:
        with tempfile.TemporaryDirectory() as store:
            result = ingest(path, store)
            found = [] if result.as_json() == told else [f"result {result.as_json()}"]
            files = sorted(Path(store).glob("*.parquet"))
            same = {
                file.name
                for file in files
                if file.name in tables and repr(pq.read_table(file).to_pylist()) == repr(tables[file.name].to_pylist())
            }  # as text: not a number is not equal to itself
            found += [file.name for file in files if file.name not in same]
            return found
    finally:
        del os.environ["NEURONSCOPE_TOKENIZER"]


def fault_of(case: Case, answer: dict[str, Any]) -> str | None:
    """What is wrong with an answer, None when nothing is."""
    if "fault" in answer:
        return str(answer["fault"])
    if "error" in answer:
        text = str(answer["error"])
        if "\n" in text.strip() or len(text) > 2000 or not text.strip():
            return f"not one clear line: {text[:300]!r}"
        return "a trace damaged in one place is refused: " + text if case.local else None
    counts = [answer[name] for name in ("events_in_file", "stored", "repaired", "skipped", "device_time_ns")]
    if min(counts) < 0 or answer["stored"] + answer["skipped"] != answer["events_in_file"]:
        return f"the account does not add up: {counts}"
    if answer["repaired"] > answer["stored"]:
        return f"more repaired than stored: {counts}"
    if answer["skipped"] and not {"skipped", "partial", "left out"} & set(answer["actions"]):
        return "events skipped and no row of the report says so"
    if answer["account"]:
        return f"the account is wrong: {answer['account']}"
    if answer["differs"]:
        return f"the plain tokenizer reads it otherwise: {answer['differs']}"
    if answer["left"]:
        return f"left beside the tables: {answer['left']}"
    if case.local and answer["events_in_file"] < inputs.EVENTS - NEAR:
        return f"{inputs.EVENTS - answer['events_in_file']} events vanished"
    if case.local and answer["stored"] < inputs.EVENTS - NEAR:
        return f"{inputs.EVENTS - answer['stored']} events not stored"
    return None


def make_case(number: int, seed: int, found: list[inputs.Seed], folder: Path) -> Case:
    """The damaged input of this number, written into `folder`."""
    chooser = random.Random(f"{seed}:{number}")
    chosen = chooser.choice(found)
    if chosen.format == "ranks" and chooser.random() < 0.9:  # a process per rank takes its time
        chosen = found[0]
    target = folder / chosen.path.name
    if chosen.path.is_dir():
        shutil.copytree(chosen.path, target)
        damaged = target / chooser.choice(chosen.files).relative_to(chosen.path)
    else:
        shutil.copy(chosen.path, target)
        damaged = target
    local, told = mutate.damage(chooser, damaged, chosen)
    return Case(number, chosen, target, local, f"{damaged.name}: {told}")


def fuzz(seconds: float, seed: int, out: Path, only: str | None = None, count: int | None = None) -> int:
    """Damage and read until the time is over or `count` inputs are done; the number of faults."""
    tally: Counter[str] = Counter()
    faults = 0
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="fuzz-") as place:
        base = Path(place) / "seeds"
        base.mkdir()
        found = [one for one in inputs.make(base) if only is None or one.format == only]
        worker = Worker()
        number = 0
        while time.monotonic() < end and (count is None or number < count):
            folder = Path(place) / "case"
            folder.mkdir()
            case = make_case(number, seed, found, folder)
            answer = worker.read(case.path)
            fault = fault_of(case, answer)
            tally[case.seed.format] += 1
            tally["read" if "stored" in answer else "refused"] += 1
            if fault:
                faults += 1
                kept = out / f"{seed}-{number}"
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(folder, kept)
                (kept / "fault.txt").write_text(f"{case.told}\n{fault}\n{answer.get('trace', '')}\n{answer}\n")
                sys.stdout.write(f"{seed}:{number} {case.seed.format}: {case.told[:100]}: {fault[:200]}\n")
                sys.stdout.flush()
            if worker.process.poll() is not None:
                worker = Worker()
            shutil.rmtree(folder)
            number += 1
        worker.stop()
    sys.stdout.write(f"seed {seed}: {number} inputs, {faults} faults; {dict(tally)}\n")
    return faults


def main() -> int:
    """Parse the arguments and fuzz."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("fuzz-faults"))
    parser.add_argument("--only", help="one format of seeds.py")
    parser.add_argument("--count", type=int, help="inputs; default: as many as the time allows")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work()
        return 0
    return 1 if fuzz(given.seconds, given.seed, given.out, given.only, given.count) else 0


if __name__ == "__main__":
    sys.exit(main())
