"""Two profiles step by step."""

import dataclasses
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuronscope.analysis.condition import parse
from neuronscope.analysis.diff import NotComparableError, diff, judge
from neuronscope.analysis.profile import Profile


@pytest.fixture
def steps(build_tables, works):
    """A profile whose steps take the given program times, each as one `aten::mm`."""

    def make(name, times, emulated="false", **info):
        facts = {"emulated": emulated, **info}
        made = [
            works("aten::mm", launch=1_000, program=time, step=number, gap=10_000) for number, time in enumerate(times)
        ]
        return Profile(name, build_tables(made, info=facts))

    return make


def metric(found, name):
    return next(row for row in found.metrics if row.name == name)


def test_medians_spread_and_change(steps):
    found = diff(steps("a", [99_000, 100_000, 101_000]), steps("b", [119_000, 120_000, 121_000]))
    row = metric(found, "device_time")
    assert (row.before.median, row.after.median, row.change) == (101_000, 121_000, 20_000)
    assert row.before.spread == pytest.approx(2_000 / 101_000)
    assert row.verdict == "longer" and row.detectable
    assert "19.8 % longer; median of 3 steps of each" in found.sentence


def test_noise_is_no_difference(steps):
    found = diff(steps("a", [99_000, 100_000, 103_000]), steps("b", [100_000, 102_000, 104_000]))
    row = metric(found, "device_time")
    assert row.verdict == "no difference detectable (n = 3, spread 4 %)"
    worse, lines = judge(found, parse("device_time > 1%"))
    assert not worse and lines == [
        "ok: device_time > 1%: +2,000 ns (+1.98 %), no difference detectable (n = 3, spread 4 %)"
    ]


def test_the_same_program_is_the_same(steps):
    found = diff(steps("a", [5_000] * 2), steps("b", [5_000] * 2))
    assert metric(found, "device_time").verdict == "same"
    assert not judge(found, parse("device_time > 0% or executions > 0"))[0]


def test_fail_on_names_each_test(steps):
    found = diff(steps("a", [100_000] * 3), steps("b", [120_000] * 3))
    worse, lines = judge(found, parse("device_time > 5% and executions > 0 or op_device_time > 10%"))
    assert worse
    assert [line.split(":")[0] for line in lines] == ["worse", "ok", "worse"]
    assert lines[2].endswith("aten::mm")


def test_warm_up_and_partial_steps_are_left_out_and_named(steps, build_tables, works):
    tables = build_tables(
        [works("aten::mm", launch=0, program=time, step=n) for n, time in enumerate([900, 100, 101, 102, 50])]
    )
    step = tables["Step"].to_pylist()
    step[-1]["complete"] = False
    tables["Step"] = pa.Table.from_pylist(step, schema=tables["Step"].schema)
    found = diff(Profile("a", tables), steps("b", [100, 101]))
    assert metric(found, "device_time").before.values == (100, 101, 102)
    assert "a: ProfilerStep#4 left out: partial" in found.excluded
    assert any("a: ProfilerStep#0 left out: warm-up (900 ns" in text for text in found.excluded)
    assert "Different numbers of steps: a 3, b 2." in found.warnings


def test_a_renamed_kernel_meets_its_counterpart(build_tables, works):
    def profile(name, kernel, time):
        tables = build_tables([works("aten::mm", program=time), works("aten::add")])
        rows = tables["Execution"].to_pylist()
        rows[0]["name"] = kernel
        tables["Execution"] = pa.Table.from_pylist(rows, schema=tables["Execution"].schema)
        return Profile(name, tables)

    found = diff(profile("a", "gemm_v1", 1_000), profile("b", "gemm_v2", 3_000))
    first = found.paths[0]
    assert (first.name, first.change, first.note) == ("aten::mm", 2_000, "kernels: gemm_v1 → gemm_v2")
    assert found.paths[1].note == ""


def test_work_of_one_side_only_counts_from_nothing(build_tables, works):
    a = Profile("a", build_tables([works("aten::mul", launch=0, program=500)]))
    b = Profile("b", build_tables([works("aten::mul", launch=0, program=500), works("aten::add", launch=0)]))
    row = diff(a, b).paths[0]
    assert (row.name, row.before.median, row.change, row.note) == ("aten::add", 0, 3_000, "only in b")


def test_nested_calls_are_a_path(build_tables, works):
    tables = build_tables([works("aten::addmm")])
    host = tables["HostOp"].to_pylist()
    outer = {**host[0], "event_id": 999, "name": "aten::linear"}
    host[0]["parent_id"] = 999
    tables["HostOp"] = pa.Table.from_pylist([outer, *host], schema=tables["HostOp"].schema)
    profile = Profile("a", tables)
    assert [row.name for row in diff(profile, profile).paths] == ["aten::linear > aten::addmm"]


def test_unlike_profiles_are_compared_with_a_warning_but_not_judged(steps):
    found = diff(steps("a", [100, 101], target="trn2"), steps("b", [90, 91], target="trn3"))
    assert any("Different target" in text for text in found.unlike)
    with pytest.raises(NotComparableError, match="Different target: trn2 and trn3"):
        judge(found, parse("device_time > 1%"))
    assert not judge(found, parse("device_time > 1%"), allow_unlike=True)[0]


def test_nothing_to_compare(steps, build_tables, works):
    tables = build_tables([works("aten::mm")])
    del tables["Execution"]
    with pytest.raises(NotComparableError, match="host has no device work"):
        diff(steps("a", [100]), Profile("host", tables))


def test_one_measured_step_says_so(steps):
    row = metric(diff(steps("a", [100]), steps("b", [200])), "device_time")
    assert row.verdict == "longer, spread unknown (n = 1)"
    exact = metric(diff(steps("a", [100], "true"), steps("b", [200], "true")), "device_time")
    assert exact.verdict == "longer"
    assert dataclasses.replace(row, exact=True).verdict == "longer"


def noisy(steps, seed, name="a", factor=1.0, n=5, spread=0.02):
    random = Random(seed)
    return steps(name, [round(1_000_000 * factor * random.uniform(1 - spread, 1 + spread)) for _ in range(n)])


@settings(max_examples=10, deadline=None, derandomize=True)
@given(times=st.lists(st.integers(1_000, 9_000), min_size=1, max_size=5))
def test_a_profile_against_itself_is_the_same(times, build_tables, works):
    tables = build_tables([works(f"aten::op{n % 2}", program=t, step=n, gap=10_000) for n, t in enumerate(times)])
    found = diff(Profile("a", tables), Profile("b", tables))
    assert not found.unlike and not [row for row in (*found.metrics, *found.paths) if row.change]
    assert not judge(found, parse("device_time > 0% or span > 0% or executions > 0 or op_device_time > 0%"))[0]


def test_noise_is_no_difference_and_a_slowdown_is_one(steps):
    detected = sum(
        metric(diff(noisy(steps, s), noisy(steps, s + 100, "b")), "device_time").detectable for s in range(20)
    )
    assert detected <= 1  # of twenty pairs that differ by noise alone
    for seed in range(5):
        row = metric(diff(noisy(steps, seed), noisy(steps, seed + 100, "b", 1.2)), "device_time")
        assert row.detectable and row.verdict == "longer" and row.share == pytest.approx(0.2, abs=0.05)


def test_the_operator_that_was_slowed_down_is_named(build_tables, works):
    random, names = Random(3), ("aten::mm", "aten::add", "aten::mean", "aten::softmax")

    def profile(name, slow):
        made = [
            works(op, program=round((30_000 if slow != op else 36_000) * random.uniform(0.99, 1.01)), launch=0, step=n)
            for n in range(4)
            for op in names
        ]
        return Profile(name, build_tables(made, info={"emulated": "false"}))

    for slow in names:
        found = diff(profile("a", None), profile("b", slow))
        assert [row.name for row in found.paths if row.detectable] == [found.paths[0].name] == [slow]
        worse, lines = judge(found, parse("op_device_time > 10%"))
        assert worse and lines == [f"worse: op_device_time > 10%: {slow}"]


def test_one_odd_step_of_many_hides_nothing(steps):
    before = steps("a", [100_000 + n for n in range(12)])
    after = steps("b", [110_000 + n for n in range(11)] + [190_000])
    row = metric(diff(before, after), "device_time")
    assert row.detectable and row.spread < 0.01


def test_steps_of_several_ranks_are_one_sample_each(job):
    found = diff(job, job)
    assert metric(found, "executions").before.values == (6, 6, 6)
    assert len(job.steps) == 3 and job.whole_range.text == "all 3 steps"


def test_profiles_without_device_work_are_compared_by_host_time(build_tables, works):
    def profile(name, factor):
        tables = build_tables([works(op, step=n) for n in range(3) for op in ("aten::mul", "aten::add")])
        rows = [
            row | {"self_cpu_ns": row["self_cpu_ns"] * (factor if row["name"] == "aten::add" else 1)}
            for row in tables["HostOp"].to_pylist()
        ]
        del tables["Execution"], tables["Gap"]
        return Profile(name, tables | {"HostOp": pa.Table.from_pylist(rows, schema=tables["HostOp"].schema)})

    found = diff(profile("a", 1), profile("b", 2))
    assert found.sentence.startswith("Operators' host time 40.0 us → 60.0 us: 50 % longer; median of 3 steps")
    assert [row.name for row in found.paths if row.change] == ["aten::add"]
    assert judge(found, parse("self_cpu > 10% and op_self_cpu > 10%"))[0]
    with pytest.raises(NotComparableError, match="device_time is not known"):
        judge(found, parse("device_time > 1%"))


def test_paths_meet_although_one_recording_has_no_modules(build_tables, works):
    def profile(name, module):
        tables = build_tables([works("aten::mm")])
        rows = [row | {"module_path": module} for row in tables["Execution"].to_pylist()]
        return Profile(name, tables | {"Execution": pa.Table.from_pylist(rows, schema=tables["Execution"].schema)})

    assert [row.name for row in diff(profile("a", "net"), profile("b", "net")).paths] == ["net: aten::mm"]
    (row,) = diff(profile("a", "net"), profile("b", "")).paths
    assert (row.name, row.verdict, row.note) == ("aten::mm", "same", "")


def test_other_input_shapes_are_told(build_tables, works):
    def profile(name, shapes):
        tables = build_tables([works("aten::mm"), works("aten::add")])
        rows = tables["Execution"].to_pylist()
        rows[0]["shapes"] = shapes
        return Profile(name, tables | {"Execution": pa.Table.from_pylist(rows, schema=tables["Execution"].schema)})

    found = diff(profile("a", "[8,512] x [512,512]"), profile("b", "[16,512] x [512,512]"))
    text = "Different input shapes in 1 of 2 operator paths: aten::mm [8,512] x [512,512] → [16,512] x [512,512]."
    assert text in found.warnings
    assert not diff(profile("a", "[8,512]"), profile("b", "[8,512]")).warnings
