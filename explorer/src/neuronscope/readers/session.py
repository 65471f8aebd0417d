"""An emulator's session directory → `Trace`: trace.json, ntrace.pb, NTFF, host samples, joined by execution id."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neuronscope.formats import container, neff
from neuronscope.formats.container import ProfileFile, Session
from neuronscope.formats.errors import FormatError
from neuronscope.readers import chrome, ntff
from neuronscope.readers.exact import Int64
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.scratch import CHUNK_ROWS, Scratch
from neuronscope.readers.tables import named_table
from neuronscope.readers.texts import Texts
from neuronscope.readers.trace import DEVICE_ROLES, Buckets, Events, Role, Trace, concat_events, merged
from neuronscope.readers.wording import printable

__all__ = [
    "Found",
    "files_of",
    "find_session",
    "has_session",
    "is_session",
    "read_device",
    "read_session",
    "vendor_command",
]

_MARKS = ("trace_info.pb", "ntrace.pb")
_TRACES = ("*.json", "*.json.gz")


@dataclass(frozen=True)
class Found:
    """The session taken from a folder, and the others that were there too."""

    directory: Path
    others: tuple[Path, ...] = ()


def find_session(path: Path) -> Found:
    """A session directory, its parent `<instance>_pid_<pid>`, or a `profile_output_dir`: the session to read.

    Of several the newest (by folder name, which is its time stamp) is taken.

    Raises:
        FormatError: no session below `path`.
    """
    if is_session(path):
        return Found(path)
    below = [d for pattern in ("*", "*/*") for d in sorted(path.glob(pattern)) if d.is_dir() and is_session(d)]
    if below:
        below.sort(key=lambda d: (d.name, d.stat().st_mtime_ns))
        return Found(below[-1], tuple(below[:-1]))
    traces = [file for pattern in _TRACES for file in sorted(path.glob(pattern))]
    if len(traces) == 1:
        return Found(path)
    if traces:
        listed = ", ".join(file.name for file in traces[:5])
        raise FormatError(f"{path}: no session, but {len(traces)} JSON files ({listed}); name the one to open")
    raise FormatError(
        f"{path}: no profile here. Looked for: trace_info.pb or ntrace.pb in it, in <instance>_pid_<pid>/<time>/ "
        f"below it, or one trace .json[.gz]"
    )


def has_session(path: Path) -> bool:
    """Whether a session is in a folder or up to two levels below it."""
    return is_session(path) or any(is_session(d) for pattern in ("*", "*/*") for d in path.glob(pattern) if d.is_dir())


def is_session(path: Path) -> bool:
    """Whether a folder is itself a session; one recorded with DEVICE alone has timelines beside its trace.json."""
    try:
        return any((path / mark).is_file() for mark in _MARKS) or (
            (path / "trace.json").is_file() and any(path.glob("profile_nc_*.ntff"))
        )
    except PermissionError:  # a sub-folder of someone else
        return False


def recorded(directory: Path) -> tuple[int, int] | None:
    """When a session began and ended, ns since the epoch; None where none of its files tells."""
    for path in (*(directory / mark for mark in _MARKS), *sorted(directory.glob("*.ntff"))):
        try:
            told = container.read(path).session
        except (FormatError, OSError):
            continue
        return told.start_ns, told.stop_ns
    return None


def files_of(directory: Path) -> list[Path]:
    """Every file of the session."""
    return sorted(file for file in directory.iterdir() if file.is_file())


def read_session(found: Found, progress: Callable[[float], None] | None = None, scratch: Path | None = None) -> Trace:
    """Read a session directory.

    Raises:
        FormatError: damaged or foreign, with nothing readable beside it.
    """
    directory = found.directory
    if not is_session(directory):
        (only,) = [file for pattern in _TRACES for file in sorted(directory.glob(pattern))]
        return chrome.read_trace(only, progress, scratch)
    return _SessionReader(found, progress, scratch).trace()


def read_device(timeline: Path, executables: Sequence[Path]) -> Trace:
    """The device tables of one NTFF and its NEFFs, without events."""
    reader = _SessionReader(Found(timeline.parent), None, None)
    reader.device_files = ([timeline], list(executables))
    reader.profile = timeline.stem
    reader.file(timeline.name)
    reader.report.clear()
    trace = reader.empty()
    if reader.session is not None:
        reader.describe(trace, reader.session)
    reader.device_profiles(trace)
    trace.bytes_read = sum(file.stat().st_size for file in (timeline, *executables))
    return trace


def _beside(ours: Events, kept: Int64, others: Sequence[Events], scratch: Scratch) -> Iterator[Events]:
    """Rows of events that are in order of start, with others, in parts each in order and later than the one before."""
    count = -(-(len(kept) + sum(map(len, others))) // CHUNK_ROWS)
    sample = np.sort(np.concatenate([ours.start[kept[::16]], *(part.start[::16] for part in others)]))
    limits = np.unique(sample[np.arange(1, count) * len(sample) // count])
    bounds = [0, *np.searchsorted(scratch.take(ours.start, kept), limits).tolist(), len(kept)]
    held = [Buckets(np.arange(len(part)), part.start, limits, scratch) for part in others]
    for number, (low, high) in enumerate(itertools.pairwise(bounds)):
        found = [part.take(rows.rows(number)) for part, rows in zip(others, held, strict=True)]
        yield concat_events([ours.take(kept[low:high]), *found]).sorted_by_start()
        scratch.forget()


class _SessionReader:
    def __init__(self, found: Found, progress: Callable[[float], None] | None, scratch: Path | None) -> None:
        self.directory = found.directory
        self.scratch = scratch
        self.profile = self.directory.name
        self.device_files = (sorted(self.directory.glob("*.ntff")), sorted(self.directory.glob("*.neff")))
        self.progress = progress
        self.report: list[IngestWarning] = []
        self.bytes_read = 0
        self.session: Session | None = None
        if found.others:
            listed = ", ".join(path.name for path in found.others[-5:])
            message = (
                f"{len(found.others) + 1} sessions here; the newest, {self.directory.name}, is shown, not {listed}"
            )
            self.note("several_sessions", len(found.others), message, found.directory.name, "newest taken")

    def note(self, kind: str, count: int, message: str, file: str, action: str = "kept") -> None:
        self.report.append(IngestWarning(kind, count, -1, file, action, message))

    def file(self, name: str) -> ProfileFile | None:
        """One of our files; None when absent or unreadable, which is reported."""
        path = self.directory / name
        if not path.is_file():
            return None
        try:
            read = container.read(path)
        except FormatError as error:
            self.note("unreadable_file", 1, str(error), name, "left out")
            return None
        self.bytes_read += path.stat().st_size
        self.session = self.session or read.session
        return read

    def trace(self) -> Trace:
        info = self.file("trace_info.pb")
        ntrace = self.file("ntrace.pb")
        framework = self.framework()
        if self.session is None:  # recorded without RUNTIME: the device's timelines say what made the profile
            for timeline in self.device_files[0]:
                self.file(timeline.name)
        if info is None and ntrace is None and framework is None:
            files = ", ".join(row.file for row in self.report) or "nothing else"
            raise FormatError(
                f"{self.directory}: a session whose files are not ours ({files}), and no trace.json. If it is a raw "
                f"Neuron capture, {vendor_command(self.directory)}"
            )
        trace = framework or self.empty()
        if ntrace is not None:
            self.join(trace, ntrace)
        trace.report[:0] = self.report
        self.report = trace.report
        trace.bytes_read += self.bytes_read
        if self.session is not None:
            trace.format = "neuronscope session"
            self.describe(trace, self.session)
            self.host_samples(trace)
            self.device_profiles(trace)
        elif framework is not None:
            trace.report.append(
                IngestWarning(
                    "foreign_session",
                    1,
                    -1,
                    self.directory.name,
                    "partial",
                    "only trace.json is shown: runtime calls (nrta_*), hardware executions (nc_exec_running, cc_*), "
                    "instructions, DMA and on-chip memory are missing, because the session's other files are not "
                    f"ours. If it is a raw Neuron capture, {vendor_command(self.directory)}",
                )
            )
        return trace

    def framework(self) -> Trace | None:
        for name in ("trace.json", "trace.json.gz"):
            path = self.directory / name
            if path.is_file():
                try:
                    return chrome.read_trace(path, self.progress, self.scratch)
                except FormatError as error:
                    self.note("unreadable_file", 1, str(error), name, "left out")
        return None

    def empty(self) -> Trace:
        return Trace("neuronscope session", _no_events(), 0, 0)

    def join(self, trace: Trace, ntrace: ProfileFile) -> None:
        """Runtime and hardware events beside the framework's; rows of trace.json that repeat one are merged."""
        executions, events = ntrace.tables["executions"], ntrace.tables["events"]
        session = ntrace.session
        trace.executions = executions
        trace.neuron = True
        recorded = _events_of(events, session)
        hardware = recorded.execution_id[recorded.role == Role.DEVICE]
        ours = trace.events
        copies = executions.filter(pc.not_equal(executions["kind"].cast(pa.string()), "exec"))[
            "execution_id"
        ].to_numpy()
        repeats = np.isin(ours.role, [*DEVICE_ROLES]) & (ours.execution_id >= 0)
        repeats &= np.isin(ours.execution_id, np.union1d(hardware, copies))
        trace.merged += int(repeats.sum())
        known = executions["execution_id"].to_numpy()
        foreign = np.isin(ours.role, [*DEVICE_ROLES]) & (ours.execution_id >= 0) & ~np.isin(ours.execution_id, known)
        if foreign.any():
            text = f"{int(foreign.sum())} executions of trace.json are not in ntrace.pb; they are drawn, not counted"
            self.note("unmatched_execution", int(foreign.sum()), text, "trace.json")
        others = [part for part in (recorded, _transfers_of(executions, session)) if len(part)]
        if trace.ordered and len(ours) + len(recorded) > CHUNK_ROWS:
            trace.events = merged(_beside(ours, np.flatnonzero(~repeats), others, trace.scratch), trace.scratch)
        else:
            left = ours.take(~repeats)
            trace.events = concat_events([part for part in (left, *others) if len(part)] or [ours])
            trace.ordered = False
        trace.events_in_file += len(recorded)

    def describe(self, trace: Trace, session: Session) -> None:
        trace.instance = session.instance_id or trace.instance
        trace.dropped = sum(session.dropped_events.values())
        facts = {
            "emulated": "true" if session.emulated else "false",
            "target": session.target,
            "target_hash": session.target_hash,
            "model_version": session.model_version,
            "producer": f"{session.producer} {session.producer_version}".strip(),
            "lnc": str(session.lnc),
            "modes": " ".join(session.modes),
            "host_model": session.host_model,
            "unfinished_executions": str(session.unfinished_executions),
            "start_ns": str(session.start_ns),
            "stop_ns": str(session.stop_ns),
            "session_id": str(session.session_id),
            "device_name": f"AWS {session.target}" if session.target else "AWS Neuron",
            **{f"device_cost_ns.{key}": str(value) for key, value in sorted(session.device_cost_ns.items())},
            **{f"device_cost_status.{key}": value for key, value in sorted(session.device_cost_status.items())},
        }
        trace.facts.update(facts)
        if trace.recording is None and session.stop_ns > session.start_ns:
            trace.recording = (session.start_ns, session.stop_ns)
        if trace.dropped:
            cores = ", ".join(f"NC{core}: {count}" for core, count in sorted(session.dropped_events.items()) if count)
            text = f"{trace.dropped} events lost to a full ring buffer ({cores}). Raise max_events_per_nc"
            trace.report.append(IngestWarning("dropped", trace.dropped, -1, "ntrace.pb", "lost", text))
        if session.unfinished_executions:
            text = (
                f"{session.unfinished_executions} executions had not ended when the capture stopped and are not in the "
                f"profile. Call torch.neuron.synchronize() inside the profiled loop"
            )
            row = IngestWarning("unfinished_executions", session.unfinished_executions, -1, "ntrace.pb", "lost", text)
            trace.report.append(row)

    def host_samples(self, trace: Trace) -> None:
        instance = trace.instance
        cpu = self.file("cpu_util.pb")
        if cpu is not None and (rows := cpu.tables["cpu_util"]).num_rows:
            trace.tables["CpuUsage"] = named_table(
                "CpuUsage",
                {
                    "timestamp": rows["timestamp_ns"],
                    "util_percent": rows["util_percent"].cast(pa.float32()),
                    "cpu_id": rows["cpu_id"].cast(pa.string()),
                    "instance_id": [instance] * rows.num_rows,
                },
            )
        memory = self.file("host_mem.pb")
        if memory is not None and (rows := memory.tables["host_mem"]).num_rows:
            used, total = rows["used_bytes"].to_numpy(), rows["total_bytes"].to_numpy()
            trace.tables["HostMemUsage"] = named_table(
                "HostMemUsage",
                {
                    "timestamp": rows["timestamp_ns"],
                    "used_bytes": used,
                    "used_percent": (100.0 * used / np.maximum(total, 1)).astype(np.float32),
                    "instance_id": [instance] * rows.num_rows,
                },
            )

    def device_profiles(self, trace: Trace) -> None:
        """NTFF files: each NEFF's timeline laid out at each of its executions."""
        read = [(path, self.file(path.name)) for path in self.device_files[0]]
        found = [(path, file) for path, file in read if file is not None and file.kind == "ntff"]
        self.neffs(trace)
        cores = [core_of(path) for path, _ in found]
        try:
            ntff.add_device_tables(trace, [file for _, file in found], cores, self.session, self.profile)
        except (ArithmeticError, LookupError, ValueError, pa.ArrowException) as error:  # tables that contradict another
            kind = type(error).__name__
            text = (
                f"the NTFF's tables contradict one another; no device tables ({kind}: {' '.join(str(error).split())})"
            )
            trace.report.append(IngestWarning("unreadable_file", 1, -1, "*.ntff", "left out", text))

    def neffs(self, trace: Trace) -> None:
        """Names of the executables; a NTFF without its NEFF is said so."""
        names = {}
        headers = []
        for path in self.device_files[1]:
            try:
                read = neff.read(path)
            except (FormatError, KeyError, ValueError, OSError) as error:
                trace.report.append(IngestWarning("unreadable_file", 1, -1, path.name, "left out", str(error)))
                continue
            if read.hash not in names:
                headers.append(self.header(path, read))
            names[read.hash] = str(read.info.get("name", ""))
            if re.search(r"\d{5,}", path.name) and read.hash not in path.name:
                text = f"{path.name}: its content has hash {read.hash}; the file was renamed or replaced"
                trace.report.append(IngestWarning("neff_hash", 1, -1, path.name, "kept", text))
        for key, value in names.items():
            trace.facts[f"neff.{key}"] = value
        if headers:
            columns = {key: [row[key] for row in headers] for key in headers[0]}
            trace.tables["NeffHeader"] = named_table("NeffHeader", columns)

    def header(self, path: Path, read: neff.Neff) -> dict[str, Any]:
        """What a NEFF's header says, as the published table has it."""
        major, minor = neff.VERSION
        size = path.stat().st_size
        return {
            "network_name": str(read.info.get("name", "")),
            "hash": read.hash,
            "header_size": neff.HEADER_BYTES,
            "data_size": size - neff.HEADER_BYTES,
            "major_version": major,
            "minor_version": minor,
            "build_version": str(read.info.get("compiler_version", "")) or None,
            "neuroncore_count": 1,
            "logical_neuroncore_count": 1,
            "pcore_count_per_lnc": self.session.lnc if self.session is not None else None,
        }


def core_of(path: Path) -> int:
    """The logical NeuronCore in a NTFF's name, profile_nc_<n>_session_<k>.ntff; 0 where it has another."""
    match = re.match(r"profile_nc_(\d+)_", path.name)
    return int(match[1]) if match else 0


def vendor_command(directory: Path) -> str:
    """What to run on a directory of the vendor's tools, and where to go on."""
    place = shlex.quote(printable(directory))
    return (
        f"run on the instance `neuron-explorer view -d {place} --ingest-only --data-path OUT`, then here "
        f"`neuronscope view OUT`"
    )


def _events_of(table: pa.Table, session: Session) -> Events:
    source = table["source"].cast(pa.string()).to_pylist()
    hardware = np.array([name == "neuron_hw" for name in source], np.bool_)
    count = table.num_rows
    column = {
        name: table[name].to_numpy().astype(np.int64)
        for name in ("start_ns", "end_ns", "thread_id", "nc_idx", "pcore_idx", "execution_id", "bytes")
    }
    names = table["name"].cast(pa.string()).combine_chunks()
    role = np.where(hardware, Role.DEVICE, Role.NRT).astype(np.int8)
    args = [f'{{"bytes":{size}}}'.encode() if size > 0 else b"" for size in column["bytes"].tolist()]
    none = np.full(count, -1, np.int64)
    return Events(
        role=role,
        name=names.dictionary_encode(),
        category=pa.array([""] * count, pa.string()).dictionary_encode(),
        start=column["start_ns"],
        end=np.maximum(column["end_ns"], column["start_ns"]),
        pid=np.full(count, session.process_id, np.int64),
        tid=column["thread_id"],
        device=column["nc_idx"],
        stream=none,
        nc=column["nc_idx"],
        pcore=np.where(hardware, column["pcore_idx"], -1),
        correlation=none,
        external_id=none,
        execution_id=column["execution_id"],
        bytes=column["bytes"],
        args=Texts.of(pa.array(args, pa.binary())),
    )


def _transfers_of(executions: pa.Table, session: Session) -> Events:
    """Device intervals of the copies: the file keeps them among the executions, without events of their own."""
    kind = executions["kind"].cast(pa.string()).to_pylist()
    table = executions.filter(pa.array([k != "exec" for k in kind], pa.bool_()))
    count = table.num_rows
    if not count:
        return _no_events()
    core = table["nc_idx"].to_numpy().astype(np.int64)
    none = np.full(count, -1, np.int64)
    size = np.maximum(table["bytes_read"].to_numpy(), table["bytes_written"].to_numpy())
    return Events(
        role=np.full(count, Role.MEMCPY, np.int8),
        name=table["kind"].cast(pa.string()).combine_chunks().dictionary_encode(),
        category=pa.array([""] * count, pa.string()).dictionary_encode(),
        start=table["start_ns"].to_numpy().astype(np.int64),
        end=table["end_ns"].to_numpy().astype(np.int64),
        pid=np.full(count, session.process_id, np.int64),
        tid=np.zeros(count, np.int64),
        device=core,
        stream=table["stream_id"].to_numpy().astype(np.int64),
        nc=core,
        pcore=none,
        correlation=none,
        external_id=none,
        execution_id=table["execution_id"].to_numpy().astype(np.int64),
        bytes=size,
        args=Texts.of(pa.array([f'{{"bytes":{n}}}'.encode() for n in size.tolist()], pa.binary())),
    )


def _no_events() -> Events:
    none = np.zeros(0, np.int64)
    text = pa.array([], pa.string()).dictionary_encode()
    columns = dict.fromkeys(Events.__dataclass_fields__, none)
    return Events(
        **{
            **columns,
            "role": np.zeros(0, np.int8),
            "name": text,
            "category": text,
            "args": Texts.of(pa.array([], pa.binary())),
        }
    )
