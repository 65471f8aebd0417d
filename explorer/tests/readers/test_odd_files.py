# ruff: noqa: E501 - rows of JSON stay on their line
"""Damaged and peculiar traces: what can be shown is shown, and every repair and loss is counted with its place."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from neuronscope.formats.errors import FormatError
from neuronscope.readers import detect
from neuronscope.store import Profile

Ingest = Callable[..., Profile]

OP = '{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 100, "tid": 100, "ts": 10.000, "dur": 50.000, "args": {"External id": 1}}'
LAUNCH = (
    '{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 100, "tid": 100, "ts": 20.000, "dur": 5.000, '
    '"args": {"External id": 1, "correlation": 1}}'
)
KERNEL = (
    '{"ph": "X", "cat": "kernel", "name": "ok_kernel", "pid": 0, "tid": 7, "ts": 30.000, "dur": 10.000, '
    '"args": {"External id": 1, "device": 0, "stream": 7, "correlation": 1}}'
)


def document(*extra: str, tail: str = '"traceName": "t.json"') -> str:
    rows = ",\n  ".join((OP, LAUNCH, KERNEL, *extra))
    return f'{{\n  "schemaVersion": 1,\n  "traceEvents": [\n  {rows}\n  ],\n  {tail}\n}}\n'


def names(profile: Profile) -> list[str]:
    return profile.table("SystemProfileEvents")["name"].to_pylist()  # type: ignore[no-any-return]


def counts(profile: Profile) -> tuple[int, int, int, int]:
    r = profile.result
    return r.events_in_file, r.stored, r.repaired, r.skipped


def kinds(profile: Profile) -> dict[str, int]:
    return {w.kind: w.count for w in profile.result.warnings}


def python_row(name: str) -> str:
    return (
        f'{{"ph": "X", "cat": "python_function", "name": "{name}", "pid": 100, "tid": 100, "ts": 80.000, "dur": 2.000, '
        f'"args": {{"Python id": 5, "Python parent id": null}}}}'
    )


AFTER = '{"ph": "X", "cat": "cpu_op", "name": "after", "pid": 100, "tid": 100, "ts": 90.000, "dur": 1.000, "args": {}}'


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("torch\\cuda\\__init__.py(219): _lazy_init", "torch\\cuda\\__init__.py(219): _lazy_init"),
        ('{"device": "cpu", "dtype": "float32"}(12): run', '{"device": "cpu", "dtype": "float32"}(12): run'),
        ("step\ntwo of\tthree", "step\ntwo of\tthree"),
        ("bell\x07", "bell\x07"),
        ('say "hi", then go', 'say "hi", then go'),
    ],
    ids=["backslashes", "quotes", "newline", "control", "comma-quote"],
)
def test_a_badly_escaped_name_is_mended(ingest: Ingest, written: str, shown: str) -> None:
    profile = ingest(document(python_row(written), AFTER))
    assert counts(profile) == (5, 5, 1, 0)
    assert {shown, "after", "ok_kernel"} <= set(names(profile))
    (row,) = [w for w in profile.result.warnings if w.kind == "repaired"]
    assert row.offset == document(python_row(written), AFTER).index('{"ph": "X", "cat": "python_function"')


def test_bytes_that_are_not_utf8_are_replaced_and_counted(ingest: Ingest) -> None:
    profile = ingest(document(python_row("caf@"), AFTER).encode().replace(b"@", b"\xe9"))
    assert counts(profile) == (5, 5, 1, 0)
    assert "caf\ufffd" in names(profile)


@pytest.mark.parametrize("word", ["inf", "-inf", "nan", "-nan(ind)", "NaN", "Infinity", "None"])
def test_bare_words_in_arguments_are_unknown(ingest: Ingest, word: str) -> None:
    copy = KERNEL.replace("kernel", "gpu_memcpy", 1).replace(
        '"stream": 7', f'"stream": 7, "memory bandwidth (GB/s)": {word}'
    )
    profile = ingest(document(copy.replace('"dur": 10.000', '"dur": 0').replace('"ts": 30.000', '"ts": 60.000')))
    assert counts(profile) == (4, 4, 1, 0)
    executions = profile.table("Execution").to_pylist()
    assert [(e["kind"], e["duration_ns"]) for e in executions] == [("exec", 10_000), ("memcpy", 0)]


@pytest.mark.parametrize(
    "broken",
    [
        AFTER.replace('"tid"', 'tid"'),
        AFTER.replace('"ts": 90.000,', '"ts": 90.000'),
        AFTER.replace('"args": {}', '"args": {},'),
        AFTER.replace('"dur": 1.000', '"dur": 01.000'),
        AFTER.replace('"after"', '"after'),
        AFTER.replace('"dur": 1.000', '"dur": 1,000'),
        AFTER.replace('"dur": 1.000', '"dur": +1.000'),
        AFTER.removesuffix("}"),
        AFTER.removesuffix("}}"),
    ],
    ids=[
        *("open quote", "comma", "trailing comma", "leading zero", "close quote", "decimal comma", "plus", "bracket"),
        "two brackets",
    ],
)
def test_broken_punctuation_costs_no_event(ingest: Ingest, broken: str) -> None:
    profile = ingest(document(broken, LAUNCH.replace("cudaLaunchKernel", "cudaStreamSynchronize")))
    assert counts(profile) == (5, 5, 1, 0)
    durations = dict(zip(names(profile), profile.table("SystemProfileEvents")["duration_ns"].to_pylist(), strict=True))
    assert durations["after"] == 1000
    assert profile.result.device_time_ns == 10_000


def test_an_event_beyond_repair_is_skipped_and_its_neighbours_stay(ingest: Ingest) -> None:
    text = document('{"ph": "X", "name": ]]]}', AFTER)
    profile = ingest(text)
    assert counts(profile) == (5, 4, 0, 1)
    assert "after" in names(profile)
    (row,) = [w for w in profile.result.warnings if w.kind == "skipped"]
    assert row.offset == text.index('{"ph": "X", "name": ]')


@pytest.mark.parametrize("where", [0.3, 0.6, 0.9])
def test_a_truncated_file_shows_what_is_there(ingest: Ingest, synthetic: Any, tmp_path: Path, where: float) -> None:
    synthetic.write(tmp_path / "whole.json", steps=1, calls=40)
    data = (tmp_path / "whole.json").read_bytes()
    profile = ingest(data[: int(len(data) * where)])
    result = profile.result
    assert result.stored > 280 * where * 0.8
    assert result.skipped <= 1
    assert result.stored + result.skipped == result.events_in_file
    assert {"truncated", "no_closing_bracket"} & set(kinds(profile))


def test_a_truncated_gzip_shows_what_is_there(ingest: Ingest, synthetic: Any, tmp_path: Path) -> None:
    synthetic.write(tmp_path / "whole.json.gz", steps=2, calls=400)
    data = (tmp_path / "whole.json.gz").read_bytes()
    profile = ingest(data[: len(data) * 2 // 3], "cut.json.gz")
    assert profile.result.stored > 1000
    assert "truncated_gzip" in kinds(profile)


def test_damaged_gzip_data_show_what_came_before(ingest: Ingest, synthetic: Any, tmp_path: Path) -> None:
    synthetic.write(tmp_path / "whole.json.gz", steps=2, calls=400)
    data = bytearray((tmp_path / "whole.json.gz").read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = b"\xff" * 64
    profile = ingest(bytes(data), "bad.json.gz")
    assert profile.result.stored > 0
    assert {"damaged_gzip", "truncated_gzip"} & set(kinds(profile))


def test_several_gzip_members_are_one_file(ingest: Ingest) -> None:
    data = document(AFTER).encode()
    profile = ingest(gzip.compress(data[:300]) + gzip.compress(data[300:]), "two.json.gz")
    assert counts(profile) == (4, 4, 0, 0)
    assert "gzip_members" in kinds(profile)


def test_a_second_document_is_not_dropped_silently(ingest: Ingest) -> None:
    second = f'{{"schemaVersion": 1, "traceEvents": [{AFTER}]}}'
    profile = ingest(document() + second)
    assert counts(profile) == (4, 3, 0, 1)
    (row,) = [w for w in profile.result.warnings if w.kind == "second_document"]
    assert (row.count, row.offset) == (1, len(document()))


def test_an_array_without_its_bracket_loads_as_it_is(ingest: Ingest) -> None:
    profile = ingest(
        '[\n{"name": "a", "ph": "X", "ts": 1, "dur": 5, "pid": 1, "tid": 1},\n{"name": "b", "ph": "X", "ts": 2, "dur": 1, "pid": 1, "tid": 1},\n'
    )
    assert counts(profile) == (2, 2, 0, 0)


@pytest.mark.parametrize(
    "encode",
    [
        lambda t: b"\xef\xbb\xbf" + t.replace("\n", "\r\n").encode(),
        *(lambda t, coding=coding: t.encode(coding) for coding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32")),
    ],
)
def test_what_windows_tools_make_of_a_file_loads(ingest: Ingest, encode: Callable[[str], bytes]) -> None:
    assert counts(ingest(encode(document()))) == (3, 3, 0, 0)


def test_brackets_in_the_trace_name_are_no_end_of_the_list(ingest: Ingest) -> None:
    assert counts(ingest(document(tail='"traceName": "fit-[Strategy]X[0].json"'))) == (3, 3, 0, 0)


def test_arguments_of_any_type_load(ingest: Ingest) -> None:
    rows = [
        AFTER.replace('"args": {}', f'"args": {value}') for value in ("[]", "null", '"x"', "7", '{"External id": "5"}')
    ]
    profile = ingest(document(*rows))
    assert counts(profile) == (8, 8, 0, 0)
    attributes = profile.table("SystemProfileEvents")["extra_attributes_json"].to_pylist()
    assert {"category": "cpu_op", "args": "x"} in [json.loads(text) for text in attributes]


def test_names_of_any_type_load(ingest: Ingest) -> None:
    assert counts(ingest(document(AFTER.replace('"after"', "null"), AFTER.replace('"after"', "12")))) == (5, 5, 0, 0)


def test_negative_durations_do_not_touch_totals(ingest: Ingest) -> None:
    bad = KERNEL.replace("30.000", "60.000").replace('"dur": 10.000', '"dur": -1615207264505.000')
    profile = ingest(document(bad, AFTER.replace('"dur": 1.000', '"dur": -79.000')))
    assert profile.result.device_time_ns == 10_000
    assert kinds(profile)["negative_duration"] == 2
    slices = profile.table("Slice")
    assert max(slices["end_ts"].to_pylist()) - min(slices["start_ts"].to_pylist()) <= 100_000


def test_deep_nesting_and_huge_numbers_do_not_break_the_reader(ingest: Ingest) -> None:
    deep = AFTER.replace('"args": {}', '"args": ' + "[" * 5000 + "]" * 5000)
    huge = AFTER.replace('"args": {}', '"args": {"External id": ' + "9" * 400 + "}")
    profile = ingest(document(deep, huge, AFTER))
    assert names(profile).count("after") >= 2
    assert profile.result.stored + profile.result.skipped == profile.result.events_in_file == 6


def test_a_damaged_header_does_not_hide_the_events(ingest: Ingest) -> None:
    text = document().replace('"traceEvents": [', '"traceEvents"args": [1]": [')
    assert counts(ingest(text)) == (3, 3, 0, 0)
    assert "damaged_header" in kinds(ingest(text))


def test_rows_without_time_are_left_out_and_counted(ingest: Ingest) -> None:
    profile = ingest(document(AFTER.replace('"ts": 90.000, ', ""), AFTER.replace("90.000", '"soon"')))
    assert counts(profile) == (5, 3, 0, 2)
    assert kinds(profile)["no_timestamp"] == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"schemaVersion": 1, "distributedInfo": {"rank": 3}}', "no traceEvents; is this a Kineto trace?"),
        ("", "empty file"),
        ("hello", "unknown format"),
        ("{]", "no traceEvents"),
        ('{"traceEvents": []}', "its list of events is empty"),
        ("PAR1....", "one Parquet table"),
    ],
)
def test_what_is_no_trace_gets_one_clear_line(ingest: Ingest, content: str, says: str) -> None:
    with pytest.raises(FormatError) as caught:
        ingest(content)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_path_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        detect(tmp_path / "nothing.json")


def test_a_folder_without_a_profile_lists_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"trace_info\.pb"):
        detect(tmp_path)


def test_damage_in_a_large_file_costs_only_the_damaged_events(ingest: Ingest, synthetic: Any, tmp_path: Path) -> None:
    expected = synthetic.write(tmp_path / "whole.json", steps=1, calls=3000)
    data = (tmp_path / "whole.json").read_bytes()
    hurt = data.replace(b"model.py(17): forward", b"model\\py(17): \x01forward", 5)
    profile = ingest(hurt)
    assert counts(profile) == (expected.events, expected.events, 5, 0)
    assert profile.result.device_slices == expected.kernels


def test_bytes_that_are_not_utf8_in_arguments_are_replaced_and_counted(ingest: Ingest) -> None:
    text = document(AFTER.replace('"args": {}', '"args": {"note": "caf@"}'), AFTER)
    assert counts(ingest(text.encode().replace(b"@", b"\xe9"))) == (5, 5, 1, 0)


def test_two_writers_in_one_file_cost_only_the_event_that_was_cut(ingest: Ingest) -> None:
    text = document(AFTER)
    at = text.index(KERNEL) + 4
    profile = ingest(text[:at] + document(KERNEL.replace("ok_kernel", "other")) + text[at:])
    assert {"aten::add", "cudaLaunchKernel", "ok_kernel", "other"} <= set(names(profile))
    assert profile.result.stored + profile.result.skipped == profile.result.events_in_file


@pytest.mark.parametrize("between", ["\n", ",\n", "\r\n\r\n"], ids=["line", "comma", "blank line"])
def test_one_event_per_line_without_a_list_loads(ingest: Ingest, between: str) -> None:
    profile = ingest(between.join((OP, LAUNCH, KERNEL)) + between)
    assert counts(profile) == (3, 3, 0, 0)
    assert "no_list" in kinds(profile)


def test_names_tell_crossing_begin_and_end_rows_apart(ingest: Ingest) -> None:
    def row(ph: str, name: str, ts: int, **args: int) -> dict[str, Any]:
        return {"ph": ph, "name": name, "ts": ts, "pid": 1, "tid": 1, "args": args}

    profile = ingest([row("B", "a", 1, x=1, y=1), row("B", "b", 2), row("E", "a", 5, y=2), row("E", "", 7)])
    table = profile.table("SystemProfileEvents")
    durations = dict(zip(names(profile), table["duration_ns"].to_pylist(), strict=True))
    assert durations == {"a": 4_000, "b": 5_000}
    assert json.loads(table["extra_attributes_json"][0].as_py()) == {"x": 1, "y": 2, "begin": {"y": 1}}


def test_an_async_end_without_a_name_ends_what_its_id_began(ingest: Ingest) -> None:
    begin = {"ph": "b", "cat": "c", "id": 1, "name": "a", "ts": 5, "pid": 1, "tid": 1}
    profile = ingest([begin, {**begin, "ph": "e", "name": "", "ts": 9}])
    assert profile.table("SystemProfileEvents")["duration_ns"].to_pylist() == [4_000]


def test_an_event_mended_twice_is_one_repaired_event(ingest: Ingest) -> None:
    bad = KERNEL.replace('"dur": 10.000', '"dur": NaN').replace("30.000", "60.000")
    assert counts(ingest(document(bad))) == (4, 4, 1, 0)
    assert counts(ingest(document(bad.replace("60.000", "NaN")))) == (4, 3, 0, 1)


def test_the_duration_that_stands_for_unknown_counts_in_no_total(ingest: Ingest) -> None:
    profile = ingest(document(KERNEL.replace('"dur": 10.000', '"dur": 4294967295').replace("30.000", "60.000")))
    assert (profile.result.device_time_ns, profile.result.repaired) == (10_000, 1)


@pytest.mark.parametrize(
    ("category", "slices"),
    [
        ("mtia_ccp_events", 1),
        ("collective_comm", 1),
        ("vendor_memcpy", 1),
        ("cuda_sync", 0),
        ("npu_user_annotation", 0),
    ],
)
def test_rows_of_other_devices_are_device_work_and_waits_are_not(ingest: Ingest, category: str, slices: int) -> None:
    profile = ingest(document().replace('"kernel"', f'"{category}"'))
    assert (profile.result.device_slices, profile.result.processes) == (slices, 1)


def test_one_graph_launch_of_many_kernels_is_no_fault(ingest: Ingest) -> None:
    kernels = [KERNEL.replace("30.000", f"{30 + 20 * i}.000") for i in range(1, 50)]
    profile = ingest(document(*kernels).replace("cudaLaunchKernel", "cudaGraphLaunch"))
    assert kinds(profile) == {}
    assert {row["op"] for row in profile.table("Execution").to_pylist()} == {"aten::add"}


def test_the_profilers_overhead_is_no_process(ingest: Ingest) -> None:
    row = '{"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "pid": -1, "tid": 0, "ts": 31, "dur": 4}'
    assert ingest(document(row)).result.processes == 1


def test_an_empty_object_at_the_end_of_the_list_is_no_loss(ingest: Ingest) -> None:
    assert kinds(ingest(document("{}"))) == {}


@pytest.mark.parametrize("ending", ["bz2", "xz", "tar", "tar.gz", "zip"])
def test_however_it_is_packed_it_opens(ingest: Ingest, tmp_path: Path, ending: str) -> None:
    packed = tmp_path / f"trace.json.{ending}"
    text = document(AFTER).encode()
    if ending in ("bz2", "xz"):
        packed.write_bytes(bz2.compress(text) if ending == "bz2" else lzma.compress(text))
    elif ending == "zip":
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("../../run/trace.json", text)
    else:
        with tarfile.open(packed, "w:gz" if ending == "tar.gz" else "w") as archive:
            member = tarfile.TarInfo("../../run/trace.json")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    assert counts(ingest(packed)) == (4, 4, 0, 0)
    assert not (tmp_path.parent / "run").exists()
    packed.write_bytes(packed.read_bytes()[:-40])
    if ending in ("bz2", "xz", "tar"):
        return  # what was readable is shown
    with pytest.raises(FormatError, match="archive"):
        ingest(packed)


@pytest.mark.parametrize(
    ("name", "says"),
    [("h.xplane.pb", r"trace\.json\.gz"), ("r.nsys-rep", "nsys export"), ("r.pftrace", "--output-format json")],
)
def test_a_neighbouring_tools_file_says_what_to_open_instead(ingest: Ingest, name: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        ingest(b"\x0a\x10\x50\x01abc", name)


def test_damage_in_every_tenth_of_many_events_is_mended_where_it_is(ingest: Ingest) -> None:
    row = '{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy, NaN: inf", "pid": 0, "tid": 7, "ts": %d, "dur": 5, "args": {"bw": %s}}'
    rows = [row % (10 * i, ("1.5", "inf", "-nan(ind)")[i % 10 if i % 10 < 3 else 0]) for i in range(5_000)]
    text = document(*rows)
    profile = ingest(text)
    assert counts(profile) == (5_003, 5_003, 1_000, 0)
    offsets = {w.message.split(" in ")[0]: w.offset for w in profile.result.warnings if w.kind == "repaired"}
    assert offsets == {"the bare word inf": text.index(rows[1]), "the bare word -nan(ind)": text.index(rows[2])}
    assert profile.result.device_time_ns == 10_000 + 5_000 * 5_000
    assert names(profile).count("Memcpy, NaN: inf") == 5_000
