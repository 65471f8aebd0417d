import json
import math
from dataclasses import replace

import pytest

from benchmarks.accuracy.__main__ import main
from benchmarks.accuracy.entries import DEFAULT, read
from benchmarks.accuracy.report import run
from benchmarks.accuracy.roofline import fit
from benchmarks.accuracy.score import Point, score

FIGURES = {"predicted", "skipped", "median_abs_log_error", "mean_abs_error", "pairs_ordered"}


def quick():
    """A few entries of several families whose programs are small."""
    chosen = (
        "vadd-stream",
        "vadd-256000",
        "vadd-profile",
        "rmsnorm",
        "mlp_tkg-L27",
        "mlp_tkg-L25",
        "attention_cte-L69",
    )
    return [entry for entry in read(DEFAULT)[0] if any(name in entry.id for name in chosen)]


def test_json_has_the_agreed_keys(tmp_path, capsys):
    rows = json.loads(DEFAULT.read_text())["measurements"]
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"measurements": [r for r in rows if "vadd-256000" in r["id"] or "nccom-7" in r["id"]]}))
    assert main(["--measurements", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report.keys() == FIGURES | {"roofline", "families", "rows", "skips"}
    assert report["roofline"].keys() == FIGURES
    for family in report["families"].values():
        assert family.keys() == FIGURES | {"roofline"} and family["roofline"].keys() == FIGURES
    assert all(row.keys() == {"id", "published", "predicted", "roofline"} for row in report["rows"])
    assert report["predicted"] == len(report["rows"])
    assert report["skipped"] == sum(report["skips"].values())


def test_no_published_value_of_a_test_entry_reaches_a_prediction():
    entries = quick()
    changed = [e if e.fitted else replace(e, value=e.value * 7) for e in entries]
    before, after = run(entries), run(changed)
    assert before.roofline == after.roofline
    assert len(before.rows) > 15
    for a, b in zip(before.rows, after.rows, strict=True):
        assert b.predicted == pytest.approx(a.predicted) and b.roofline == pytest.approx(a.roofline), a.id


def test_the_roofline_is_fitted_on_the_calibrate_entries():
    entries = quick()
    changed = [replace(e, value=e.value * 7) if e.fitted else e for e in entries]
    assert run(entries).roofline != run(changed).roofline


def test_a_file_without_calibrate_entries_takes_the_roofline_of_the_shipped_ones():
    shipped = [e for e in read(DEFAULT)[0] if e.fitted]
    tests = [e for e in quick() if not e.fitted][:3]
    assert run(tests).roofline == run([*tests, *shipped]).roofline


def test_a_roofline_finds_the_numbers_that_made_its_observations():
    bounds = [(10.0**i, 10.0**j) for i in range(3, 7) for j in range(3, 7)]
    made = [(c, m, 20_000 + max(c / 0.5, m / 0.8)) for c, m in bounds]
    found = fit(made)
    assert found.fixed_ns == pytest.approx(20_000, rel=0.03)
    assert found.compute_efficiency == pytest.approx(0.5, rel=0.03)
    assert found.memory_efficiency == pytest.approx(0.8, rel=0.03)


def test_pairs_need_like_work_and_unlike_times_and_a_tie_is_half():
    slow, fast = Point(2.0, 2.0, 200.0, 150.0), Point(1.0, 1.0, 100.0, 160.0)
    near, other, tie = Point(1.0, 1.0, 110.0, 1.0), Point(9.0, 1.0, 900.0, 1.0), Point(1.0, 1.0, 150.0, 160.0)
    assert score([[slow, fast]]).pairs_ordered == 0
    assert score([[fast, near]]).pairs == 0
    assert score([[fast, other]]).pairs == 0
    assert score([[fast, tie]]).pairs_ordered == 0.5
    assert score([[slow], [fast]]).pairs == 0
    assert score([[fast]]).median_abs_log_error == pytest.approx(math.log(1.6))


@pytest.mark.parametrize(
    "name",
    [
        "cs149-vadd-ROW_CHUNK=1",
        "cs149-vadd-ROW_CHUNK=128",
        "cs149-vadd-stream_FREE_DIM=2",
        "cs149-vadd-stream_FREE_DIM=200",
        "cs149-vadd-256000-2000",
        "cs149-vadd-256000-1000",
        "tut-matmul-trn2-v2",
        "tut-matmul-trn2-v3",
        "tut-matmul-trn2-v4",
        "tut-matmul-trn2-v5",
        "cs149t1-vadd-profile_2000",
        "cs149t1-vadd-profile_1000",
        "own-rmsnorm-eager-add",
        "own-rmsnorm-eager-rsqrt",
        "own-rmsnorm-eager-mean",
        "own-rmsnorm-fused",
        "own-rmsnorm-compiled",
    ],
)
def test_published_latencies_are_predicted_within_15_percent(name):
    (row,) = run([entry for entry in read(DEFAULT)[0] if entry.id == name]).rows
    assert abs(row.predicted / row.published - 1) < 0.15


@pytest.mark.parametrize("family", ["attention", "elementwise", "normalization", "MLP and QKV"])
def test_small_programs_are_predicted_within_a_third(family):
    figures = run([e for e in quick() if not e.fitted]).figures(family)
    assert figures["median_abs_log_error"] < 0.3


def test_a_long_loop_continues_at_its_steady_pace():
    from neuroncore.targets import load_target
    from neuroncore.timing import simulate

    from benchmarks.kernels.vector import vector_add
    from benchmarks.kernels.writer import steady_ns

    target = load_target("trn2")

    def play(tiles):
        return simulate(vector_add(tiles * 128 * 100, 128, 100), target).program_ns

    assert steady_ns(play, 200, first=32, second=64) == pytest.approx(play(200), rel=0.01)
