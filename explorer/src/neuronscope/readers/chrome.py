"""Kineto and other chrome-format traces → `Trace`: roles by category, B/E and async pairs, arrows, header facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from neuronscope.readers import json_events, pairs, places
from neuronscope.readers.ahead import made_ahead
from neuronscope.readers.arguments import PHASE
from neuronscope.readers.arrows import arrow_ends
from neuronscope.readers.categories import EXPORTED, KNOWN, device_role_of, role_of
from neuronscope.readers.exact import MAX_NS, Bools, Int64, int64, longest
from neuronscope.readers.faults import counted, fault_row
from neuronscope.readers.file_ids import numbers_of
from neuronscope.readers.file_rows import FileRows
from neuronscope.readers.json_events import Columns, Document, Source
from neuronscope.readers.narrow import constant, narrow, rows_of
from neuronscope.readers.pairs import Paired
from neuronscope.readers.result import IngestWarning
from neuronscope.readers.scratch import CHUNK_ROWS, Scratch, ranges, rows_where
from neuronscope.readers.texts import Texts
from neuronscope.readers.trace import (
    Buckets,
    Events,
    Int8,
    Role,
    Trace,
    concat_events,
    merged,
    order_by_start,
)
from neuronscope.readers.trace_header import describe
from neuronscope.readers.wording import printable

__all__ = ["read_trace"]

_INSTANTS = ("i", "I", "R", "n", "T", "p", "C", "P", "N", "O", "D", "c", "v", "V", "(", ")")
_TIMED = ("X", "B", "E", "b", "e", "S", "F", "T", "s", "t", "f", *_INSTANTS)
_IN_NS = 2  # `has_ts` of a time in nanoseconds
_DEVICE_ROWS = (Role.DEVICE, Role.MEMCPY, Role.MEMSET, Role.DEVICE_ANNOTATION, Role.DRIVER)
_ENDS_AT_ONCE = 65_536  # begins and ends held as Python objects
_SAMPLED = 256  # of as many times one is looked at to find ranges of time with equal numbers of events
_ZERO_TIME_NS = 86_400 * 10**9  # a time of 0 is no time when all others are later than this
_UNKNOWN_NS = (2**32 - 1) * 1000


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
        self.pid = numbers_of(self.columns.pid, self.labels)
        self.tid = numbers_of(self.columns.tid, {})
        self.ph = self.columns.ph.dictionary.to_pylist()
        self.ph_code = self.columns.ph.indices.to_numpy()
        self.marks = sorted({*self.ph} & {*_INSTANTS} - {"i", "I"})
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
        found = rows_where(len(self.columns), chosen)
        self.scratch.forget()
        return found

    def lose(self, kind: str, rows: Int64, what: str) -> None:
        """Leave rows out and say so."""
        self.skipped += len(rows)
        self.mended[rows] = False
        self.note(kind, len(rows), f"{counted(len(rows))} {what} left out", "skipped", self.offset(rows))

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
            f"{counted(len(nanoseconds))} with times that are in nanoseconds, not microseconds: read as such",
            "repaired",
            self.offset(nanoseconds),
        )

    def note(self, kind: str, count: int, message: str, action: str = "kept", offset: int = -1) -> None:
        if count:
            self.report.append(IngestWarning(kind, int(count), offset, self.file, action, message))

    def trace(self) -> Trace:
        for kind, fault in self.document.faults.items():
            if fault.count:
                self.report.append(fault_row(kind, fault, self.file))
        self.process_names: dict[int, str] = {}
        self.thread_names: dict[tuple[int, int], str] = {}
        self.metadata()
        self.places = places.of_processes(self.process_names, self.labels)
        complete = self.complete()
        paired = self.pairs()
        instants = self.instants()
        flow_rows = self.rows("s", "t", "f")
        with ThreadPoolExecutor(1) as pool:  # needs nothing of what is done meanwhile
            ends = pool.submit(arrow_ends, self.columns, flow_rows, self.pid, self.tid, self.base, self.scratch)
            events = self.in_order(complete, paired, instants)
            arrows = ends.result() if len(flow_rows) else None
        self.note("flow_ends", len(flow_rows), "ends of arrows")
        file_rows = FileRows(self.columns, self.pid, self.tid, self.base, self.document.offset_of, self.document.header)
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
        describe(trace, self.document.header)
        return trace

    def format(self) -> str:
        header = self.document.header
        if "schemaVersion" in header or KNOWN & {c.lower() for c in self.columns.cat.dictionary.to_pylist()}:
            return "torch.profiler trace"
        return "chrome trace"

    # Intervals

    def complete(self) -> Int64:
        """The X rows; what has to be taken for another duration is reported."""
        rows = self.rows("X")
        kinds = ("negative", "none", "unknown", "endless", "zero")
        found: dict[str, list[Int64]] = {kind: [rows[:0]] for kind in kinds}
        total, most = 0.0, 0
        for low, high in ranges(len(rows)):
            some = rows[low:high]
            duration = rows_of(self.columns.dur, some)
            found["negative"].append(some[duration < 0])
            found["none"].append(some[~rows_of(self.columns.has_dur, some)])
            found["unknown"].append(some[duration == _UNKNOWN_NS])
            found["zero"].append(some[rows_of(self.columns.correlation, some) == 0])
            meant = self.durations(duration)
            total += float(meant.sum(dtype=np.float64))
            most = max(most, int(meant.max()))
            self.scratch.forget()
        self.longest = longest(total, len(rows))
        for low, high in ranges(len(rows) if most > self.longest else 0):
            some = rows[low:high]
            found["endless"].append(some[self.durations(self.columns.dur[some]) > self.longest])
        self.mend("negative_duration", np.concatenate(found["negative"]), "with a negative duration")
        self.mend("no_duration", np.concatenate(found["none"]), "without a readable duration")
        unknown = "with the duration 2^32 - 1, which stands for unknown"
        self.mend("no_duration", np.concatenate(found["unknown"]), unknown)
        self.mend("endless", np.concatenate(found["endless"]), "lasting months")
        self.note_zero(np.concatenate(found["zero"]))
        return rows

    @staticmethod
    def durations(duration: Int64) -> Int64:
        """Durations, 0 for those that can't be meant."""
        return np.where((duration < 0) | (duration == _UNKNOWN_NS), 0, duration)

    def in_order(self, complete: Int64, paired: Paired | None, instants: Int64) -> Events:
        """All intervals and instants in order of start, some at once."""
        count = len(complete) + len(instants) + (len(paired) if paired is not None else 0)
        if count <= CHUNK_ROWS:
            return self.ordered(complete, paired, instants)
        return merged(self.buckets(complete, paired, instants, len([*ranges(count)])), self.scratch)

    def buckets(self, complete: Int64, paired: Paired | None, instants: Int64, count: int) -> Iterator[Events]:
        """About `count` parts of the events, each in order of start and later than the one before."""
        times = self.columns.ts
        begun = times[:0] if paired is None else paired.times
        sample = times[complete[::_SAMPLED]], times[instants[::_SAMPLED]], begun[::_SAMPLED]
        sampled = np.sort(np.concatenate(sample))
        limits = np.unique(sampled[np.arange(1, count) * len(sampled) // count])
        of_complete, of_instants = (Buckets(rows, times, limits, self.scratch) for rows in (complete, instants))
        of_pairs = Buckets(np.arange(len(begun)), begun, limits, self.scratch)

        def bucket(number: int) -> Events:
            some = of_pairs.rows(number) if paired is not None else None
            return self.ordered(of_complete.rows(number), paired, of_instants.rows(number), some)

        for events in made_ahead(bucket, len(limits) + 1):
            yield events
            self.scratch.forget()

    def ordered(self, complete: Int64, paired: Paired | None, instants: Int64, pairs: Int64 | None = None) -> Events:
        """Some events of each kind in order of start; of the paired ones all or the given."""
        rows = np.concatenate((complete, instants)).astype(np.intp)
        start = rows_of(self.columns.ts, rows) + self.base
        duration = np.zeros(len(rows), np.int64)
        duration[: len(complete)] = self.durations(rows_of(self.columns.dur, complete))
        duration[duration > self.longest] = 0
        roles = np.full(len(rows), Role.INSTANT, np.int8)
        roles[: len(complete)] = self.roles(complete)
        if paired is None:  # then the columns need not be moved twice
            order = order_by_start(start, start + duration)
            rows, start, duration, roles = (rows_of(column, order) for column in (rows, start, duration, roles))
        events = self.intervals(rows, start, start + duration, roles)
        if paired is None:
            return events
        between = self.of_pairs(paired, np.arange(len(paired)) if pairs is None else pairs)
        parts = events.take(np.arange(len(complete))), between, events.take(np.arange(len(complete), len(rows)))
        return concat_events(parts).sorted_by_start()

    def mend(self, kind: str, rows: Int64, what: str) -> None:
        """Report rows whose duration is taken for none."""
        self.mended[rows] = True
        message = f"{counted(len(rows))} {what}: shown with none, counted in no total"
        self.note(kind, len(rows), message, "repaired", self.offset(rows))

    def roles(self, rows: Int64) -> Int8:
        categories = self.columns.cat.dictionary.to_pylist()
        table = np.array([role_of(category) for category in categories] or [Role.HOST], np.int8)
        origin = self.document.header.get("neuronscope")
        if isinstance(origin, dict) and "export" in origin:  # ours, without the tables it carried
            table = np.array([EXPORTED.get(category, Role.HOST) for category in categories] or [Role.HOST], np.int8)
        roles = table.take(rows_of(self.columns.cat.indices.to_numpy(), rows))
        unlisted = [bool(c) and role_of(c) == Role.HOST and c.lower() not in KNOWN for c in categories]
        if any(unlisted):  # a category of another device: its rows say on which device and stream they ran
            table_of_devices = np.array([device_role_of(category) for category in categories], np.int8)
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

    def intervals(self, rows: Int64, start: Int64, end: Int64, roles: Int8) -> Events:
        columns = self.columns
        index = pa.array(rows)
        device_row = np.isin(roles, _DEVICE_ROWS)
        device, stream = rows_of(columns.device, rows), rows_of(columns.stream, rows)
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
            category=self.categories(rows, roles),
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

    def categories(self, rows: Int64, roles: Int8) -> pa.DictionaryArray:
        """Categories; those of counters and other instants that are no plain ones tell their phase too."""
        codes, listed = self.columns.cat.indices.to_numpy()[rows], self.columns.cat.dictionary
        if not self.marks:
            return pa.DictionaryArray.from_arrays(pa.array(codes), listed)
        number = np.array([self.marks.index(phase) + 1 if phase in self.marks else 0 for phase in self.ph], np.int32)
        codes = codes + np.where(roles == Role.INSTANT, number[self.ph_code[rows]], 0) * np.int32(len(listed))
        names = listed.to_pylist()
        every = names + [f"{name}{PHASE}{phase}" for phase in self.marks for name in names]
        return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(every, pa.string()))

    def correlations(self, rows: Int64) -> Int64:
        """Correlation ids; 0 is what tracers write where they have none, so it links nothing."""
        found = np.array(rows_of(self.columns.correlation, rows))
        found[found == 0] = -1
        return found

    def note_zero(self, rows: Int64, *, paired: bool = False) -> None:
        """Report those of the rows, all with correlation 0, that are on devices."""
        there = rows[np.isin(self.paired_roles(rows) if paired else self.roles(rows), _DEVICE_ROWS)]
        text = (
            f"{counted(len(there))} on devices with correlation 0, which stands for none: linked by other ids if at all"
        )
        self.note("correlation_zero", len(there), text, "kept", self.offset(there))

    def pairs(self) -> Paired | None:
        """B/E rows by thread and async b/e rows by category and id as intervals."""
        threads = self.rows("B", "E")
        ids = self.rows("b", "e", "S", "F")
        if not len(threads) and not len(ids):
            return None
        category, unnamed = self.columns.cat.indices.to_numpy(), 0

        def of_thread(rows: Int64) -> Iterable[Hashable]:
            return zip(self.pid[rows].tolist(), self.tid[rows].tolist(), strict=True)

        def of_id(rows: Int64) -> Iterable[Hashable]:
            nonlocal unnamed
            scopes = self.scopes(rows)
            unnamed += sum(not text for text, _ in scopes)
            return zip(category[rows].tolist(), scopes, strict=True)

        by_thread = pairs.match_by_thread(self._ends(threads, of_thread))
        by_id = pairs.match_by_id(self._ends(ids, of_id))
        self.note("no_async_id", unnamed, f"{counted(unnamed)} that begin or end an interval by id have none", "kept")
        stray = np.array(by_thread.stray + by_id.stray, np.int64)
        self.lose("unmatched_pair", stray, "that end an interval which never began:")
        unfinished = np.array(by_thread.unfinished + by_id.unfinished, np.int64)
        self.mend("unfinished", unfinished, "that begin an interval which never ends")
        begins, ends = (
            self.scratch.kept(narrow(np.concatenate((*map(np.asarray, found), unfinished))))
            for found in ((by_thread.begins, by_id.begins), (by_thread.ends, by_id.ends))
        )
        times = self.scratch.kept(self.scratch.take(self.columns.ts, begins))
        return self.believed(Paired(begins, ends, times, len(unfinished), 0))

    def believed(self, paired: Paired) -> Paired:
        """The same with the longest duration that can be meant; longer ones, and ids 0 of device work, are reported."""
        total, unlikely, zero = 0.0, [paired.begins[:0]], [paired.begins[:0]]
        for low, high in ranges(len(paired)):
            total += float(self.lasting(paired, slice(low, high)).sum(dtype=np.float64))
        paired = replace(paired, longest=longest(total, len(paired)))
        for low, high in ranges(len(paired)):
            begins = paired.begins[low:high]
            unlikely.append(begins[self.lasting(paired, slice(low, high)) > paired.longest])
            zero.append(begins[rows_of(self.columns.correlation, begins) == 0])
            self.scratch.forget()
        self.mend("endless", np.concatenate(unlikely), "lasting months")
        self.note_zero(np.concatenate(zero), paired=True)
        return paired

    def lasting(self, paired: Paired, some: Any) -> Int64:
        """Durations of some of the intervals, as the file has them."""
        return np.maximum(self.columns.ts[paired.ends[some]] - paired.times[some], 0)

    def of_pairs(self, paired: Paired, some: Int64) -> Events:
        """Some of the intervals as events."""
        begins, start, lasting = paired.begins[some], paired.times[some] + self.base, self.lasting(paired, some)
        end = start + np.where(lasting > paired.longest, 0, lasting)
        found = self.intervals(begins, start, end, self.paired_roles(begins))
        ended = some < len(paired) - paired.unfinished
        of_ends = np.full(len(some), b"", object)
        of_ends[ended] = self.columns.args.read(paired.ends[some[ended]]).to_pylist()
        if any(len(text) > 2 for text in of_ends):  # more than {}
            merged_texts = pairs.merge_arguments(self.columns.args.read(begins), of_ends.tolist())
            found = replace(found, args=Texts.of(merged_texts))
        return found

    def paired_roles(self, begins: Int64) -> Int8:
        """Roles of intervals by their begins: those that an id holds together are on no thread."""
        roles = self.roles(begins)
        roles[np.array([phase in ("b", "S") for phase in self.ph], np.bool_)[self.ph_code[begins]]] = Role.ASYNC
        return roles

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

    def _ends(
        self, rows: Int64, keys: Callable[[Int64], Iterable[Hashable]]
    ) -> Iterator[tuple[int, bool, Hashable, str]]:
        """What `pairs` takes of the rows, in order of time."""
        names = self.columns.name.dictionary.to_pylist()
        opening = np.array([phase in ("B", "b", "S") for phase in self.ph], np.bool_)
        order = np.argsort(self.scratch.take(self.columns.ts, rows), kind="stable")
        for low, high in ranges(len(order), _ENDS_AT_ONCE):
            some = rows[order[low:high]]
            codes = self.columns.name.indices.to_numpy()[some].tolist()
            begins = opening[self.ph_code[some]].tolist()
            for row, begin, key, code in zip(some.tolist(), begins, keys(some), codes, strict=True):
                yield row, begin, key, names[code]

    def instants(self) -> Int64:
        """Rows of instants and counters."""
        rows = self.rows(*_INSTANTS)
        counters = len(self.rows("C"))
        self.note("instants", len(rows) - counters, "instant events kept in SystemProfileEvents, not drawn")
        self.note("counters", counters, "counter samples kept in SystemProfileEvents, not drawn")
        return rows

    # Facts

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


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
