"""Answers of the explorer over a processed CUDA trace of 1, 10 and 100 million slices, beside SQL over its Parquet.

Tiles of 1,600 pixels at random places and depths of zoom; the SQL tile groups the slices of the window by track, lane
and pixel and must count as many slices. The trace is that of the explorer's tests, its tables repeated; to a slice come
1.02 events. `first screen` is opening the folder, the profile's card, the overview and the first tile, once the index
is there. `key averages` are the table of operators; `averages` are those that must equal torch's, `insights` the ranked
ones (both up to 20 million slices). `index made` is for a profile whose reader kept none, as this one's tables are put
together. 100 million take 7 GB of disk, 7 GB of memory while the index is made, and minutes; they are left out with a
note where there is less.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neuronscope import readers
from neuronscope.analysis import card, chain, events, overview
from neuronscope.analysis.profile import Profile

from benchmarks._repeat import repeat
from benchmarks.ingest import _synthetic

NAME = "Tiles and analyses"
STEPS, CALLS = 20, 5_000  # half a million slices
COPIES = (("1M", 2), ("10M", 20), ("100M", 200))
_LARGE = 100  # copies that need room
_ROOM_BYTES = 8 << 30
WIDTH = 1_600
TILES, SQL_TILES, EVENTS = 100, 5, 30
_MOST_ANALYSED = 20_000_000  # slices

_SQL_TILE = """
SELECT track_id, lane, greatest(start_ts - $start, -1) * $width // $length AS pixel,
       arg_max(event_id, end_ts - start_ts), min(start_ts), max(end_ts), count(*) AS slices, sum(end_ts - start_ts)
FROM Slice WHERE start_ts < $end AND (end_ts > $start OR start_ts >= $start) GROUP BY ALL
"""


def run(copies: tuple[tuple[str, int], ...] = COPIES) -> list[dict[str, object]]:
    """One row per size."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        _synthetic().write(base / "trace.json", STEPS, CALLS)
        readers.ingest(base / "trace.json", base / "short")
        (base / "trace.json").unlink()
        rows = []
        for name, count in copies:
            if count >= _LARGE and min(_free_memory(), shutil.disk_usage(folder).free) < _ROOM_BYTES:
                print(f"  {name} slices: left out, too little memory or disk is free", file=sys.stderr)
                continue
            slices = repeat(base / "short", base / name, count)
            (base / name / "manifest.json").write_text("{}")  # as in the library, so that indexes are kept
            rows.append(_measure(base / name, slices))
            shutil.rmtree(base / name)
        return rows


def _free_memory() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return _ROOM_BYTES  # this system does not tell: try


def _measure(folder: Path, slices: int) -> dict[str, object]:
    profile = Profile("bench", folder)
    index_s = _seconds(lambda: (profile.timeline, profile.event_index))
    _first_screen(profile)
    profile.close()
    first_screen_s = min(_seconds(lambda: _first_screen(Profile("bench", folder))) for _ in range(3))
    profile = Profile("bench", folder)
    chooser = random.Random(1)
    windows = []
    for _ in range(TILES):
        length = max(int(profile.span_ns * 10 ** -chooser.uniform(0, 5)), WIDTH)
        start = chooser.randrange(max(profile.span_ns - length, 1))
        windows.append((start, start + length))
    profile.timeline.tile(0, profile.span_ns, WIDTH)
    ours = [_seconds(lambda w=window: profile.timeline.tile(*w, WIDTH)) for window in windows]  # type: ignore[misc]
    theirs = []
    for start, end in windows[:SQL_TILES]:
        begin = profile.origin_ns + start
        parameters = {"start": begin, "end": begin + end - start, "length": end - start, "width": WIDTH}
        clock = time.perf_counter()
        counted = sum(row["slices"] for row in profile.rows(_SQL_TILE, parameters))
        theirs.append(time.perf_counter() - clock)
        tile = profile.timeline.tile(start, end, WIDTH)
        shown = sum(n for n, kind in zip(tile["count"].to_pylist(), tile["kind"].to_pylist(), strict=True) if kind == 0)
        if shown != counted:
            raise SystemExit(f"tile {start}..{end}: {shown} slices, SQL counts {counted}")
    kernels = [row["event_id"] for row in profile.rows(f"SELECT event_id FROM Execution USING SAMPLE {EVENTS}")]
    chains = [_seconds(lambda k=kernel: chain.chain(profile, k)) for kernel in kernels]  # type: ignore[misc]
    details = [_seconds(lambda k=kernel: events.event_details(profile, k)) for kernel in kernels]  # type: ignore[misc]
    operators_s = min(_first_s(folder, lambda opened: opened.operators(opened.whole_range)) for _ in range(3))
    again = Profile("bench", folder)
    again_s = _seconds(lambda: again.operators(again.whole_range))
    again.close()
    step_s = min(_seconds(profile.operators) for _ in range(3))
    found_s = {
        name: _first_s(folder, lambda opened, n=name: opened.analyse(n, opened.whole_range))  # type: ignore[misc]
        if slices <= _MOST_ANALYSED
        else None
        for name in ("steps", "averages", "insights", "tree", "memory")
    }
    ours.sort()
    return {
        "slices": slices,
        "tile p50 ms": _ms(statistics.median(ours)),
        "tile p95 ms": _ms(ours[int(0.95 * len(ours))]),
        "SQL tile p50 ms": _ms(statistics.median(theirs)),
        "× SQL": round(statistics.median(theirs) / statistics.median(ours)),
        "first screen ms": _ms(first_screen_s),
        "chain p50 ms": _ms(statistics.median(chains)),
        "details p50 ms": _ms(statistics.median(details)),
        "key averages, all, ms": _ms(operators_s),
        "key averages, all, asked again, ms": _ms(again_s),
        "key averages, one step, ms": _ms(step_s),
        **{f"{name}, all, ms": "-" if seconds is None else _ms(seconds) for name, seconds in found_s.items()},
        "index made once, s": round(index_s, 1),
    }


def _first_s(folder: Path, ask: Callable[[Profile], Any]) -> float:
    """An answer over the whole profile, asked for the first time: answers are kept, in memory and beside the tables."""
    for kept in (folder / "index").glob("*-*.json"):
        kept.unlink()
    profile = Profile("bench", folder)
    try:
        return _seconds(lambda: ask(profile))
    finally:
        profile.close()


def _first_screen(profile: Profile) -> None:
    card.profile_card(profile)
    overview.overview(profile, 0, profile.span_ns, WIDTH)
    profile.timeline.tile(0, profile.span_ns, WIDTH)


def _seconds(call: Callable[[], Any]) -> float:
    clock = time.perf_counter()
    call()
    return time.perf_counter() - clock


def _ms(seconds: float) -> float:
    return float(f"{seconds * 1e3:.3g}")


def main(arguments: list[str]) -> Any:
    """Print the table, with --json as JSON."""
    rows = run(COPIES[:1] if "--small" in arguments else COPIES)
    if "--json" in arguments:
        print(json.dumps(rows))
    else:
        for row in rows:
            print("  ".join(f"{key}: {value}" for key, value in row.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
