"""The analyses with a command, a route and a panel: against counting nanoseconds, and the same on every surface."""

import json
from importlib import resources

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuronscope.analysis import Profile
from neuronscope.analysis.catalog import ANALYSES, analyse
from neuronscope.analysis.library import open_profile
from neuronscope.schema import own

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)"
NAMES = {"compute": ("exec", "gemm"), "communication": ("exec", NCCL), "memory_copy": ("memcpy", "Memcpy HtoD")}
RANKS = 3


def defaults(spec):
    values = {"string": "", "bool": False}
    return {column.name: values.get(column.type, -1) for column in spec.columns}


def table(spec, rows):
    return pa.Table.from_pylist([defaults(spec) | row for row in rows], schema=spec.schema)


def executions(parts):
    """Execution rows of `(start, launch, work, category, step, called)`."""
    return table(
        own.EXECUTION,
        [
            {
                "execution_id": index, "event_id": index, "kind": NAMES[category][0], "name": NAMES[category][1],
                "start_ts": start, "end_ts": start + launch + work, "duration_ns": launch + work, "launch_ns": launch,
                "program_ns": work, "estimated_ns": 0, "step": step, "launch_ts": called, "device": 0, "process_id": 1,
                "gap_cause": "unknown",
            }
            for index, (start, launch, work, category, step, called) in enumerate(parts)
        ],
    )  # fmt: skip


def names():
    return table(own.NAME, [{"name_id": index, "name": name} for index, (_, name) in enumerate(NAMES.values())])


PARTS = st.lists(
    st.tuples(
        st.integers(0, 90), st.integers(0, 9), st.integers(0, 20), st.sampled_from(sorted(NAMES)), st.integers(1, 2),
        st.integers(-1, 90),
    ),
    min_size=1, max_size=14,
)  # fmt: skip
STEPS = {1: (5, 70), 2: (40, 130)}  # they overlap, as when the host runs ahead


@settings(max_examples=12, deadline=None)
@given(PARTS)
def test_the_step_split_equals_counting_nanoseconds(parts):
    steps = [
        {"number": number, "name": f"ProfilerStep#{number}", "start_ts": low, "end_ts": high, "complete": True}
        for number, (low, high) in STEPS.items()
    ]
    profile = Profile("p", {"Execution": executions(parts), "Step": table(own.STEP, steps), "Name": names()})
    rows = profile.rows("FROM step_split()")
    for number, (low, high) in STEPS.items():
        want = dict.fromkeys(("compute", "communication", "memory_copy", "launch_cost", "other_step"), 0)
        want |= dict.fromkeys(("host_late", "launch_latency", "queued", "unknown", "no_more_work"), 0)
        for t in range(low, high):
            running = set()
            for start, launch, work, category, step, _ in parts:
                if step != number and start <= t < start + launch + work:
                    running.add("other_step")
                elif step == number and start <= t < start + launch:
                    running.add("launch_cost")
                elif step == number and start + launch <= t < start + launch + work:
                    running.add(category)
            first = next((name for name in want if name in running), None)
            want[first or "idle"] = want.get(first or "idle", 0) + 1
        got = {row["category"]: row["time_ns"] for row in rows if row["step"] == number}
        assert sum(got.values()) == high - low
        assert all(row["span_ns"] == high - low for row in rows if row["step"] == number)
        busy = ("compute", "communication", "memory_copy", "launch_cost", "other_step")
        assert {name: got.get(name, 0) for name in busy} == {name: want[name] for name in busy}
        assert sum(time for name, time in got.items() if name not in busy) == want.get("idle", 0)
    for number in STEPS:  # one step alone gives the same rows
        alone = profile.rows(f"FROM step_split(range_step := {number})")
        assert alone == [row for row in rows if row["step"] == number]
    profile.close()


@pytest.mark.parametrize(
    ("called", "split"),
    [
        (130, {"host_late": 30, "launch_latency": 20}),  # the device ran dry at 100, the next piece began at 150
        (90, {"queued": 50}),
        (-1, {"unknown": 50}),
    ],
)
def test_a_pause_is_split_at_the_call_of_the_launch_that_ends_it(called, split):
    parts = [(0, 0, 100, "compute", 1, 0), (150, 0, 50, "compute", 1, called)]
    step = [{"number": 1, "name": "ProfilerStep#1", "start_ts": 0, "end_ts": 220, "complete": True}]
    profile = Profile("p", {"Execution": executions(parts), "Step": table(own.STEP, step), "Name": names()})
    got = {row["category"]: row["time_ns"] for row in profile.analyse("steps").rows}
    assert got == {"compute": 150, "no_more_work": 20, **split}


@settings(max_examples=12, deadline=None)
@given(PARTS)
def test_overlap_equals_counting_nanoseconds(parts):
    profile = Profile("p", {"Execution": executions(parts), "Name": names()})
    got = {row["category"]: row for row in profile.rows("FROM overlap()")}

    def times(category):
        return {
            t
            for start, launch, work, kind, _, _ in parts
            if kind == category
            for t in range(start + (launch if kind == "compute" else 0), start + launch + work)
        }

    for category in ("communication", "memory_copy"):
        if not any(part[3] == category for part in parts):
            assert category not in got
            continue
        row, ran, computed = got[category], times(category), times("compute")
        assert (row["time_ns"], row["compute_ns"]) == (len(ran), len(computed))
        assert (row["hidden_ns"], row["exposed_ns"]) == (len(ran & computed), len(ran - computed))
    profile.close()


def memory_events(changes):
    """SystemProfileEvents of `(address, bytes)` in order of time, one per ns, with torch's running total."""
    rows, total = [], 1_000
    for ts, (address, change) in enumerate(changes, 1):
        total += change
        args = {
            "Bytes": change,
            "Addr": address,
            "Device Type": 1,
            "Device Id": 0,
            "Total Allocated": total,
            "Total Reserved": 9_999,
        }
        rows.append({"id": ts, "name": "[memory]", "start_ts": ts, "end_ts": ts, "duration_ns": 0,
                     "instance_id": "local", "thread_id": 1, "extra_attributes_json": json.dumps(args)})  # fmt: skip
    return pa.Table.from_pylist(rows)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=25), st.data())
def test_what_is_alive_at_the_peak_equals_a_replay(addresses, data):
    held, changes = {}, []
    for address in addresses:
        size = -held.pop(address) if address in held else data.draw(st.integers(1, 500))
        if size > 0:
            held[address] = size
        changes.append((address, size))
    if data.draw(st.booleans()):
        changes.append((99, -400))  # something from before the recording is released
    totals = [1_000]
    for _, change in changes:
        totals.append(totals[-1] + change)
    peak = max(totals[1:])
    at = totals.index(peak, 1)
    alive = {}
    for address, change in changes[:at]:
        alive[address] = change if change > 0 else 0
    profile = Profile("p", {"SystemProfileEvents": memory_events(changes)})
    found = analyse(profile, "memory")
    allocated = next(row for row in found.rows if row["series"] == "allocated")
    assert (allocated["peak_bytes"], allocated["peak_ts"]) == (peak, at)
    rows = {row["name"]: row["alive_bytes"] for row in found.more["at_peak"]}
    assert rows.get("(no operator)", 0) == sum(alive.values())
    assert sum(rows.values()) == peak
    profile.close()


def test_the_rank_that_starts_last_is_found_although_clocks_differ(job):
    found = job.analyse("ranks")
    last = found.rows[-1]
    assert [row["last"] for row in found.rows] == [0, 0, 3]
    assert last["caused_ns"] == 3 * 301_000 and last["wait_ns"] == 0
    assert [row["offset_ns"] for row in found.rows] == [-50_000, 0, 50_000]
    assert all(row["residual_max_ns"] == 0 for row in found.rows)
    assert found.facts[0].startswith("Rank 2 starts last in 3 of 3 collectives: the others wait 903 us")
    assert any("computes 30 % more than the median rank" in fact for fact in found.facts)
    straggler = next(row for row in job.analyse("insights").rows if row["rule"] == "straggler")
    assert straggler["gain_ns"] == RANKS * last["caused_ns"]
    assert straggler["evidence"][0]["name"].startswith("rank 2 starts nccl")


def test_memory_is_told_per_rank_and_by_operator(job):
    found = job.analyse("memory")
    assert [(row["rank"], row["peak_bytes"], row["peak_step"]) for row in found.rows] == [
        (r, 3 * 4096, 3) for r in range(RANKS)
    ]
    assert {(row["rank"], row["name"], row["alive_bytes"]) for row in found.more["at_peak"]} == {
        (rank, "aten::mm", 3 * 4096) for rank in range(RANKS)
    }


def test_the_tree_sums_device_time_below_each_call(job):
    found = job.analyse("tree", job.whole_range)
    rows = {tuple(row["path"]): row for row in found.rows}
    outer, inner = rows["aten::linear",], rows["aten::linear", "aten::mm"]
    assert (outer["self_device_ns"], outer["device_time_ns"]) == (0, inner["self_device_ns"])
    top = [row for row in found.rows if row["depth"] == 1]
    whole = job.rows("SELECT sum(device_part)::BIGINT AS ns FROM executions()")[0]["ns"]
    assert sum(row["device_time_ns"] for row in top) == whole == sum(row["self_device_ns"] for row in found.rows)
    assert sum(row["share"] for row in top) == pytest.approx(1)


def test_launches_are_counted_with_their_delay(job):
    (row,) = job.analyse("launches", job.whole_range).rows
    assert (row["name"], row["calls"], row["executions"]) == ("cudaLaunchKernel", 18, 18)
    assert (row["call_median_ns"], row["call_ns"]) == (5_000, 18 * 5_000)
    assert row["delay_median_ns"] == 15_000 and row["executions_shorter_than_call"] == 0


@pytest.mark.parametrize("name", list(ANALYSES))
def test_a_profile_without_the_facts_says_why(name, build_tables, rmsnorm):
    found = Profile("empty", {}).analyse(name)
    assert not found.rows and not found.facts and found.reason.endswith(".")
    tables = {key: value for key, value in build_tables(rmsnorm).items() if key not in ("Execution", "Gap", "Flow")}
    host = Profile("cpu", tables).analyse(name)
    assert host.rows or "CPU activity only" in host.reason or name in ("ranks", "memory")
    if name == "steps":  # of the host's operator calls then
        assert {row["category"] for row in host.rows} == {"compute", "outside_operators"}


def test_nothing_is_concluded_from_an_emulated_profile_s_host(build_tables, works):
    late = [works("aten::mul", gap=5_000_000, cause="host_late")] * 3
    rules = {row["rule"] for row in Profile("e", build_tables(late)).analyse("insights").rows}
    assert rules == {"launch_cost"}
    tables = build_tables(late, info={"emulated": "false"})
    rows = [row | {"launch_ts": row["start_ts"] - 6_000, "enqueue_ts": -1} for row in tables["Execution"].to_pylist()]
    real = Profile("r", tables | {"Execution": table(own.EXECUTION, rows)}).analyse("insights")
    assert (
        real.rows[0]["rule"] == "host_late" and real.rows[0]["gain_ns"] >= 2 * 4_994_000 and real.rows[0]["share"] <= 1
    )
    assert real.facts[0].startswith("The device waits for the host: at most ")


def test_every_macro_describes_its_columns():
    profile = Profile("p", {})
    for file in resources.files("neuronscope.analysis").joinpath("sql").iterdir():
        name = file.name.removesuffix(".sql")
        text = file.read_text()
        comment = text[: text.index("CREATE")]
        assert comment.startswith(f"-- {name}: ")
        if " AS TABLE" not in text:
            continue
        arguments = "'kernel'" if name == "work_by" else ""
        columns = profile.query(f"SELECT * FROM {name}({arguments}) LIMIT 0").column_names
        known = set(own.EXECUTION.schema.names) | set(own.HOST_OP.schema.names)
        missing = [column for column in columns if column not in comment and column not in known]
        assert not missing, f"{file.name}: {missing}"


def test_answers_are_kept_per_range_and_only_a_few(build_tables, rmsnorm):
    profile = Profile("p", build_tables(rmsnorm))
    first = profile.analyse("launches")
    assert profile.analyse("launches") is profile.analyse("launches", profile.default_range) is first
    start, end = profile.bounds
    for at in range(40):
        assert profile.analyse("lanes", profile.range(start + at, end)).rows
    assert profile.analyse("launches") is not first


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(-50, 100), min_size=1, max_size=40))
def test_the_curve_keeps_every_peak(sizes):
    events = memory_events([(index, size) for index, size in enumerate(sizes)])
    slices = [{"event_id": 0, "track_id": 0, "lane": 0, "start_ts": 0, "end_ts": 30, "name_id": 0, "op_id": 0}]
    profile = Profile("p", {"SystemProfileEvents": events, "Slice": table(own.SLICE, slices)})
    found = profile.analyse("memory")
    curve = [row for row in found.more["curve"] if row["series"] == "allocated"]
    assert max(row["peak_bytes"] for row in curve) == found.rows[-1]["peak_bytes"]
    assert curve[-1]["last_bytes"] == 1_000 + sum(sizes) and len(curve) <= 200
    profile.close()


def test_a_job_on_processors_alone_is_told_by_its_host_collectives(tmp_path):
    """Gloo's all-reduces are ranges of a thread of their own; the second rank begins each 20 us late."""
    for rank in range(2):
        events = []
        for step in range(2):
            at = 1_000 * step
            for category, name, ts, dur, tid in (
                ("user_annotation", f"ProfilerStep#{step}", at, 900, 1),
                ("cpu_op", "aten::mm", at + 10, 100, 1),
                ("user_annotation", "gloo:all_reduce", at + 80 + 20 * rank, 220 - 20 * rank, 2),
            ):
                events.append({"ph": "X", "cat": category, "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur})
        head = {"schemaVersion": 1, "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2}}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(head | {"traceEvents": events}))
    job = open_profile(tmp_path, data_path=tmp_path / "library")
    split = {
        row["category"]: row["time_ns"] for row in job.analyse("steps").rows if (row["step"], row["rank"]) == (1, 0)
    }
    assert split == {"compute": 100_000, "communication": 190_000, "outside_operators": 610_000}
    ranks = job.analyse("ranks")
    assert [row["last"] for row in ranks.rows] == [0, 2] and ranks.rows[1]["caused_ns"] == 40_000
    rules = {row["rule"]: row for row in job.analyse("insights").rows}
    assert rules["straggler"]["gain_ns"] == 2 * 40_000 and rules["exposed_communication"]["gain_ns"] > 0


def test_a_pause_between_steps_is_no_evidence_and_no_gain(job):
    """A rank's device idles 2 ms from one step to the next; only what lies in a step can make it shorter."""
    rows = {row["rule"]: row for row in job.analyse("insights").rows}
    assert rows["host_late"]["evidence"][0]["ns"] == 15_000  # from the step's start to the call of its first launch
    assert rows["host_late"]["gain_ns"] == 9 * 15_000
    assert all(row["share"] <= 1 for row in rows.values())
