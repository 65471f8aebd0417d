"""Operators, busy and idle time, summary, chains, SQL: on built profiles with known answers."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuronscope.analysis import Profile, QueryError
from neuronscope.analysis.card import made_by
from neuronscope.analysis.chain import chain
from neuronscope.analysis.compare import compare
from neuronscope.analysis.operators import reason, totals_of
from neuronscope.analysis.profile import slug, unique_names
from neuronscope.analysis.units import format_bytes, format_ns, format_percent, format_share
from neuronscope.schema import own


def test_operator_rows_and_total(build_tables, rmsnorm):
    table = Profile("naive", build_tables(rmsnorm)).operators()
    rows = {row.name: row for row in table.rows}
    assert rows["aten::mul"].calls == rows["aten::mul"].executions == 3
    assert rows["aten::mul"].device_time_ns == 3 * 388_000
    assert rows["aten::mul"].share == 0.5
    assert table.total.device_time_ns == table.total.launch_ns + table.total.program_ns == 6 * 388_000
    assert table.total.self_cpu_ns == 6 * 20_000


def test_device_time_that_no_operator_claims_is_a_row(build_tables, rmsnorm):
    tables = build_tables(rmsnorm)
    execution = tables["Execution"]
    at = execution.column_names.index("op")
    lost = pa.array(["" if index == 0 else op for index, op in enumerate(execution["op"].to_pylist())])
    tables["Execution"] = execution.set_column(at, "op", lost)
    rows = {row.name: row for row in Profile("p", tables).operators().rows}
    assert rows["(unlinked)"].device_time_ns == 388_000 and rows["(unlinked)"].calls == 0
    assert rows["aten::mul"].device_time_ns == 2 * 388_000 and rows["aten::mul"].calls == 3


def test_the_default_range_is_the_last_complete_step(build_tables, rmsnorm, works):
    warm_up = [works(work.op, step=2) for work in rmsnorm]
    profile = Profile("p", build_tables([*warm_up, *rmsnorm]))
    assert profile.default_range.text == "1 of 2 steps"
    assert profile.operators().total.executions == 6
    assert profile.operators(profile.whole_range).total.executions == 12
    step = profile.steps[0]
    assert profile.range(step.start, step.end).step == 2


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=12))
def test_busy_and_terms_equal_counting_nanoseconds(parts):
    """Also with overlap: a nanosecond belongs to engines and DMA, else to launches, else to gaps."""
    rows = [
        {field.name: "" if pa.types.is_dictionary(field.type) else -1 for field in own.EXECUTION.schema}
        | {
            "execution_id": index, "event_id": index, "kind": "exec", "start_ts": start,
            "end_ts": start + launch + program,
            "duration_ns": launch + program, "launch_ns": launch, "program_ns": program, "estimated_ns": 0,
        }
        for index, (start, launch, program) in enumerate(parts)
    ]  # fmt: skip
    profile = Profile("p", {"Execution": pa.Table.from_pylist(rows, schema=own.EXECUTION.schema)})
    everything = profile.range(0, 1_000)
    totals = totals_of(profile, everything)
    launching = {t for s, launch, _ in parts for t in range(s, s + launch)}
    working = {t for s, launch, program in parts for t in range(s + launch, s + launch + program)}
    first = min(s for s, _, _ in parts)
    last = max(s + launch + program for s, launch, program in parts)
    assert totals["busy_ns"] == len(launching | working)
    assert totals["work_in_span"] == len(working)
    assert totals["launch_in_span"] == len(launching - working)
    assert totals["launch_in_span"] + totals["work_in_span"] + totals["gaps_ns"] == totals["span_ns"] == last - first
    idle = profile.rows(
        "SELECT coalesce(sum(duration_ns), 0)::BIGINT AS ns FROM idle(range_start := 0, range_end := 1000)"
    )
    assert idle[0]["ns"] == totals["gaps_ns"]
    profile.close()


def test_summary_names_denominators(build_tables, rmsnorm):
    facts = Profile("naive", build_tables(rmsnorm)).summary().facts
    assert facts[0] == "Device busy 2.33 ms of the 2.39 ms from first start to last end (97 %): 6 executions."
    assert facts[1].startswith("Launch cost is 99 % of device time: 6 × 385 us, calibrated")
    assert facts[2] == "aten::mul takes 50 % of device time (1.16 ms of 2.33 ms, 3 executions)."


def test_idle_time_of_an_emulated_profile_is_not_blamed_on_a_trainium_host(build_tables, works):
    profile = Profile("late", build_tables([works("aten::mul", gap=5_000_000, cause="host_late")] * 3))
    fact = profile.summary().facts[1]
    assert "host late 100 %" in fact and "says nothing about a Trainium host" in fact


def test_estimates_are_marked(build_tables, works):
    profile = Profile("p", build_tables([works("aten::sort", program=10_000, estimated=10_000)]))
    assert "≈" in profile.summary().facts[0]
    assert "100 % of it estimated" in " ".join(reason(profile, profile.default_range)["lines"])


def test_a_host_only_profile_says_so(build_tables, rmsnorm):
    tables = build_tables(rmsnorm)
    tables = {name: table for name, table in tables.items() if name not in ("Execution", "Gap")}
    profile = Profile("cpu", tables)
    facts = profile.summary().facts
    assert facts[0].startswith("No device rows. This trace has CPU activity only.")
    assert facts[1].startswith("aten::mul takes 50 % of the operators' host time")
    assert profile.operators().total.self_cpu_ns == 120_000


def test_an_empty_profile_answers_everything():
    profile = Profile("empty", {})
    assert profile.operators().rows == ()
    assert profile.summary().facts == ("No events. The file is valid and empty.",)
    assert profile.table("Execution").num_rows == 0
    assert profile.timeline.tile(0, 100, 10).num_rows == 0


def test_chain_of_the_second_core_is_that_of_the_first(build_tables, rmsnorm):
    profile = Profile("naive", build_tables(rmsnorm))
    first, second = chain(profile, 4), chain(profile, 5)
    assert [e["id"] for e in first["events"]] == [e["id"] for e in second["events"]] == ["1", "2", "3", "4", "5"]
    assert first["upstream"] == second["upstream"] == ["1", "2", "3"]
    assert chain(profile, 1)["downstream"] == ["2", "3", "4", "5"]


def test_an_outer_call_chains_to_the_work_of_the_calls_inside(build_tables, rmsnorm):
    tables = build_tables(rmsnorm)
    ops = tables["HostOp"].to_pylist()
    for row in ops[1:3]:
        row["parent_id"] = ops[0]["event_id"]
    tables["HostOp"] = pa.Table.from_pylist(ops, schema=own.HOST_OP.schema)
    answer = chain(Profile("p", tables), ops[0]["event_id"])
    assert answer["cause"] == "1"
    assert {"4", "9", "14"} <= set(answer["downstream"])


def test_sql_reads_and_never_writes(build_tables, rmsnorm, write_tables, tmp_path):
    profile = Profile("naive", write_tables(build_tables(rmsnorm), tmp_path / "odd [name] 'x'"))
    assert profile.sql("SELECT count(*) AS n FROM Execution")["n"].to_pylist() == [6]
    assert profile.sql("SELECT name, calls FROM operators() LIMIT 1").to_pylist() == [{"name": "aten::mul", "calls": 3}]
    assert profile.sql("SELECT * FROM Instruction").num_rows == 0
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    for bad in (
        "SELECT * FROM nothing", "SELECT 1; SELECT 2", "DROP TABLE Step", "", "SELEC 1", "CREATE TABLE x AS SELECT 1",
        f"SELECT * FROM read_csv('{secret}')", f"COPY Execution TO '{tmp_path / 'out.csv'}'",
        "SET enable_external_access = true",
        "INSTALL httpfs", f"ATTACH '{tmp_path / 'x.db'}'",
    ):  # fmt: skip
        with pytest.raises(QueryError) as caught:
            profile.sql(bad)
        assert "\n" not in str(caught.value)
    assert profile.sql("SELECT count(*) AS n FROM Execution")["n"].to_pylist() == [6]


def test_split_parquet_files_are_one_table(build_tables, rmsnorm, tmp_path):
    import pyarrow.parquet as pq

    execution = build_tables(rmsnorm)["Execution"]
    pq.write_table(execution.slice(0, 2), tmp_path / "Execution_0.parquet")
    pq.write_table(execution.slice(2), tmp_path / "Execution_1.parquet")
    assert Profile("p", tmp_path).table("Execution").num_rows == 6


def test_names_become_unique_url_safe_ids():
    assert slug("my run/2") == "my-run-2" and slug("../..") == "profile" and slug("naïve") == "na-ve"
    assert unique_names(["a", "a", "a b", "a-b"]) == ["a", "a-2", "a b", "a-b-2"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 ns"), (912, "912 ns"), (999.6, "1.00 us"), (60_900, "60.9 us"), (387_940, "388 us"), (999_600, "1.00 ms"),
     (2_355_000, "2.36 ms"), (59_990_000_000, "60.0 s"), (-65_000, "-65.0 us"), (3_907_825, "3.91 ms")],
)  # fmt: skip
def test_times_have_three_significant_digits(value, text):
    assert format_ns(value) == text


def test_shares_never_round_to_nothing_or_all():
    assert format_percent(0.001) == "less than 1 %" and format_percent(0.9999) == "more than 99 %"
    assert format_percent(1.0) == "100 %" and format_percent(0.0) == "0 %"
    assert format_share(0.495) == "49.5 %" and format_share(1.0) == "100 %" and format_share(None) == "-"
    assert format_bytes(37_748) == "36.9 KiB" and format_bytes(1023) == "1023 B"


def test_a_step_without_device_work_is_not_the_default(build_tables, rmsnorm):
    tables = build_tables(rmsnorm)
    rows = tables["Step"].to_pylist()
    rows.append(
        rows[0]
        | {"number": 4, "name": "ProfilerStep#4", "start_ts": rows[0]["end_ts"] + 1, "end_ts": rows[0]["end_ts"] + 9}
    )
    tables["Step"] = pa.Table.from_pylist(rows, schema=own.STEP.schema)
    assert Profile("p", tables).default_range.step == 3


def test_several_devices_are_not_called_one(build_tables, rmsnorm):
    tables = build_tables(rmsnorm)
    rows = [row | {"device": index % 2} for index, row in enumerate(tables["Execution"].to_pylist())]
    tables["Execution"] = pa.Table.from_pylist(rows, schema=own.EXECUTION.schema)
    assert Profile("p", tables).summary().facts[0].startswith("At least one of 2 devices busy 2.33 ms")


@pytest.mark.parametrize(
    ("info", "status"),
    [
        ({}, "calibrated"),
        ({"device_cost_status.launch_cost": "estimated"}, "estimated"),  # trn3: nothing published to fit it on
        ({"device_cost_status.launch_cost": ""}, "of unknown origin"),
    ],
)
def test_the_launch_cost_is_called_what_the_target_file_calls_it(build_tables, rmsnorm, info, status):
    profile = Profile("p", build_tables(rmsnorm, info=info))
    texts = [*profile.summary().facts, *reason(profile, profile.default_range)["lines"]]
    texts.append(made_by(profile)["launch_status"])
    comparison = compare([profile, Profile("q", build_tables(rmsnorm[:1], info=info))])
    texts.append(comparison.terms(comparison.compared[1])[0].detail)
    assert sum(status in text for text in texts) == 4
    others = {"calibrated", "estimated", "of unknown origin"} - {status}
    assert not [text for text in texts for other in others if other in text]


def test_copies_to_and_from_the_host_are_no_device_time(golden):
    """As in torch's table of an emulated run: the runtime copies, and the core idles meanwhile."""
    copies = golden.rows("SELECT duration_ns, device_part, work_part FROM executions() WHERE kind = 'host_copy'")
    assert copies and all(row["duration_ns"] > 0 == row["device_part"] == row["work_part"] for row in copies)
    totals = totals_of(golden, golden.whole_range)
    executions = golden.rows("SELECT sum(duration_ns)::BIGINT AS ns FROM Execution WHERE kind = 'exec'")[0]["ns"]
    assert totals["device_time_ns"] == totals["launch_ns"] + totals["program_ns"] == executions
    assert totals["copies_ns"] == sum(row["duration_ns"] for row in copies)
    assert totals["busy_ns"] == executions
    assert totals["launch_in_span"] + totals["work_in_span"] + totals["gaps_ns"] == totals["span_ns"]
    assert golden.operators(golden.whole_range).total.device_time_ns == executions
