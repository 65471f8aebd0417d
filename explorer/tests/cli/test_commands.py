"""The commands top, diff and export, and what `view` takes for them, run as a user runs them."""

import gzip
import json
from pathlib import Path

import pytest
from neuronscope.cli.app import run

GOLDEN = Path(__file__).parents[1] / "golden" / "session"


@pytest.fixture
def neuronscope(capsys, tmp_path_factory, monkeypatch):
    """Runs a command in this process: (exit code, standard output, standard error)."""
    monkeypatch.setenv("NEURONSCOPE_DATA_PATH", str(tmp_path_factory.getbasetemp() / "command-data"))

    def call(*arguments):
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def runs(build_tables, works, write_tables, tmp_path_factory):
    """Two folders of processed profiles; the second takes a tenth longer, in three steps of one launch."""
    root = tmp_path_factory.mktemp("steps")
    return [
        write_tables(
            build_tables([works("aten::mm", launch=1_000, program=program, step=n) for n in range(3)]), root / name
        )
        for name, program in (("before", 99_000), ("after", 109_000))
    ]


def test_top(neuronscope):
    code, text, _ = neuronscope("top", GOLDEN, "--by", "kernel", "--limit", "1")
    assert code == 0 and "aten::mu" in text and "50.0 %" in text and "4 more" in text
    assert max(map(len, text.splitlines())) <= 80
    answer = json.loads(neuronscope("top", GOLDEN, "--by", "source", "--json")[1])
    assert answer["device_time_ns"] == sum(row["device_time_ns"] for row in answer["rows"])


def test_diff_exit_codes(neuronscope, runs):
    assert neuronscope("diff", *runs)[0] == 0
    assert neuronscope("diff", *runs, "--fail-on", "device_time > 20%")[0] == 0
    code, text, _ = neuronscope("diff", *runs, "--fail-on", "device_time > 5%")
    assert code == 1 and "worse: device_time > 5%: +10,000 ns (+10 %), longer" in text
    assert neuronscope("diff", *reversed(runs), "--fail-on", "device_time > 5%")[0] == 0
    code, _, error = neuronscope("diff", runs[0], GOLDEN, "--fail-on", "device_time > 5%")
    assert code == 2 and "not comparable: Different" in error and error.count("\n") == 1
    assert neuronscope("diff", *runs, "--fail-on", "device_time > much")[0] == 2


def test_diff_of_several_profiles_judges_each_against_the_first(neuronscope, runs):
    before, after = runs
    code, text, _ = neuronscope("diff", before, before, after, "--name", "a,same,slow", "--fail-on", "device_time > 5%")
    assert code == 1 and "ok: device_time > 5%: +0 ns" in text and "worse: device_time > 5%: +10,000 ns" in text
    answer = json.loads(neuronscope("diff", before, before, after, "--format", "json")[1])
    assert [one["metrics"][0]["verdict"] for one in answer] == ["same", "longer"]


def test_diff_formats(neuronscope, runs):
    code, text, _ = neuronscope("diff", *runs, "--format", "markdown", "--fail-on", "span > 1%")
    assert code == 1 and text.startswith("**Device time 100 us → 110 us: 10 % longer")
    assert "| `aten::mm` | 100 us | 110 us | +10.0 % | longer |" in text
    answer = json.loads(neuronscope("diff", *runs, "--format", "json", "--fail-on", "span > 1%")[1])
    assert answer["worse"] is True and answer["paths"][0]["name"] == "aten::mm" and answer["paths"][0]["n"] == 3
    assert max(map(len, neuronscope("diff", *runs)[1].splitlines())) <= 80


@pytest.mark.parametrize("form", ["parquet", "json", "summary-text", "summary-json", "perfetto"])
def test_export_and_view_write_the_same(neuronscope, tmp_path, form):
    ending = {"perfetto": ".pftrace", "parquet": ""}.get(form, ".json")
    written = []
    for number, command in enumerate((("export",), ("view",))):
        target = tmp_path / f"{number}{ending}"
        code, text, error = neuronscope(*command, GOLDEN, "--output-format", form, "--output-file", target)
        assert (code, text, error) == (0, f"wrote {target}\n", "")
        files = sorted(target.iterdir()) if target.is_dir() else [target]
        written.append([(file.name if target.is_dir() else "", file.read_bytes()) for file in files])
    assert written[0] == written[1] and all(data for _, data in written[0])


def test_a_summary_is_printed_without_a_file(neuronscope):
    told = json.loads(neuronscope("export", GOLDEN, "--output-format", "summary-json")[1])
    assert told["executions"] == 6
    assert len(told["device_profiles"]) == 6 and all(one["total_time"] > 0 for one in told["device_profiles"])
    assert "Why it takes" in neuronscope("export", GOLDEN, "--output-format", "summary-text")[1]


def test_view_takes_the_vendors_flags(neuronscope):
    code, text, _ = neuronscope(
        "view", "-d", GOLDEN, "--display-name", "a=b", "--ingest-only", "--ignore-device-profile",
        "--system-trace-filter-neuron-core", "0-1", "--system-trace-filter-instance-id", "i-emulated00c0ffee",
        "--system-trace-filter-event-type", "hardware",
    )  # fmt: skip
    assert code == 0 and text.startswith("a=b  ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["view"], "nothing to view"),
        (["view", GOLDEN, "--output-file", "x"], "needs --output-format"),
        (["view", GOLDEN, GOLDEN, "--output-format", "json"], "writes one profile"),
        (["view", GOLDEN, GOLDEN, "--display-name", "x"], "--display-name names one profile"),
        (["view", "--neff", "x.neff"], "--session-file"),
        (["view", GOLDEN, "--no-serve", "--system-trace-filter-neuron-core", "a"], "numbers and ranges"),
        (["view", GOLDEN, "--no-serve", "--system-trace-filter-neuron-core", "7"], "it has: 0"),
        (["export", GOLDEN, "--output-format", "perfetto", "--output-file", "x.txt"], ".pftrace or .json"),
        (["export", GOLDEN, "--output-format", "json", "--output-file", "-"], "needs a file"),
        (["export", GOLDEN, "--output-format", "pdf"], "pdf"),
        (["top", GOLDEN, "--by", "colour"], "colour"),
        (["view", GOLDEN, "--ingest-only", "--system-trace-primary-group", "thread_id"], "--output-format perfetto"),
        (["export", GOLDEN, "--output-format", "json", "--system-trace-primary-group", "thread_id"], "Perfetto"),
        (["export", GOLDEN, "--output-format", "perfetto", "--system-trace-primary-group", "colour"], "instance_id"),
        (["library", "tag", "nothing", "x"], "no profile 'nothing'"),
        (["library", "delete", "nothing"], "no profile 'nothing'"),
    ],
)
def test_mistakes_are_one_line(neuronscope, arguments, says):
    code, _, error = neuronscope(*arguments)
    assert code == 2 and says in error and error.count("\n") == 1


def test_a_foreign_neff_is_refused(neuronscope):
    session = next(GOLDEN.glob("*/*"))
    ntff = next(session.glob("*.ntff"))
    code, _, error = neuronscope("view", "-n", session / "trace.json", "-s", ntff, "--no-serve")
    assert code == 2 and "not a NEFF" in error


def named(file, kind):
    """Names of processes or threads, and of all slices, in a Chrome trace."""
    events = json.loads(file.read_text())["traceEvents"]
    return {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == kind}, sorted(
        e["name"] for e in events if e["ph"] == "X"
    )


@pytest.mark.parametrize(
    ("primary", "secondary", "groups", "rows"),
    [
        ("instance_id,process_id", "lnc_idx,thread_id", {"i-emulated00c0ffee / PID:4121"}, {"TID:4121"}),
        ("lnc_idx", None, {"NC:0"}, {"TID:4121"}),
        ("process_id", "lnc_idx", {"PID:4121"}, {"NC:0"}),
    ],
)
def test_groups_of_a_perfetto_export_are_the_users(neuronscope, tmp_path, primary, secondary, groups, rows):
    target, plain = tmp_path / "a.json", tmp_path / "plain.json"
    given = ["--system-trace-primary-group", primary]
    given += ["--system-trace-secondary-group", secondary] if secondary else []
    code, _, error = neuronscope("view", GOLDEN, "--output-format", "perfetto", "--output-file", target, *given)
    assert (code, error) == (0, "")
    assert neuronscope("export", GOLDEN, "--output-format", "perfetto", "--output-file", plain)[0] == 0
    processes, slices = named(target, "process_name")
    assert groups <= processes
    assert any(row in name for row in rows for name in named(target, "thread_name")[0])
    assert slices == named(plain, "process_name")[1]


def test_an_export_is_read_and_exported_again(neuronscope, tmp_path):
    """The same slices, whichever way round: session → .json → .json.gz."""
    first, second = tmp_path / "a.json", tmp_path / "b.json.gz"
    assert neuronscope("export", GOLDEN, "--output-format", "perfetto", "--output-file", first)[0] == 0
    assert neuronscope("export", first, "--output-format", "perfetto", "--output-file", second)[0] == 0
    texts = first.read_bytes(), gzip.decompress(second.read_bytes())
    found = [[e for e in json.loads(text)["traceEvents"] if e["ph"] == "X"] for text in texts]
    assert sorted((e["name"], e["dur"]) for e in found[0]) == sorted((e["name"], e["dur"]) for e in found[1])
    assert neuronscope("export", first, "--output-format", "json", "--output-file", tmp_path / "c.json.gz")[0] == 0
    assert json.loads(gzip.decompress((tmp_path / "c.json.gz").read_bytes()))["trace_event"]


def test_ingest_prints_the_same_of_a_session_and_of_its_parquet_export(neuronscope, tmp_path):
    assert neuronscope("export", GOLDEN, "--output-format", "parquet", "--output-file", tmp_path / "p")[0] == 0
    told = [json.loads(neuronscope("ingest", path, "--json")[1]) for path in (GOLDEN, tmp_path / "p")]
    assert told[0] == told[1]


def test_the_library_is_listed_tagged_renamed_and_deleted(neuronscope, tmp_path):
    trace = tmp_path / "run.json"
    trace.write_text('[{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]')
    assert neuronscope("ingest", trace)[0] == 0
    (row,) = [one for one in json.loads(neuronscope("library", "list", "--json")[1]) if one["source"] == str(trace)]
    assert (row["name"], row["tags"], row["stored"]) == ("run", [], 1) and row["opened_ns"] >= row["created_ns"]
    assert neuronscope("library", "tag", row["id"], "baseline", "draft")[1] == "#baseline #draft\n"
    assert neuronscope("library", "tag", row["id"], "--remove", "draft")[1] == "#baseline\n"
    assert neuronscope("library", "rename", row["id"], "run 7")[0] == 0
    text = neuronscope("library", "list", "--tag", "baseline", "--recent")[1]
    assert text.startswith(f"{row['id']}  run 7  ") and "#baseline" in text
    code, text, error = neuronscope("library", "delete", "run 7")
    assert code == 2 and "--yes" in error and "the original stays" in text and f"{row['id']}@latest" in text
    assert neuronscope("library", "delete", "run 7", "--yes")[0] == 0
    assert trace.exists()
    assert row["id"] not in neuronscope("library", "list")[1]


def test_a_device_profiles_summary_is_its_roofline(neuronscope):
    (timeline,) = Path(GOLDEN).rglob("*.ntff")
    code, text, _ = neuronscope("summary", str(timeline))
    assert code == 0
    assert "Roofs of one core" in text and "Vector" in text and "self CPU" not in text


@pytest.mark.parametrize("form", [(), ("--csv",), ("--json",)])
def test_sql_prints_single_precision_as_it_is_written(neuronscope, form):
    code, out, _ = neuronscope("sql", GOLDEN, "SELECT 0.1::REAL AS x, 'nan'::REAL AS y, NULL::REAL AS z", *form)
    assert code == 0 and "0.1" in out and "0.10" not in out
