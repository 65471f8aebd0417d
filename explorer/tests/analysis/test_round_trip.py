"""An export opened again is the profile that was exported: events, device time, every table, whatever the format."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuronscope.analysis.export import export
from neuronscope.analysis.filter import filtered
from neuronscope.analysis.library import ingest_result, open_profile
from neuronscope.analysis.profile import Profile
from neuronscope.cli.printing import found_lines
from neuronscope.formats.errors import FormatError

FORMS = (("json", "a.json"), ("json", "b.json.gz"), ("perfetto", "c.json"), ("perfetto", "d.pftrace"),
         ("perfetto", "e.pftrace.gz"), ("parquet", "f"))  # fmt: skip


def contents(profile: Profile) -> dict[str, Any]:
    """All that a profile holds and says, but where it lies."""
    figures = ingest_result(profile).as_json()
    del figures["format"]
    told = {"exported_as", "exported_from"}
    facts = {key: value for key, value in profile.info.items() if key not in told}
    tables = {name: profile.rows(f'SELECT * FROM "{name}"') for name in profile.tables if name != "ProfileInfo"}
    return {"figures": figures, "facts": facts, "averages": profile.analyse("averages").rows, **tables}


def reopened(profile: Profile, form: str, target: Path) -> Profile:
    export(profile, form, target)
    return open_profile(target, data_path=target.parent / "library")


names = st.sampled_from(["aten::mm", "gemm<float>", "a\\b", 'say "hi"', "naïve 🦀", "x" * 300, ""])


@st.composite
def events(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Operators, calls, kernels, copies, frames, arrows and instants, linked as chance has it."""
    found: list[dict[str, Any]] = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 5, "args": {}}
    ]
    for _ in range(draw(st.integers(0, 14))):
        number = draw(st.integers(0, 4))
        at = draw(st.integers(0, 10**6)) / 1000
        event: dict[str, Any] = {"ph": "X", "name": draw(names), "ts": at, "pid": 1, "tid": draw(st.integers(1, 2))}
        event["dur"] = draw(st.sampled_from([0, 0.001, 3, 12.5, 400]))
        event["cat"] = draw(st.sampled_from(
            ["cpu_op", "cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset", "python_function", "user_annotation",
             "gpu_user_annotation", "overhead", "kernel", "cpu_op", "odd"]
        ))  # fmt: skip
        event["args"] = {"External id": number, "correlation": number}
        if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            event["args"] |= {"device": draw(st.integers(0, 1)), "stream": 7, "bytes": 64}
        if draw(st.booleans()) and event["cat"] == "odd":
            event |= {"ph": draw(st.sampled_from("isftCBEbe")), "id": number}
        found.append(event)
    return found


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.data())
def test_an_export_of_any_trace_opens_as_what_was_exported(data: st.DataObject) -> None:
    listed = data.draw(events())
    form, name = data.draw(st.sampled_from(FORMS))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": listed}))
        profile = open_profile(path, data_path=Path(place) / "library")
        again = reopened(profile, form, Path(place) / name)
        assert contents(again) == contents(profile)


@pytest.mark.parametrize(("form", "name"), FORMS)
def test_a_session_keeps_every_table(golden: Profile, tmp_path: Path, form: str, name: str) -> None:
    again = reopened(golden, form, tmp_path / name)
    assert contents(again) == contents(golden)
    assert ingest_result(again).device_slices == 7
    twice = reopened(again, form, tmp_path / f"again-{name}")
    assert contents(twice) == contents(golden)


@pytest.mark.parametrize(
    ("form", "name", "told"),
    [
        ("json", "a.json", "JSON"),
        ("perfetto", "b.json", "Chrome trace JSON"),
        ("perfetto", "c.pftrace", "Perfetto trace"),
    ],
)
def test_it_says_what_it_is_and_where_it_came_from(
    golden: Profile, tmp_path: Path, form: str, name: str, told: str
) -> None:
    again = reopened(golden, form, tmp_path / name)
    assert ingest_result(again).format == f"neuronscope session, exported by Neuronscope as {told}"
    assert f"exported by Neuronscope as {told}" in " ".join(found_lines(again))
    assert again.info["exported_from"] == str(golden.source or golden.info["path"])


def test_a_part_of_a_profile_opens_with_the_figures_of_the_part(golden: Profile, tmp_path: Path) -> None:
    part = filtered(golden, event_types=["^nc_exec_running"])
    again = reopened(part, "perfetto", tmp_path / "part.json")
    result = ingest_result(again)
    count = part.row_count("SystemProfileEvents")
    assert (result.events_in_file, result.stored, result.skipped) == (count, count, 0)
    assert result.device_slices == part.row_count("Execution") < ingest_result(golden).device_slices


def test_tables_in_an_archive_are_taken_as_they_are(golden: Profile, tmp_path: Path) -> None:
    export(golden, "parquet", tmp_path / "tables")
    with zipfile.ZipFile(tmp_path / "tables.zip", "w") as archive:
        for file in (tmp_path / "tables").iterdir():
            archive.write(file, f"tables/{file.name}")
    assert contents(open_profile(tmp_path / "tables.zip", data_path=tmp_path / "library")) == contents(golden)


def kernels(path: Path, tmp_path: Path) -> tuple[int, int, set[str]]:
    result = ingest_result(open_profile(path, data_path=tmp_path / "library"))
    assert result.stored + result.skipped == result.events_in_file
    return result.device_slices, result.device_time_ns, {row.kind for row in result.warnings}


@pytest.mark.parametrize("form", ["json", "perfetto"])
@pytest.mark.parametrize("damage", ["edited", "cut", "table"])
def test_an_export_that_was_changed_is_read_as_others_see_it(tmp_path: Path, form: str, damage: str) -> None:
    ids = {"correlation": 3, "device": 0, "stream": 7}
    trace = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 9},
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 10, "args": ids},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 7, "ts": 40, "dur": 5, "args": ids},
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": trace}))
    profile = open_profile(tmp_path / "trace.json", data_path=tmp_path / "library")
    target = tmp_path / "export.json"
    export(profile, form, target)
    text = target.read_text()
    if damage == "edited":
        text = text.replace('"gemm"', '"other"')
    elif damage == "cut":
        text = text[: text.index('"neuronscope_tables"') + 400]
    else:
        at = text.index('"Slice": "') + 40
        text = text[:at] + "AAAA" + text[at + 4 :]
    target.write_text(text)
    slices, busy, kinds = kernels(target, tmp_path)
    assert (slices, busy) == (2, 15_000)
    assert "export_changed" in kinds


def test_a_damaged_perfetto_export_is_refused_in_one_line(golden: Profile, tmp_path: Path) -> None:
    target = tmp_path / "a.pftrace"
    export(golden, "perfetto", target)
    whole = target.read_bytes()
    for data in (whole[:-100], whole[:900] + b"\0" + whole[901:], whole[:60]):
        target.write_bytes(data)
        with pytest.raises(FormatError, match=r"can't be opened again|a Perfetto trace"):
            open_profile(target, data_path=tmp_path / "library")


def test_other_viewers_read_the_exports(golden: Profile, tmp_path: Path) -> None:
    export(golden, "perfetto", tmp_path / "a.json.gz")
    document = json.loads(gzip.decompress((tmp_path / "a.json.gz").read_bytes()))
    assert list(document)[-1] == "neuronscope_tables"  # viewers that stop at a key they don't know have seen all
    assert document["traceEvents"]
    shutil.rmtree(tmp_path / "library", ignore_errors=True)
