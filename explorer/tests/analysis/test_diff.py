"""Two profiles step by step."""

import dataclasses

import pyarrow as pa
import pytest
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
