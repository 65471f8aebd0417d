import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.accuracy.__main__ import main
from benchmarks.accuracy.case import Case
from benchmarks.accuracy.entries import DEFAULT, Entry, MeasurementsError, Skip, read
from benchmarks.accuracy.families import recognise

GOOD = {
    "id": "a", "workload": "vector add stream FREE_DIM=200", "shapes": {"n": 25600}, "dtype": "fp32",
    "generation": "trn2", "value": 15, "unit": "us", "measures": "NC latency", "source": "x", "split": "test",
}  # fmt: skip


def write(tmp_path, rows):
    path = tmp_path / "measurements.json"
    path.write_text(json.dumps({"measurements": rows}))
    return path


@pytest.mark.parametrize("text", ["", "{", "[1", '{"measurements": 3}', '{"rows": []}', '"text"', "[" * 100_000])
def test_a_file_that_is_no_list_of_measurements_is_one_line_and_exit_code_2(tmp_path, capsys, text):
    path = tmp_path / "m.json"
    path.write_text(text)
    assert main(["--measurements", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1 and not captured.out
    with pytest.raises(MeasurementsError):
        read(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"value": None}, "malformed: value is no positive number"),
        ({"value": "12"}, "malformed: value is no positive number"),
        ({"value": -1}, "malformed: value is no positive number"),
        ({"shapes": []}, "malformed: shapes is no object"),
        ({"workload": 7}, "malformed: workload is no text"),
        ({"split": "train"}, "malformed: split is not test or calibrate"),
        ({"unit": "furlongs"}, "unit 'furlongs' is no time"),
        ({"shapes": {}}, "shapes lack n"),
        ({"shapes": {"n": "many"}}, "shapes.n is no positive integer"),
        ({"shapes": {"n": -5}}, "shapes.n is no positive integer"),
        ({"generation": "gpu9"}, "generation 'gpu9' has no target"),
        ({"workload": "something else"}, "workload of no family"),
    ],
)
def test_an_entry_that_cannot_be_used_is_a_counted_skip(tmp_path, capsys, change, reason):
    assert main(["--measurements", str(write(tmp_path, [{**GOOD, **change}])), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["predicted"], report["skipped"], report["skips"]) == (0, 1, {reason: 1})


def test_an_id_may_occur_once(tmp_path):
    entries, malformed = read(write(tmp_path, [GOOD, GOOD, 3]))
    assert len(entries) == 1
    assert [m.reason for m in malformed] == ["malformed: id occurs twice", "malformed: entry is no object"]


scalars = st.none() | st.booleans() | st.integers(-(1 << 45), 1 << 45) | st.floats() | st.text(max_size=12)
_WORKLOADS = sorted({entry.workload for entry in read(DEFAULT)[0]})
_NAMES = sorted({name for entry in read(DEFAULT)[0] for name in entry.shapes})


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    workload=st.sampled_from(_WORKLOADS) | st.text(max_size=30),
    shapes=st.dictionaries(st.sampled_from(_NAMES), scalars | st.lists(st.integers(), max_size=3), max_size=10),
    dtype=st.sampled_from(["fp32", "bf16", "nl.bfloat16", "np.float16", "FP16", "", "int3"]) | st.text(max_size=8),
    generation=st.sampled_from(["trn1", "trn2", "trn3", "inf2", "not stated", ""]) | st.text(max_size=8),
)
def test_any_shapes_of_a_known_workload_are_a_case_or_a_skip_with_a_reason(workload, shapes, dtype, generation):
    entry = Entry("x", workload, shapes, dtype, generation, 1.0, "us", "device latency", "test", {"tp": "8"})
    family, result = recognise(entry)
    assert family
    if isinstance(result, Skip):
        assert str(result)
    else:
        assert isinstance(result, Case) and result.flops >= 0 and result.bytes > 0 and result.cores >= 1
        assert all(bound >= 0 for bound in result.bounds_ns())


def test_the_shipped_measurements_are_whole():
    entries, malformed = read(DEFAULT)
    assert len(entries) > 600 and not malformed
    assert {entry.split for entry in entries} == {"test", "calibrate"}
    assert "/work" not in DEFAULT.read_text()
