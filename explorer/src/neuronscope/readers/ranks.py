"""Traces or databases of a job, one per rank or process → one profile with the rank as a column.

Each rank is read into a folder of its own, by as many processes as there are cores; then its rows are copied beside
those of the others with ids moved so that they stay unique. Memory does not grow with the ranks.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from dataclasses import field as member
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neuronscope.formats.errors import FormatError
from neuronscope.readers import run_files, session, source
from neuronscope.readers.folder import looks_like_trace, traces_in
from neuronscope.readers.helper import cores
from neuronscope.readers.processed import FIGURES
from neuronscope.readers.result import BOOKKEEPING, IngestResult, IngestWarning, Progress
from neuronscope.readers.wording import iso_time, printable
from neuronscope.readers.write import Writer
from neuronscope.schema.published import arrow_schema, schema_fields

__all__ = ["RankFiles", "RanksReader", "find_databases", "find_hosts", "find_ranks", "find_sessions"]

_HEAD_BYTES = 1 << 20
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)')
_WORLD = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"world_size"\s*:\s*(\d+)')
_NAMED = re.compile(r"(?:rank|worker)[-_.]?(\d+)", re.IGNORECASE)
_ASCEND = re.compile(r"profiler_info_(\d+)\.json$")
_PROCESS = re.compile(r"_pid_\d+$")
_HOSTS = ".trace.json.gz"  # JAX: plugins/profile/<run>/<host>.trace.json.gz
_FLOW_ENDS = {"in_id": "in_table", "out_id": "out_table"}
_FLOW_KINDS = {"SystemProfileEvents": "event"}
_COUNTED = ("Instruction", "DmaPacketAggregated", "DmaPacket", "SemaphoreUpdate")  # tables with an `id` of their own
_TIMES = ("start_ts", "end_ts", "launch_ts", "enqueue_ts")
_PROCESS_STEP = 10_000_000  # ranks of several hosts may have the same process id

_OF_EXECUTIONS = (
    *("ActiveTime", "DmaUsage", "ExecutionInfo", "HbmUsage", "PendingDma", "PsumUsage", "SbufAllocation", "SbufUsage"),
)
_WITHOUT_IDS = (
    *("CpuUsage", "HostMemUsage", "DeviceProfileList", "DmaQueuesInfo", "NeffHeader", "OpcodeSummary", "Summary"),
    *("Metadata", "TensorInfo", "HbmUsageSummaryByType", "DmaUsageSummary", "Hardware"),
)
# Columns that hold ids, and by which count of the ranks before they move.
_IDS = {
    "SystemProfileEvents": {"id": "event"},
    "Flow": {},  # see _FLOW_ENDS
    "Slice": {"event_id": "event", "track_id": "track"},
    "Track": {"track_id": "track"},
    "HostOp": {"event_id": "event", "parent_id": "event"},
    "Execution": {"execution_id": "execution", "event_id": "event", "op_event_id": "event"},
    "Gap": {"gap_id": "gap", "track_id": "track", "previous_event_id": "event", "next_event_id": "event"},
    "Step": {},
    "OtherEvent": {},
    # Of sessions: device profiles and host samples.
    "Instruction": {"id": "Instruction", "execution_id": "execution"},
    "DmaPacketAggregated": {"id": "DmaPacketAggregated", "execution_id": "execution"},
    "DmaPacket": {"id": "DmaPacket", "packet_aggregation_id": "DmaPacketAggregated"},
    "SemaphoreUpdate": {"id": "SemaphoreUpdate", "execution_id": "execution"},
    **{name: {"execution_id": "execution"} for name in _OF_EXECUTIONS},
    **{name: {} for name in _WITHOUT_IDS},
}


@dataclass(frozen=True)
class RankFiles:
    """The files of a job.

    Attributes:
        files: the file of each rank; of databases whose ranks nobody tells, by number.
        world: ranks the job had, 0 unknown.
        older: other files of the same ranks, left out.
        others: traces that tell no rank, left out.
        names: what to call the files whose ranks nobody tells.
        shifts: what the times of a file are late by, in ns.
        sessions: the files are folders of sessions.
    """

    files: Mapping[int, Path]
    world: int
    older: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()
    names: Mapping[int, str] = member(default_factory=dict)
    shifts: Mapping[int, int] = member(default_factory=dict)
    sessions: bool = False


def find_ranks(folder: Path) -> RankFiles | None:
    """The traces of a folder when they are those of several ranks, else None; of several of one rank the last."""
    paths = traces_in(folder)
    found: dict[int, Path] = {}
    older: list[Path] = []
    others: list[Path] = []
    world = 0
    for path in paths:
        try:
            head = source.head(path, _HEAD_BYTES)
        except OSError:  # told when it is read
            head = b""
        named = _NAMED.search(path.name) or _NAMED.search(str(path.relative_to(folder)))
        inside = _RANK.search(head)
        rank = int(inside[1]) if inside else int(named[1]) if named else _ascend_rank(path)
        if rank < 0:
            others.append(path)
            continue
        if size := _WORLD.search(head):
            world = max(world, int(size[1]))
        if rank in found:
            older.append(found[rank])
        found[rank] = path
    if len(found) < 2:
        return None
    others = [path for path in others if looks_like_trace(path)]
    return RankFiles(dict(sorted(found.items())), world, tuple(older), tuple(others))


def _ascend_rank(path: Path) -> int:
    """The rank that the file beside an ASCEND_PROFILER_OUTPUT folder tells, -1 none."""
    if path.parent.name != "ASCEND_PROFILER_OUTPUT":
        return -1
    told = {int(match[1]) for file in path.parents[1].glob("*.json") if (match := _ASCEND.match(file.name))}
    return told.pop() if len(told) == 1 else -1


def find_hosts(folder: Path) -> RankFiles | None:
    """The traces that JAX writes of one run, one per host; None when there are not several."""
    paths = [path for path in traces_in(folder) if path.name.endswith(_HOSTS) and path.parents[1].name == "profile"]
    if len(paths) < 2 or len({path.parent for path in paths}) > 1:
        return None
    names = {number: path.name.removesuffix(_HOSTS) for number, path in enumerate(paths)}
    return RankFiles(dict(enumerate(paths)), 0, names=names)


def find_sessions(folder: Path) -> RankFiles | None:
    """The newest session of each process below a folder, when they were recorded at the same time; else None."""
    if session.is_session(folder):
        return None
    newest: dict[Path, Path] = {}
    older: list[Path] = []
    below = [
        d for pattern in ("*", "*/*") for d in sorted(folder.glob(pattern)) if d.is_dir() and session.is_session(d)
    ]
    for place in sorted(below, key=lambda d: d.name):
        process = place.parent if _PROCESS.search(place.parent.name) else place
        if process in newest:
            older.append(newest[process])
        newest[process] = place
    spans = sorted(filter(None, map(session.recorded, newest.values())))
    if len(newest) < 2 or len(spans) < len(newest):
        return None
    reach = itertools.accumulate((last for _, last in spans), max)
    if not all(first <= last for (first, _), last in zip(spans[1:], reach, strict=False)):
        return None
    ranks = {process: _session_rank(place) for process, place in newest.items()}
    told = min(ranks.values()) >= 0 and len(set(ranks.values())) == len(ranks)
    numbered = {ranks[process] if told else number: process for number, process in enumerate(newest)}
    files = {number: newest[process] for number, process in sorted(numbered.items())}
    names = {} if told else {number: process.name for number, process in numbered.items()}
    return RankFiles(files, 0, older=tuple(older), names=names, sessions=True)


def _session_rank(place: Path) -> int:
    trace = place / "trace.json"
    inside = _RANK.search(source.head(trace, _HEAD_BYTES)) if trace.is_file() else None
    return int(inside[1]) if inside else -1


def find_databases(paths: Sequence[Path]) -> RankFiles | None:
    """Databases of one run, one per process or rank; None when they are of several."""
    parts = run_files.parts_of(paths)
    if parts is None:
        return None
    numbered = list(enumerate(parts))
    if parts[0].rank >= 0:
        numbered = [(part.rank, part) for part in parts]
    names = {number: part.name for number, part in numbered if part.rank < 0}
    shifts = {number: part.shift_ns for number, part in numbered}
    return RankFiles({number: part.path for number, part in numbered}, 0, names=names, shifts=shifts)


class RanksReader:
    """Reads the traces of all ranks as one profile."""

    format = "traces of several ranks"

    def __init__(self, path: Path, ranks: RankFiles) -> None:
        self.source = path
        self.ranks = ranks

    def files(self) -> list[Path]:
        """Every file that is read."""
        if self.ranks.sessions:
            return [file for folder in self.ranks.files.values() for file in session.files_of(folder)]
        return list(self.ranks.files.values())

    def read(self, store_dir: Path, progress: Progress | None = None) -> IngestResult:
        """See `Reader.read`."""
        folders = {rank: store_dir / f".rank-{rank}" for rank in self.ranks.files}
        done = 0

        workers: SimpleQueue[_Worker | None] = SimpleQueue()
        for _ in range(cores()):
            workers.put(None)

        def one(rank: int) -> IngestResult | str:
            nonlocal done
            folders[rank].mkdir()
            worker = workers.get() or _Worker()
            answer = worker.read(self.ranks.files[rank], folders[rank])
            workers.put(worker if worker.alive else None)
            done += 1
            if progress:
                progress("parse", 0.8 * done / len(folders))
            return answer

        try:
            with ThreadPoolExecutor(cores()) as pool:
                answers = dict(zip(folders, pool.map(one, folders), strict=True))
            good = {rank: answer for rank, answer in answers.items() if isinstance(answer, IngestResult)}
            bad = {rank: answer for rank, answer in answers.items() if isinstance(answer, str)}
            if not good:
                raise FormatError(f"{self.source}: no rank can be read: {next(iter(bad.values()))}")
            return self._merge(good, bad, folders, store_dir)
        finally:
            while not workers.empty():
                if (worker := workers.get()) is not None:
                    worker.close()
            for folder in folders.values():
                shutil.rmtree(folder, ignore_errors=True)

    def _merge(
        self, results: Mapping[int, IngestResult], bad: Mapping[int, str], folders: Mapping[int, Path], store: Path
    ) -> IngestResult:
        parts = _parts(results, folders, self.ranks)
        report = [row for result in results.values() for row in result.report]
        report += [
            IngestWarning(
                *("unreadable_rank", 1, -1, self.ranks.files[rank].name, "left out"),
                f"{self.ranks.names.get(rank, f'rank {rank}')}: {text}",
            )
            for rank, text in bad.items()
        ]
        missing = sorted(set(range(self.ranks.world)) - set(results))
        if missing:
            listed = ", ".join(map(str, missing[:20])) + (", …" if len(missing) > 20 else "")
            text = f"{len(missing)} of {self.ranks.world} ranks are not here: {listed}"
            report.append(IngestWarning("missing_rank", len(missing), -1, self.source.name, "partial", text))
        if self.ranks.others:
            listed = ", ".join(printable(path, name_only=True) for path in self.ranks.others[:5])
            text = f"traces that tell no rank are not shown: {listed}"
            count = len(self.ranks.others)
            report.append(
                IngestWarning("not_opened", count, -1, printable(self.source, name_only=True), "left out", text)
            )
        if self.ranks.older:
            text = f"{len(self.ranks.older)} other traces of the same ranks; of each rank the last by name is shown"
            row = IngestWarning("several_captures", len(self.ranks.older), -1, self.source.name, "newest taken", text)
            report.append(row)
        names: dict[str, int] = {}
        for part in parts:
            known = part.folder / "Name.parquet"  # not there where only metadata is left of a rank
            listed_names = pq.read_table(known)["name"].to_pylist() if known.exists() else []
            part.names = np.array([names.setdefault(name, len(names)) for name in listed_names] or [0], np.int64)
        with Writer(store) as writer:
            for table in _IDS:
                writer.write(table, _rows(table, parts))
            writer.write("Name", (_table("Name", [{"name_id": i, "name": name} for name, i in names.items()]),))
            writer.write("IngestReport", (_table("IngestReport", [row.__dict__ for row in report]),))
            warned = [{"message": r.message, "category": r.kind} for r in report if r.kind not in BOOKKEEPING]
            writer.write("Warning", (_table("Warning", warned),))
            writer.write("ProfileInfo", (self._info(parts, results),))
            writer.write("SystemProfileMetadata", _span(parts))
            written = writer.finish()
            writer.write("SchemaFields", (schema_fields(written),))
            written = writer.finish()
        first = next(iter(results.values()))
        total: dict[str, Any] = {
            name: sum(getattr(result, name) for result in results.values())
            for name in (
                *("events_in_file", "stored", "merged", "repaired", "skipped", "bytes_read"),
                *("device_slices", "device_time_ns", "device_busy_ns", "processes"),
            )
        }
        lost = [result.dropped for result in results.values()]
        dropped = None if None in lost else sum(filter(None, lost))
        ranks = () if self.ranks.names else tuple(results)
        return replace(
            first, source=self.source, ranks=ranks, report=tuple(report), tables=written, dropped=dropped, **total
        )

    def _info(self, parts: Sequence[_Part], results: Mapping[int, IngestResult]) -> pa.Table:
        facts = dict(parts[0].facts)
        for name in FIGURES:
            facts[name] = str(sum(getattr(result, name) for result in results.values()))
        for part in parts[1:]:
            facts = {**part.facts, **facts}  # executables and the like of every process
        lost = [part.facts.get("dropped", "") for part in parts]
        facts["dropped"] = str(sum(map(int, lost))) if all(map(str.isdecimal, lost)) else "unknown"
        facts.update(path=str(self.source), instance="ranks")
        if not self.ranks.names:
            facts["ranks"] = ",".join(map(str, results))
        return _table("ProfileInfo", [{"key": key, "value": value} for key, value in facts.items()])


@dataclass
class _Part:
    """One rank's tables, and how far its ids and times move."""

    rank: int
    folder: Path
    shift: Mapping[str, int]
    process_shift: int
    instance: str
    named: str
    time_shift: int = 0
    label: str = ""
    profiles: bool = False  # device profiles of several processes have the same names
    names: Any = None

    @property
    def facts(self) -> dict[str, str]:
        """What ProfileInfo says of it."""
        table = pq.read_table(self.folder / "ProfileInfo.parquet")
        return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def _parts(results: Mapping[int, IngestResult], folders: Mapping[int, Path], files: RankFiles) -> list[_Part]:
    parts = []
    shift = dict.fromkeys(("event", "track", "execution", "gap", *_COUNTED), 0)
    seen: set[int] = set()
    for rank, result in results.items():
        folder = folders[rank]
        info = pq.read_table(folder / "ProfileInfo.parquet").to_pylist()
        old = next((row["value"] for row in info if row["key"] == "instance"), "local")
        events = folder / "SystemProfileEvents.parquet"
        processes = set(pc.unique(pq.read_table(events, columns=["process_id"])["process_id"]).to_pylist())
        moved = rank * _PROCESS_STEP if seen & processes else 0
        seen |= {process + moved for process in processes}
        label = files.names.get(rank, f"rank {rank}")
        instance = label if old == "local" else f"{old} {label}"
        column = -1 if rank in files.names else rank
        shifted = files.shifts.get(rank, 0)
        parts.append(_Part(column, folder, dict(shift), moved, instance, old, shifted, label, files.sessions))
        rows = result.tables
        shift["event"] += rows.get("SystemProfileEvents", 0)
        shift["track"] += rows.get("Track", 0)
        shift["gap"] += rows.get("Gap", 0)
        if rows.get("Execution"):
            numbers = pq.read_table(folder / "Execution.parquet", columns=["execution_id"])["execution_id"]
            shift["execution"] += pc.max(numbers).as_py() + 1
        for table in _COUNTED:
            if rows.get(table):
                numbers = pq.read_table(folder / f"{table}.parquet", columns=["id"])["id"]
                shift[table] += (pc.max(numbers).as_py() or 0) + 1
    return parts


def _rows(table: str, parts: Sequence[_Part]) -> Iterator[pa.Table]:
    for part in parts:
        path = part.folder / f"{table}.parquet"
        if not path.exists():
            continue
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(65_536):
                yield _moved(table, pa.Table.from_batches([batch]), part)


def _moved(name: str, table: pa.Table, part: _Part) -> pa.Table:
    """A rank's rows with ids that are unique among all ranks."""
    for index, field in enumerate(table.schema):
        column, kind = table[field.name], _IDS[name].get(field.name)
        if name == "Flow" and field.name in _FLOW_ENDS:
            of_table = table[_FLOW_ENDS[field.name]].cast(pa.string()).to_pylist()
            shifts = pa.array([part.shift.get(_FLOW_KINDS.get(other, other), 0) for other in of_table], pa.int64())
            table = table.set_column(index, field, pc.add(column, shifts).cast(field.type))
        elif kind is not None:
            known = pc.greater_equal(column, 0)
            table = table.set_column(
                index, field, pc.if_else(known, pc.add(column, part.shift[kind]), column).cast(field.type)
            )
        elif field.name == "device_profile_name" and part.profiles:
            named = [f"{part.label} {text}" if text else text for text in column.to_pylist()]
            table = table.set_column(index, field.name, pa.array(named, pa.string()))
        elif name == "Slice" and field.name in ("name_id", "op_id"):
            table = table.set_column(index, field, pa.array(part.names[column.to_numpy()]).cast(field.type))
        elif field.name in _TIMES and part.time_shift:
            known = pc.greater_equal(column, 0)
            table = table.set_column(index, field, pc.if_else(known, pc.add(column, part.time_shift), column))
        elif field.name == "process_id" and part.process_shift:
            table = table.set_column(index, field, pc.add(column, part.process_shift).cast(field.type))
        elif field.name == "instance_id":
            table = table.set_column(index, field.name, pa.array([part.instance] * len(column)).dictionary_encode())
        elif field.name == "rank":
            table = table.set_column(index, field, pa.array(np.full(len(column), part.rank, np.int32)))
        elif name == "Track" and field.name in ("label", "group_label"):
            moved = [part.instance + text.removeprefix(part.named) for text in column.to_pylist()]
            table = table.set_column(index, field.name, pa.array(moved, pa.string()))
        elif pa.types.is_dictionary(field.type):
            # One type for all ranks, whatever their dictionaries.
            plain = column.cast(field.type.value_type).combine_chunks()
            table = table.set_column(index, field.name, plain.dictionary_encode())
    return table


def _span(parts: Sequence[_Part]) -> Iterator[pa.Table]:
    files = [(part, part.folder / "SystemProfileMetadata.parquet") for part in parts]
    rows = [(part, pq.read_table(file).to_pylist()[0]) for part, file in files if file.exists()]
    if not rows:
        return
    first = min(int(row["first_ts_ns"]) + part.time_shift for part, row in rows)
    last = max(int(row["last_ts_ns"]) + part.time_shift for part, row in rows)
    times = {"first_ts": iso_time(first), "last_ts": iso_time(last), "first_ts_ns": str(first), "last_ts_ns": str(last)}
    yield _table("SystemProfileMetadata", [{**rows[0][1], **times}])


def _table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=arrow_schema(name))


class _Worker:
    """A process that reads one trace after the other; `read` is called by one thread at a time."""

    def __init__(self) -> None:
        self.alive = True
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from neuronscope.readers.ranks import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(item for item in sys.path if item),
                "NEURONSCOPE_HELPERS": "0",  # the ranks share the cores already
            },
        )

    def read(self, path: Path, folder: Path) -> IngestResult | str:
        """The result of reading a trace into an empty folder, or in words why there is none."""
        requests, answers = self._process.stdin, self._process.stdout
        answer: object = None
        if requests is not None and answers is not None:
            try:
                pickle.dump((str(path), str(folder)), requests)
                requests.flush()
                answer = pickle.load(answers)
            except (OSError, EOFError, pickle.UnpicklingError):
                self.close()
                return f"{path}: the process that read it ended with code {self._process.returncode} (out of memory?)"
        return answer if isinstance(answer, IngestResult | str) else f"{path}: unreadable"

    def close(self) -> None:
        """End the process."""
        self.alive = False
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # it may be gone, with a request unread
                    pipe.close()
        self._process.wait()


def main() -> None:
    """Read traces: of each request on standard input a pickled result on standard output. Ends with its caller."""
    from neuronscope.readers import ingest

    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write among the answers
    requests: SimpleQueue[tuple[str, str]] = SimpleQueue()

    def listen() -> None:
        with contextlib.suppress(EOFError):
            while True:
                requests.put(pickle.load(sys.stdin.buffer))
        os._exit(0)  # also while a trace is read: nobody waits for it any more

    threading.Thread(target=listen, daemon=True).start()
    while True:
        try:
            answer: IngestResult | str = ingest(*requests.get())
        except (FormatError, OSError) as error:
            answer = str(error)
        pickle.dump(answer, answers, protocol=5)
        answers.flush()
