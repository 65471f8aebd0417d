"""Kineto and other chrome-format traces → `Trace`: roles by category, B/E and async pairs, arrows, header facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neuronscope.readers import json_events, pairs, places
from neuronscope.readers.exact import MAX_NS, Bools, Int64, int64, longest, too_long
from neuronscope.readers.file_rows import FileRows
from neuronscope.readers.json_events import Columns, Document, Fault, Source
from neuronscope.readers.keys import codes_of
from neuronscope.readers.narrow import Dictionary, constant, narrow, rows_of
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.scratch import CHUNK_ROWS, Scratch, ranges, rows_where
from neuronscope.readers.texts import Texts
from neuronscope.readers.trace import TEXT_PID, ArrowEnds, Buckets, Events, Int8, Role, Trace, concat_events, merged
from neuronscope.readers.wording import printable

__all__ = ["read_trace"]

_ROLES = {
    "cpu_op": Role.OP,
    "operator": Role.OP,
    "user_annotation": Role.ANNOTATION,
    "python_function": Role.PYTHON,
    "privateuse1_runtime": Role.DISPATCH,
    "privateuse1_driver": Role.DRIVER,
    "kernel": Role.DEVICE,
    "concurrent_kernel": Role.DEVICE,
    "gpu_memcpy": Role.MEMCPY,
    "memcpy": Role.MEMCPY,
    "gpu_memset": Role.MEMSET,
    "memset": Role.MEMSET,
    "gpu_user_annotation": Role.DEVICE_ANNOTATION,
    "mtia_ccp_events": Role.DEVICE,
    "cuda_sync": Role.DEVICE_ANNOTATION,  # a stream waits: drawn on the device, never its time
    "cuda_event": Role.DEVICE_ANNOTATION,
    "mtia_insight": Role.DEVICE_ANNOTATION,
    "hpu_op": Role.RUNTIME,
    "overhead": Role.OVERHEAD,
    "runtime": Role.RUNTIME,
    "driver": Role.RUNTIME,
    "trace": Role.SPAN,
}
_EXPORTED = {  # categories of our export: kinds of tracks
    "framework": Role.OP,
    "stream": Role.DRIVER,
    "runtime": Role.RUNTIME,
    "device": Role.DEVICE,
    "copy": Role.MEMCPY,
    "engine": Role.ENGINE,
    "queue": Role.ENGINE,
}
_RUNTIME = re.compile(r"(cuda|hip|roc|xpu|mtia|hpu|npu|glow|musa|maca)\w*_(runtime|driver)$")
_KNOWN = frozenset(_ROLES) | {"ac2g", "fwdbwd", "cpu_instant_event"}
_INSTANTS = ("i", "I", "R", "n", "p", "C", "P", "N", "O", "D", "c", "v", "V", "(", ")")
_TIMED = ("X", "B", "E", "b", "e", "S", "F", "T", "s", "t", "f", *_INSTANTS)
_IN_NS = 2  # `has_ts` of a time in nanoseconds
_DEVICE_ROWS = (Role.DEVICE, Role.MEMCPY, Role.MEMSET, Role.DEVICE_ANNOTATION, Role.DRIVER)
_SAMPLED = 256  # of as many times one is looked at to find ranges of time with equal numbers of events
_ZERO_TIME_NS = 86_400 * 10**9  # a time of 0 is no time when all others are later than this
_UNKNOWN_NS = (2**32 - 1) * 1000
_MESSAGES = {
    "second_document": "another JSON document follows the first one in this file; its events are not shown",
    "truncated": "the file ends inside an event; that event is lost",
    "truncated_gzip": "the compressed file is cut short; what was readable is shown",
    "damaged_gzip": "the compressed data are damaged; what was readable is shown",
    "gzip_members": "several gzip members in one file; all are read",
    "gzip_trailer": "bytes after the end of the gzip data are ignored",
    "no_list": "no list around the events; all that follow one another are read",
    "no_closing_bracket": "the list of events has no closing bracket; all its events are read",
    "trailing_bytes": "bytes after the end of the document are ignored",
    "skipped": "events beyond repair are left out",
    "garbage": "bytes between events are ignored",
    "damaged_header": "a header field can't be read",
    "utf16": "the text is not UTF-8",
    "too_deep": "events nested too deeply are left out",
    "not_an_event": "the list of events holds other values, which are left out",
}
_NOTES = frozenset({"no_list", "no_closing_bracket", "utf16", "gzip_members"})


def read_trace(path: Path, progress: Callable[[float], None] | None = None, scratch: Path | None = None) -> Trace:
    """Read one .json, .json.gz or .json.zst file; `scratch` as in `json_events.parse`.

    Raises:
        FormatError: no trace events in it.
        OSError: it cannot be read.
    """
    source = json_events.load(path, scratch)
    columns = Scratch(scratch)
    document = json_events.parse(source, str(path), progress, columns)
    document.faults = {**source.faults, **document.faults}
    return _Chrome(document, printable(path, name_only=True), source, columns).trace()


class _Numbers:
    """Process or thread ids of rows as int64, from one number per distinct text."""

    def __init__(self, table: Int64, codes: npt.NDArray[Any]) -> None:
        self._table = table
        self._codes = codes

    def __getitem__(self, rows: Any) -> Any:
        return self._table[self._codes[rows]]


class _Chrome:
    """One document on its way to a trace."""

    def __init__(self, document: Document, file: str, source: Source, scratch: Scratch) -> None:
        self.document = document
        self.scratch = scratch
        self.columns: Columns = document.columns
        self.file = file
        self.source = source
        self.report: list[IngestWarning] = []
        self.mended = np.zeros(len(self.columns), np.bool_)
        self.mended[document.mended] = True
        self.skipped = document.skipped
        header = document.header
        base = int64(header.get("baseTimeNanoseconds", 0), 0)
        self.base = base if 0 <= base <= MAX_NS else 0
        self.labels: dict[int, str] = {}
        self.pid = self._numbers(self.columns.pid, self.labels)
        self.tid = self._numbers(self.columns.tid, {})
        self.ph = self.columns.ph.dictionary.to_pylist()
        self.ph_code = self.columns.ph.indices.to_numpy()
        self.usable = np.ones(len(self.columns), np.bool_)
        self.check_times()

    def rows(self, *phases: str) -> Int64:
        """Usable rows of the given phases, in file order."""
        wanted = np.array([phase in phases for phase in self.ph], np.bool_)
        if not wanted.any():
            return np.zeros(0, np.int32)
        return self.where(lambda low, high: wanted[self.ph_code[low:high]] & self.usable[low:high])

    def where(self, chosen: Callable[[int, int], Bools]) -> Int64:
        """See `rows_where`."""
        return rows_where(len(self.columns), chosen)

    def lose(self, kind: str, rows: Int64, what: str) -> None:
        """Leave rows out and say so."""
        self.skipped += len(rows)
        self.mended[rows] = False
        self.note(kind, len(rows), f"{_events(len(rows))} {what} left out", "skipped", self.offset(rows))

    def empty(self, rows: Int64) -> Bools:
        """Which of the rows are `{}`, as far as few enough are without a phase to look."""
        texts = [
            self.source.data[at : at + 64] if (at := self.document.offset_of(row)) >= 0 else b"" for row in rows[:64]
        ]
        told = [re.match(rb"\{\s*\}", text) is not None for text in texts]
        return np.array(told + [False] * (len(rows) - len(told)), np.bool_)

    def offset(self, rows: Int64) -> int:
        """Where the first of the rows stands in the file."""
        return self.document.offset_of(int(rows.min())) if len(rows) else -1

    def check_times(self) -> None:
        """Events whose phase needs a time and that have none that can be believed are not usable."""
        columns = self.columns
        if not len(columns):
            return
        phases = np.array([phase in _TIMED for phase in self.ph], np.bool_)
        has_ts, ts = columns.has_ts, columns.ts

        def wanted(low: int, high: int) -> Bools:
            return phases[self.ph_code[low:high]]

        untimed = self.where(lambda low, high: wanted(low, high) & (has_ts[low:high] == 0))
        nanoseconds = self.where(lambda low, high: wanted(low, high) & (has_ts[low:high] == _IN_NS))
        none = self.where(lambda low, high: wanted(low, high) & (has_ts[low:high] > 0) & (ts[low:high] == 0))
        if len(none):
            later = [
                int(ts[low:high][wanted(low, high) & (has_ts[low:high] > 0) & (ts[low:high] != 0)].min(initial=2**62))
                for low, high in ranges(len(self.columns))
            ]
            if not _ZERO_TIME_NS <= min(later) < 2**62:
                none = none[:0]
        self.lose("no_timestamp", untimed, "without a readable timestamp")
        self.lose("zero_timestamp", none, "at time 0 while all others are more than a day later")
        self.usable[untimed] = self.usable[none] = False
        self.mended[nanoseconds] = True
        self.note(
            "nanosecond_times",
            len(nanoseconds),
            f"{_events(len(nanoseconds))} with times that are in nanoseconds, not microseconds: read as such",
            "repaired",
            self.offset(nanoseconds),
        )

    def note(self, kind: str, count: int, message: str, action: str = "kept", offset: int = -1) -> None:
        if count:
            self.report.append(IngestWarning(kind, int(count), offset, self.file, action, message))

    def trace(self) -> Trace:
        for kind, fault in self.document.faults.items():
            self.note_fault(kind, fault)
        self.process_names: dict[int, str] = {}
        self.thread_names: dict[tuple[int, int], str] = {}
        self.metadata()
        self.places = places.of_processes(self.process_names, self.labels)
        complete = self.complete()
        paired = self.pairs()
        instants = self.instants()
        events = self.in_order(complete, paired, instants)
        arrows = self.arrows()
        file_rows = FileRows(self.columns, self.pid, self.tid, self.base, self.document.offset_of)
        file_rows.keep(self.rows("M"))
        if arrows is not None and arrows.row is not None:
            file_rows.keep(file_rows.with_arguments(arrows.row))
        unknown = {*self.ph} - {"M", "", *_TIMED}
        listed = ", ".join(" ".join(phase.split())[:12] for phase in sorted(unknown)[:5])
        self.lose("unknown_phase", self.rows(*unknown), f"of unknown phase ({listed})")
        blank = self.rows("")
        filler = blank[self.empty(blank)]
        self.note("filler", len(filler), "empty objects among the events, as some writers end their list")
        self.lose("no_phase", np.setdiff1d(blank, filler), "without a phase (ph)")
        trace = Trace(
            format=self.format(),
            events=events,
            ordered=True,
            scratch=self.scratch,
            events_in_file=self.document.events_in_file,
            bytes_read=self.document.bytes_read,
            arrows=arrows,
            process_names=self.process_names,
            thread_names=self.thread_names,
            process_labels=self.labels,
            report=self.report,
            file_rows=file_rows,
            repaired=int(self.mended.sum()),
            skipped=self.skipped,
        )
        self.describe(trace)
        return trace

    def note_fault(self, kind: str, fault: Fault) -> None:
        if kind.startswith("repaired: "):
            self.note(
                "repaired", fault.count, f"{fault.detail} in {_events(fault.count)}; mended", "repaired", fault.offset
            )
            return
        action = "kept" if kind in _NOTES else "partial" if kind in ("truncated_gzip", "damaged_gzip") else "skipped"
        self.note(kind, fault.count, f"{_MESSAGES.get(kind, kind)} ({fault.detail})", action, fault.offset)

    def format(self) -> str:
        header = self.document.header
        if "schemaVersion" in header or _KNOWN & {c.lower() for c in self.columns.cat.dictionary.to_pylist()}:
            return "torch.profiler trace"
        return "chrome trace"

    # Intervals

    def complete(self) -> Int64:
        """The X rows; what has to be taken for another duration is reported."""
        rows = self.rows("X")
        found: dict[str, list[Int64]] = {name: [rows[:0]] for name in ("negative", "none", "unknown", "endless")}
        total, zero = 0.0, [rows[:0]]
        for low, high in ranges(len(rows)):
            some = rows[low:high]
            duration = self.columns.dur[some]
            found["negative"].append(some[duration < 0])
            found["none"].append(some[~self.columns.has_dur[some]])
            found["unknown"].append(some[duration == _UNKNOWN_NS])
            total += float(self.durations(some).sum(dtype=np.float64))
        self.longest = longest(total, len(rows))
        for low, high in ranges(len(rows)):
            some = rows[low:high]
            found["endless"].append(some[self.durations(some) > self.longest])
            zero.append(some[self.columns.correlation[some] == 0])
        self.mend("negative_duration", np.concatenate(found["negative"]), "with a negative duration")
        self.mend("no_duration", np.concatenate(found["none"]), "without a readable duration")
        unknown = "with the duration 2^32 - 1, which stands for unknown"
        self.mend("no_duration", np.concatenate(found["unknown"]), unknown)
        self.mend("endless", np.concatenate(found["endless"]), "lasting months")
        self.note_zero(np.concatenate(zero))
        return rows

    def durations(self, rows: Int64) -> Int64:
        """Durations, 0 for those that can't be meant."""
        duration = self.columns.dur[rows].astype(np.int64)
        duration[(duration < 0) | (duration == _UNKNOWN_NS)] = 0
        return duration

    def in_order(self, complete: Int64, paired: Events | None, instants: Int64) -> Events:
        """All intervals and instants in order of start, some at once."""
        count = len(complete) + len(instants) + (len(paired) if paired is not None else 0)
        if count <= CHUNK_ROWS:
            return concat_events(self.parts(complete, paired, instants)).sorted_by_start()
        return merged(self.buckets(complete, paired, instants, -(-count // CHUNK_ROWS)), self.scratch)

    def buckets(self, complete: Int64, paired: Events | None, instants: Int64, count: int) -> Iterator[Events]:
        """About `count` parts of the events, each later than the one before."""
        times, drawn = self.columns.ts, None
        if paired is not None and len(paired):
            paired = paired.sorted_by_start()
            drawn = paired.start - self.base
        sample = [
            times[complete[::_SAMPLED]],
            times[instants[::_SAMPLED]],
            (drawn if drawn is not None else times[:0])[::_SAMPLED],
        ]
        sampled = np.sort(np.concatenate(sample))
        limits = np.unique(sampled[np.arange(1, count) * len(sampled) // count])
        of_complete, of_instants = (Buckets(rows, times, limits, self.scratch) for rows in (complete, instants))
        cuts = [0, *(np.searchsorted(drawn, limits).tolist() if drawn is not None else [0] * len(limits))]
        cuts.append(len(drawn) if drawn is not None else 0)
        for number in range(len(limits) + 1):
            some = paired.take(np.arange(cuts[number], cuts[number + 1])) if paired is not None else None
            yield concat_events(self.parts(of_complete.rows(number), some, of_instants.rows(number)))
            self.scratch.forget()

    def parts(self, complete: Int64, paired: Events | None, instants: Int64) -> list[Events]:
        """Some of each kind as events."""
        start = self.columns.ts[complete] + self.base
        duration = self.durations(complete)
        duration[duration > self.longest] = 0
        found = [self.events(complete, start, start + duration, self.roles(complete))]
        if paired is not None:
            found.append(paired)
        if len(instants):
            at = self.columns.ts[instants] + self.base
            found.append(self.events(instants, at, at, np.full(len(instants), Role.INSTANT, np.int8)))
        return found

    def mend(self, kind: str, rows: Int64, what: str) -> None:
        """Report rows whose duration is taken for none."""
        self.mended[rows] = True
        message = f"{_events(len(rows))} {what}: shown with none, counted in no total"
        self.note(kind, len(rows), message, "repaired", self.offset(rows))

    def roles(self, rows: Int64) -> Int8:
        categories = self.columns.cat.dictionary.to_pylist()
        table = np.array([_role(category) for category in categories] or [Role.HOST], np.int8)
        origin = self.document.header.get("neuronscope")
        if isinstance(origin, dict) and "export" in origin:  # ours, without the tables it carried
            table = np.array([_EXPORTED.get(category, Role.HOST) for category in categories] or [Role.HOST], np.int8)
        roles = table[self.columns.cat.indices.to_numpy()[rows]]
        unlisted = [bool(c) and _role(c) == Role.HOST and c.lower() not in _KNOWN for c in categories]
        if any(unlisted):  # a category of another device: its rows say on which device and stream they ran
            table_of_devices = np.array([_device_role(category) for category in categories], np.int8)
            there = np.array(unlisted, np.bool_)[self.columns.cat.indices.to_numpy()[rows]]
            there &= (self.columns.device[rows] >= 0) & (self.columns.stream[rows] >= 0)
            roles[there] = table_of_devices[self.columns.cat.indices.to_numpy()[rows[there]]]
        for pid, place in self.places.items():
            roles[(self.pid[rows] == pid) & (roles == Role.HOST)] = place.role
        names = self.columns.name.dictionary.to_pylist()
        regions = [i for i, name in enumerate(names) if name.startswith("Torch-Compiled Region")]
        if regions:
            here = np.isin(self.columns.name.indices.to_numpy()[rows], regions) & (roles == Role.ANNOTATION)
            roles[here] = Role.OP
        return roles

    def events(self, rows: Int64, start: Int64, end: Int64, roles: Int8) -> Events:
        columns = self.columns
        index = pa.array(rows)
        device_row = np.isin(roles, _DEVICE_ROWS)
        device, stream = columns.device[rows], columns.stream[rows]
        pid, tid = self.pid[rows], self.tid[rows]
        where, lane = pid, tid
        for number, place in self.places.items():
            here = pid == number
            if place.device is not None:
                where = np.where(here, place.device, where)
            elif place.role in _DEVICE_ROWS:  # a thread per device
                where, lane = np.where(here, tid, where), np.where(here, 0, lane)
        device = np.where(device_row & (device < 0), where, device)
        stream = np.where(device_row & (stream < 0), lane, stream)
        none = constant(-1, len(rows))
        return Events(
            role=roles,
            name=columns.name.take(index),
            category=columns.cat.take(index),
            start=start,
            end=end,
            pid=pid,
            tid=tid,
            device=narrow(device),
            stream=narrow(stream),
            nc=none,
            pcore=none,
            correlation=self.correlations(rows),
            external_id=rows_of(columns.external_id, rows),
            execution_id=rows_of(columns.execution_id, rows),
            bytes=rows_of(columns.bytes, rows),
            args=columns.args.take(rows),
        )

    def correlations(self, rows: Int64) -> Int64:
        """Correlation ids; 0 is what tracers write where they have none, so it links nothing."""
        found = np.array(rows_of(self.columns.correlation, rows))
        found[found == 0] = -1
        return found

    def note_zero(self, rows: Int64) -> None:
        """Report those of the rows, all with correlation 0, that are on devices."""
        there = rows[np.isin(self.roles(rows), _DEVICE_ROWS)]
        text = (
            f"{_events(len(there))} on devices with correlation 0, which stands for none: linked by other ids if at all"
        )
        self.note("correlation_zero", len(there), text, "kept", self.offset(there))

    def pairs(self) -> Events | None:
        """B/E rows by thread and async b/e rows by category and id as intervals."""
        columns = self.columns
        threads = self.rows("B", "E")
        ids = self.rows("b", "e", "S", "F")
        if not len(threads) and not len(ids):
            return None
        by_thread = pairs.match_by_thread(
            self._ends(threads, zip(self.pid[threads].tolist(), self.tid[threads].tolist(), strict=True))
        )
        scopes = self.scopes(ids)
        unnamed = int(sum(not text for text, _ in scopes))
        self.note("no_async_id", unnamed, f"{_events(unnamed)} that begin or end an interval by id have none", "kept")
        category = columns.cat.indices.to_numpy()[ids].tolist()
        by_id = pairs.match_by_id(self._ends(ids, zip(category, scopes, strict=True)))
        stray = np.array(by_thread.stray + by_id.stray, np.int64)
        self.lose("unmatched_pair", stray, "that end an interval which never began:")
        open_rows = by_thread.unfinished + by_id.unfinished
        self.mend("unfinished", np.array(open_rows, np.int64), "that begin an interval which never ends")
        rows = np.array(by_thread.begins + by_id.begins + open_rows, np.int64)
        last = np.array(by_thread.ends + by_id.ends + open_rows, np.int64)
        start, end = columns.ts[rows] + self.base, columns.ts[last] + self.base
        roles = self.roles(rows)
        roles[np.isin(rows, ids)] = Role.ASYNC
        end = np.maximum(start, end)
        unlikely = too_long(start, end)
        self.mend("endless", rows[unlikely], "lasting months")
        found = self.events(rows, start, np.where(unlikely, start, end), roles)
        there = rows[np.isin(roles, _DEVICE_ROWS) & (columns.correlation[rows] == 0)]
        self.note_zero(there)
        of_ends = columns.args.read(last[: len(last) - len(open_rows)]).to_pylist()
        if any(len(text) > 2 for text in of_ends):  # more than {}
            of_ends += [b""] * len(open_rows)
            found = replace(found, args=Texts.of(pairs.merge_arguments(columns.args.read(rows), of_ends)))
        return found

    def scopes(self, rows: Int64) -> list[tuple[bytes, Hashable]]:
        """Of async rows the id and where it holds: `id` and `id2.global` everywhere, `id2.local` and none in a process.

        An `id` may also have a `scope` of its own; both are members that `tighten` keeps among the arguments.
        """
        found: list[tuple[bytes, Hashable]] = []
        texts, pids = self.columns.ids.read(rows).to_pylist(), self.pid[rows].tolist()
        for text, pid, args in zip(texts, pids, self.columns.args.read(rows).to_pylist(), strict=True):
            more = _object(args).get("event") if b'"id2"' in args or b'"scope"' in args else None
            more = more if isinstance(more, dict) else {}
            held = more.get("id2")
            ids: dict[str, Any] = held if isinstance(held, dict) else {}
            scope = str(more.get("scope", ""))
            if not text and "local" in ids:
                found.append((str(ids["local"]).encode(errors="replace"), (pid, scope)))
            elif not text and "global" in ids:
                found.append((str(ids["global"]).encode(errors="replace"), scope))
            else:
                found.append((text.strip(b'"'), scope if text else pid))  # 148 and "148" are the same
        return found

    def _ends(self, rows: Int64, keys: Iterable[Hashable]) -> Iterator[tuple[int, bool, Hashable, str]]:
        """What `pairs` takes of the rows, in order of time."""
        names = self.columns.name.dictionary.to_pylist()
        code = self.columns.name.indices.to_numpy()[rows].tolist()
        begins = np.array([phase in ("B", "b", "S") for phase in self.ph], np.bool_)[self.ph_code[rows]].tolist()
        listed, numbers = list(keys), rows.tolist()
        for at in np.argsort(self.columns.ts[rows], kind="stable").tolist():
            yield numbers[at], begins[at], listed[at], names[code[at]]

    def instants(self) -> Int64:
        """Rows of instants and counters."""
        rows = self.rows(*_INSTANTS)
        counters = len(self.rows("C"))
        self.note("instants", len(rows) - counters, "instant events kept in SystemProfileEvents, not drawn")
        self.note("counters", counters, "counter samples kept in SystemProfileEvents, not drawn")
        return rows

    # Arrows and facts

    def arrows(self) -> ArrowEnds | None:
        rows = self.rows("s", "t", "f")
        if not len(rows):
            return None
        columns, scratch = self.columns, self.scratch
        self.note("flow_ends", len(rows), "ends of arrows")
        phases = np.array([{"s": 0, "t": 1, "f": 2}.get(phase, 0) for phase in self.ph], np.int8)
        category, names = columns.cat.dictionary.to_pylist(), columns.name.dictionary.to_pylist()
        kinds, of_kind = scratch.column(), Dictionary()
        phase, ts, pid, tid = (scratch.column() for _ in range(4))
        for low, high in ranges(len(rows)):
            some = rows[low:high]
            phase.append(phases[self.ph_code[some]])
            ts.append(columns.ts[some] + self.base)
            pid.append(self.pid[some])
            tid.append(self.tid[some])
            pair = codes_of(columns.cat.indices.to_numpy()[some], columns.name.indices.to_numpy()[some])
            _, first = np.unique(pair, return_index=True)
            texts = [
                category[columns.cat.indices[row].as_py()] or names[columns.name.indices[row].as_py()]
                for row in some[first].tolist()
            ]
            kinds.append(of_kind.codes(pa.DictionaryArray.from_arrays(pa.array(pair), pa.array(texts))))
        key, number = self.arrow_ids(rows)
        return ArrowEnds(
            phase=phase.finish(),
            key=key,
            kind=of_kind.array(kinds.finish()),
            ts=ts.finish(),
            pid=pid.finish(),
            tid=tid.finish(),
            number=number,
            row=rows,
        )

    def arrow_ids(self, rows: Int64) -> tuple[Int64, Int64]:
        """Of each arrow end a number equal for equal ids, and the id as number (-1 if it is none)."""
        key = self.scratch.column(np.int64)
        try:
            for low, high in ranges(len(rows)):
                key.append(pc.cast(self.columns.ids.read(rows[low:high]).cast(pa.string()), pa.int64()).to_numpy())
                self.columns.ids.forget()
            numbers = key.finish()
            return numbers, numbers
        except pa.ArrowInvalid:
            pass  # ids in quotes, or too large for 64 bits: 148 and "148" are the same
        distinct: dict[bytes, int] = {}
        codes, values = self.scratch.column(np.int64), self.scratch.column(np.int64)
        for low, high in ranges(len(rows)):
            ids = self.columns.ids.read(rows[low:high]).dictionary_encode()
            texts = [raw.strip(b'"') for raw in ids.dictionary.to_pylist()]
            indices = ids.indices.to_numpy()
            codes.append(np.array([distinct.setdefault(text, len(distinct)) for text in texts], np.int64)[indices])
            values.append(np.array([int64(_text(text)) for text in texts], np.int64)[indices])
        return codes.finish(), values.finish()

    def metadata(self) -> None:
        rows = self.rows("M")
        self.note("metadata", len(rows), "names and labels of processes and threads")
        names = self.columns.name.take(pa.array(rows)).to_pylist()
        for row, name, text in zip(rows.tolist(), names, self.columns.args.read(rows).to_pylist(), strict=True):
            if name not in ("process_name", "thread_name"):
                continue
            args = _object(text)
            label = str(args.get("name", "")).strip()
            if not label:
                continue
            if name == "process_name":
                self.process_names.setdefault(int(self.pid[row]), label)
            else:
                self.thread_names.setdefault((int(self.pid[row]), int(self.tid[row])), label)

    def describe(self, trace: Trace) -> None:
        header = self.document.header
        devices = header.get("deviceProperties")
        names = [str(d.get("name", "")) for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
        distributed = header.get("distributedInfo")
        if isinstance(distributed, dict) and 0 <= int64(distributed.get("rank")) < 2**31:
            trace.ranks = (int64(distributed.get("rank")),)
            trace.facts["world_size"] = str(distributed.get("world_size", ""))
        host = header.get("host_name")
        if isinstance(host, str) and host:
            trace.instance = host
        if any(name == "Ascend Hardware" for name in self.process_names.values()):
            names = names or ["Ascend NPU"]
        if names:
            trace.facts["device_name"] = names[0]
        for key in ("trace_id", "with_stack", "record_shapes", "profile_memory", "cuda_runtime_version", "traceName"):
            if key in header and isinstance(header[key], str | int):
                trace.facts[f"notes.{key}"] = str(header[key])
        ev = trace.events
        trace.neuron = bool((ev.execution_id[ev.of(Role.DISPATCH, Role.DRIVER)] >= 0).any())
        origin = header.get("neuronscope")
        if trace.neuron and isinstance(origin, dict):
            self.describe_emulated(trace, origin)
        spans = ev.of(Role.SPAN)
        if len(spans):
            trace.recording = (int(trace.events.start[spans].min()), int(trace.events.end[spans].max()))

    @staticmethod
    def describe_emulated(trace: Trace, origin: dict[str, Any]) -> None:
        """Facts that our emulator writes into the head of its trace.json."""
        trace.facts["device_name"] = f"AWS {origin['target']}" if origin.get("target") else "AWS Neuron"
        trace.facts["emulated"] = "true" if origin.get("emulated") else "false"
        for key in ("target", "target_hash", "model_version", "lnc", "session_id"):
            if isinstance(origin.get(key), str | int):
                trace.facts[key] = str(origin[key])
        for key in ("device_cost_ns", "device_cost_status"):
            costs = origin.get(key)
            if isinstance(costs, dict):
                trace.facts.update({f"{key}.{name}": str(value) for name, value in sorted(costs.items())})
        if isinstance(origin.get("modes"), list):
            trace.facts["modes"] = " ".join(str(mode) for mode in origin["modes"])
        trace.facts["producer"] = f"neuronscope-emulator {origin.get('producer_version', '')}".strip()
        trace.instance = str(origin.get("instance_id") or trace.instance)

    @staticmethod
    def _numbers(column: pa.DictionaryArray, labels: dict[int, str]) -> _Numbers:
        """Process or thread ids as int64; texts without a number get negative ones and go to `labels`."""
        values: list[int] = []
        for index, raw in enumerate(column.dictionary.to_pylist()):
            text = _text(raw)
            number = int64(text, -(2**62))
            if not text:
                number = 0 if not raw else TEXT_PID - index
            elif number == -(2**62):
                tail = re.fullmatch(r"(?:stream|thread|tid|pid)[ :_-]*(\d{1,18})", text, re.IGNORECASE)
                number = int(tail[1]) if tail else TEXT_PID - index
            if number <= TEXT_PID:
                labels[number] = text or "(empty)"
            values.append(number)
        return _Numbers(narrow(np.array(values or [0], np.int64)), column.indices.to_numpy())


def _role(category: str) -> Role:
    lower = category.lower()
    if lower in _ROLES:
        return _ROLES[lower]
    return Role.RUNTIME if _RUNTIME.match(lower) else Role.HOST


def _device_role(category: str) -> Role:
    """The role of a row that says on which device and stream it ran, by what its category is called."""
    lower = category.lower()
    for word, role in (("annotation", Role.DEVICE_ANNOTATION), ("memcpy", Role.MEMCPY), ("memset", Role.MEMSET)):
        if word in lower:
            return role
    return Role.DEVICE


def _text(raw: bytes) -> str:
    if raw[:1] != b'"':
        return raw.decode("utf-8", "replace")
    try:
        return str(msgspec.json.decode(raw)).strip()
    except msgspec.DecodeError:
        return raw.decode("utf-8", "replace").strip('"')


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _events(count: int) -> str:
    return "1 event" if count == 1 else f"{count} events"
