"""The comparison's terms are exact and its sentence follows from them, also when the reason is another one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuronscope.analysis import Profile
from neuronscope.analysis.compare import CompareError, compare
from neuronscope.analysis.compare_api import to_api


def profile(build_tables, name, works, **options):
    return Profile(name, build_tables(works, **options))


def test_six_launches_instead_of_one(build_tables, rmsnorm, works):
    naive = profile(build_tables, "naive", rmsnorm)
    fused = profile(build_tables, "fused", [works("aten::_fused_rms_norm", program=18_000)])
    result = compare([naive, fused])
    assert result.sentence == (
        "Six launches instead of one: that is 97 % of the difference. Gaps 3 %. Bytes are no reason at this size."
    )
    terms = {term.name: term for term in result.terms(result.compared[1])}
    assert terms["launches"].text == "6 → 1" and terms["launches"].detail == "5 × 385 us, calibrated"
    assert {name: term.delta_ns for name, term in terms.items()} == {
        "launches": -1_925_000, "engines and DMA": 0, "gaps": -65_000,
    }  # fmt: skip


def test_the_reverse_reads_the_same(build_tables, rmsnorm, works):
    naive = profile(build_tables, "naive", rmsnorm)
    fused = profile(build_tables, "fused", [works("aten::_fused_rms_norm", program=18_000)])
    forward, backward = compare([naive, fused]), compare([fused, naive])
    assert backward.sentence == forward.sentence
    assert [t.delta_ns for t in backward.terms(backward.compared[1])] == [1_925_000, 0, 65_000]


def test_bytes_are_the_reason_at_4096(build_tables, works):
    size = 4096 * 4096 * 2
    naive = [works("aten::mul", program=190_000, read=size, written=size, launch=15_000) for _ in range(6)]
    fused = [works("aten::_fused_rms_norm", program=200_000, read=size, written=size, launch=15_000)]
    result = compare([profile(build_tables, "naive", naive), profile(build_tables, "fused", fused)])
    assert result.sentence.startswith("Engines and DMA take 940 us more: that is 87 % of the difference.")
    assert "Bytes are the reason: 384 MiB instead of 64.0 MiB, 926 us at HBM peak, a lower bound." in result.sentence


def test_options_of_the_profiler_that_differ_are_warned_about(build_tables, rmsnorm):
    runs = [
        profile(build_tables, name, rmsnorm, info={"notes.with_stack": stack})
        for name, stack in (("a", "1"), ("b", "0"))
    ]
    assert any("with_stack: a 1, b 0" in warning for warning in compare(runs).warnings)


def test_equal_runs_have_no_difference(build_tables, rmsnorm):
    runs = [profile(build_tables, name, rmsnorm) for name in ("a", "b")]
    assert compare(runs).sentence == "No difference in span: both take 2.39 ms."


def test_a_term_that_works_against_the_difference_is_said(build_tables, works):
    slow = [works("aten::mm", program=900_000)]
    fast = [works("aten::mm", program=100_000), works("aten::mm", program=100_000)]
    sentence = compare([profile(build_tables, "one", slow), profile(build_tables, "two", fast)]).sentence
    assert sentence.startswith(
        "one takes 302 us longer: engines and DMA take 700 us more; launches 385 us less; gaps 13.0 us less."
    )
    assert "%" not in sentence  # no share of a difference is more than all of it
    assert "Bytes are no reason: the slower run moves no more" in sentence


def test_a_dearer_launch_is_not_called_more_launches(build_tables, works):
    plain = profile(build_tables, "plain", [works("aten::mul", launch=15_000)] * 3)
    captured = profile(build_tables, "captured", [works("aten::mul", launch=385_000)] * 3)
    assert compare([plain, captured]).sentence.startswith("385 us per launch instead of 15.0 us: that is 100 %")


def test_gaps_can_be_the_reason(build_tables, works):
    late = profile(build_tables, "late", [works("aten::mul", gap=500_000)] * 3)
    prompt = profile(build_tables, "prompt", [works("aten::mul", gap=1_000)] * 3)
    assert compare([late, prompt]).sentence.startswith("Gaps between executions take 998 us more: that is 100 %")


def test_a_source_without_launch_split_has_the_terms_busy_and_gaps(build_tables, rmsnorm, works):
    info = {"emulated": "false", "target": "", "label": "real · NVIDIA H100"}
    many = profile(build_tables, "many", rmsnorm, split=False, lnc=1, info=info)
    few = profile(build_tables, "few", [works("fused")], split=False, lnc=1, info=info)
    result = compare([many, few])
    assert [term.name for term in result.terms(result.compared[1])] == ["device busy", "gaps"]
    assert result.sentence.startswith("The device is busy 1.94 ms longer, with 6 kernels instead of 1: that is 97 %")
    assert result.compared[0].to_row()["launch_ns"] is None
    assert to_api(result)["roofline"] is None


def test_three_profiles_name_the_pair_the_sentence_is_about(build_tables, rmsnorm, works):
    runs = [
        profile(build_tables, "naive", rmsnorm),
        profile(build_tables, "fused", [works("f", program=18_000)]),
        profile(build_tables, "compiled", [works("c", program=2_000)]),
    ]
    assert compare(runs).sentence.startswith("naive against compiled: six launches instead of one:")
    assert compare(runs, base="fused").base.name == "fused"


def test_unlike_profiles_are_warned_about(build_tables, rmsnorm, works):
    here = profile(build_tables, "here", rmsnorm)
    there = profile(
        build_tables,
        "there",
        [works("aten::mul", estimated=3_000)],
        info={"target": "trn3", "model_version": "0.2", "dropped": "7"},
    )
    warnings = " ".join(compare([here, there]).warnings)
    for part in (
        "Different target: here trn2, there trn3",
        "Different model version",
        "there: 7 events were dropped",
        "estimated",
    ):
        assert part in warnings


def test_alike_profiles_are_not(build_tables, rmsnorm, works):
    assert not compare([profile(build_tables, "a", rmsnorm), profile(build_tables, "b", [works("f")])]).warnings


def test_an_unknown_base_is_an_error(build_tables, rmsnorm):
    with pytest.raises(CompareError, match=r"no profile named 'c' to compare with\. Names: a"):
        compare([profile(build_tables, "a", rmsnorm)], base="c")


@pytest.mark.parametrize("lnc", [1, 2])
def test_an_execution_counts_once_however_many_cores_run_it(build_tables, rmsnorm, lnc):
    row = compare([profile(build_tables, "p", rmsnorm, lnc=lnc)]).compared[0].to_row()
    assert (row["executions"], row["device_time_ns"], row["gaps_ns"]) == (6, 6 * 388_000, 5 * 13_000)


durations = st.integers(0, 10**7)
works_lists = st.lists(st.tuples(durations, durations, durations), min_size=1, max_size=6)


@settings(max_examples=15, deadline=None)
@given(works_lists, works_lists, st.booleans())
def test_terms_sum_to_the_difference_in_span(build_tables, works, first, second, split):
    runs = [
        profile(build_tables, name, [works("op", launch=a, program=b, gap=c) for a, b, c in parts], split=split)
        for name, parts in (("a", first), ("b", second))
    ]
    result = compare(runs)
    base, other = result.compared
    assert sum(base.terms_in_span(result.split).values()) == base.totals["span_ns"]
    assert sum(t.delta_ns for t in result.terms(other)) == other.totals["span_ns"] - base.totals["span_ns"]
    assert result.sentence


def test_a_late_host_of_an_emulated_run_is_no_reason(build_tables, works):
    size = 4096 * 4096 * 2
    naive = [works("aten::mul", program=190_000, read=size, written=size) for _ in range(6)]
    naive[1].gap, naive[1].cause = 2_000_000, "host_late"
    fused = [works("f", program=200_000, read=size, written=size)]
    sentence = compare([profile(build_tables, "naive", naive), profile(build_tables, "fused", fused)]).sentence
    assert sentence == (
        "Six launches instead of one: that is 66 % of the difference that is not the host's. "
        "Engines and DMA 32 %, gaps 2 %. "
        "Bytes are the reason of the engine and DMA time: 384 MiB instead of 64.0 MiB, "
        "926 us at HBM peak, a lower bound. "
        "naive also waited 2.00 ms longer for this machine's host: that says nothing about a Trainium host."
    )


def test_a_late_host_of_a_real_run_is_a_reason(build_tables, works):
    info = {"emulated": "false", "label": "real · NVIDIA H100"}
    late = [works("k", gap=2_000_000, cause="host_late") for _ in range(3)]
    runs = [
        profile(build_tables, "late", late, split=False, info=info),
        profile(build_tables, "prompt", [works("k", gap=1_000) for _ in range(3)], split=False, info=info),
    ]
    assert compare(runs).sentence.startswith(
        "Gaps between executions take 4.00 ms more: that is 100 % of the difference."
    )
