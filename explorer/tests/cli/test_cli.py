"""The command line, run as a user runs it: a process, its exit code, its two streams."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "SSH_CONNECTION": ""}


def run(*arguments, **environment):
    command = [sys.executable, "-m", "neuronscope.cli", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**ENVIRONMENT, **environment}
    )


def good(*arguments, **environment):
    done = run(*arguments, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def runs(build_tables, rmsnorm, works, write_tables, tmp_path_factory):
    """Folders of three processed profiles."""
    root = tmp_path_factory.mktemp("runs")
    return {
        name: write_tables(build_tables(work), root / name)
        for name, work in (
            ("naive", rmsnorm),
            ("fused", [works("aten::_fused_rms_norm", program=18_000)]),
            ("a=b", [works("aten::sort", program=9_000, estimated=9_000)]),
        )
    }


def test_compare_json_is_the_list_of_issue_2_and_nothing_else(runs):
    rows = json.loads(good("compare", runs["naive"], runs["fused"], "--json"))
    assert [row["name"] for row in rows] == ["naive", "fused"]
    naive = rows[0]
    assert list(naive) == [
        "name", "device_time_ns", "span_ns", "self_cpu_ns", "executions", "launch_ns", "program_ns", "gaps_ns",
        "bytes_moved", "ops",
    ]  # fmt: skip
    assert list(naive["ops"][0]) == [
        "name", "calls", "self_cpu_ns", "device_time_ns", "launch_ns", "program_ns", "estimated_ns",
    ]  # fmt: skip
    assert naive["device_time_ns"] == naive["launch_ns"] + naive["program_ns"] == 2_328_000
    assert naive["span_ns"] == naive["device_time_ns"] + naive["gaps_ns"]
    assert sum(op["device_time_ns"] for op in naive["ops"]) == naive["device_time_ns"]


def test_compare_explains_in_80_columns(runs):
    text = good("compare", runs["naive"], runs["fused"])
    assert "Six launches instead of one: that is 97 % of the difference." in text
    assert "-1,925,000 ns" in text and "sum, exact" in text and "-1,990,000 ns" in text
    assert max(map(len, text.splitlines())) <= 80


def test_names_and_base(runs):
    text = good("compare", runs["naive"], f"quick={runs['fused']}", "--base", "quick")
    assert "vs quick" in text
    rows = json.loads(good("compare", runs["naive"], runs["naive"], "--name", "one,two", "--json"))
    assert [row["name"] for row in rows] == ["one", "two"]
    assert [row["name"] for row in json.loads(good("compare", runs["naive"], runs["naive"], "--json"))] == [
        "naive",
        "naive-2",
    ]


def test_a_path_with_an_equals_sign_is_a_path(runs):
    rows = json.loads(good("compare", runs["a=b"], f"x={runs['a=b']}", "--json"))
    assert [row["name"] for row in rows] == ["a=b", "x"]


def test_summary_tells_facts_operators_and_reason(runs):
    text = good("summary", runs["naive"])
    for part in (
        "neuronscope session · emulated · trn2 · model 0.1", "0 dropped", "Device busy 2.33 ms", "aten::mul",
        "1.16 ms  50.0 %", "Why it takes 2.33 ms", "6 × 385 us, calibrated",
    ):  # fmt: skip
        assert part in text
    assert max(map(len, text.splitlines())) <= 80


def test_summary_json_is_exact(runs):
    answer = json.loads(good("summary", runs["naive"], "--json"))
    assert answer["device_busy_ns"] == 2_328_000 and answer["span_ns"] == 2_393_000
    assert answer["idle"] == [{"cause": "execution_gap", "count": 5, "duration_ns": 65_000}]


def test_an_estimate_is_marked(runs):
    assert "≈ 394 us" in good("summary", runs["a=b"])


def test_sql_formats(runs):
    query = "SELECT name, calls FROM operators() ORDER BY name LIMIT 1"
    assert json.loads(good("sql", runs["naive"], query, "--json")) == [{"name": "aten::add", "calls": 1}]
    assert good("sql", runs["naive"], query, "--csv") == "name,calls\naten::add,1\n"
    assert "1 row" in good("sql", runs["naive"], query)


def test_version_and_schema():
    assert good("--version").startswith("neuronscope 0.")
    schema = good("--show-profile-schema")
    assert "openapi: 3.0.3" in schema and "    SystemProfileEvents:" in schema and "    IngestReport:" in schema


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["summary", "nowhere"], "nowhere: no such file or directory"),
        (["compare", "x=nowhere"], "x=nowhere: no such file or directory"),
        (["compare", "{naive}", "--base", "other"], "no profile named 'other'"),
        (["compare", "{naive}", "--name", "a,b"], "2 names for 1 profiles"),
        (["sql", "{naive}", "DROP TABLE Step"], "read-only"),
        (["sql", "{naive}", "SELECT * FROM nothing"], "nothing"),
        (["view", "{naive}", "--host", "no.such.host.invalid"], "--host no.such.host.invalid"),
        (["view", "{naive}", "--port", "70000"], "--port"),
        (["frobnicate"], "frobnicate"),
        (["summary"], "PATH"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(runs, arguments, says):
    done = run(*(argument.format(naive=runs["naive"]) for argument in arguments))
    assert done.returncode == 2
    assert says in done.stderr and done.stderr.startswith("neuronscope: ") and done.stderr.count("\n") == 1


def test_a_file_that_is_no_profile_is_refused_in_one_line(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("hello")
    done = run("summary", file, "--data-path", tmp_path / "data")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "notes.txt" in done.stderr


def test_view_prints_facts_and_serves_until_interrupted(runs):
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    command = [sys.executable, "-m", "neuronscope.cli", "view", runs["naive"], "--port", str(port)]
    environment = {**ENVIRONMENT, "SSH_CONNECTION": "10.0.0.1 50000 10.0.0.2 22", "USER": "me", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        lines = []
        for line in server.stdout:
            lines.append(line)
            if line.startswith("Open "):
                break
        text = "".join(lines)
        assert text.count("\n  - ") == 3
        assert f"Port {port} is taken" in text
        link = text.rpartition("Open ")[2].split()[0]
        assert f"ssh -N -L {link.split(':')[2].strip('/')}:127.0.0.1:" in text and "me@10.0.0.2" in text
        with urllib.request.urlopen(f"{link}api/profiles") as answer:
            assert json.load(answer)[0]["name"] == "naive"
        server.send_signal(signal.SIGINT)
        assert server.wait(20) in (0, 130)
        assert "Traceback" not in server.stderr.read()
    taken.close()


def test_view_without_serving_ends(runs):
    assert "Device busy" in good("view", runs["naive"], "--no-serve")
    assert "Device busy" in good("view", runs["naive"], "--ingest-only")


def bad(*arguments, **environment):
    done = run(*arguments, **environment)
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    return done.stderr


DAMAGED = (
    '{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":9},\n'
    '{"ph":"s","id":1,"name":"f","pid":1,"tid":1,"ts":2},{"ph":"X","name":"b","pid":1,"tid":1},null]}'
)


def test_no_command_prints_the_help():
    assert "Commands:" in good()


@pytest.mark.parametrize("path", ["", " ", "x" * 5000, "a\nb", "/dev/null/x"])
def test_a_path_that_is_none_is_one_clear_line(path):
    assert "no such file" in bad("ingest", path) or not path.strip()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name here")
def test_a_pipe_is_refused_rather_than_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "save it to a file" in bad("ingest", tmp_path / "pipe")
    assert "neither a file" in bad("ingest", "/dev/zero")


def test_what_was_lost_comes_before_what_is_only_worth_knowing(tmp_path):
    (tmp_path / "t.json").write_text(DAMAGED)
    lines = good("ingest", tmp_path / "t.json", "--data-path", tmp_path / "store").splitlines()
    marks = [line.strip()[0] for line in lines if line.strip()[0] in "!·"]
    assert marks == ["!", "!", "·"]
    assert any("(first at byte" in line for line in lines)


def test_ingest_json_of_a_damaged_file_accounts_for_all(tmp_path):
    (tmp_path / "t.json").write_text(DAMAGED)
    found = json.loads(good("ingest", tmp_path / "t.json", "--json", "--data-path", tmp_path / "store"))
    assert (found["events_in_file"], found["stored"], found["skipped"]) == (4, 2, 2)


def test_a_file_name_that_is_not_unicode_can_be_opened_and_printed(tmp_path):
    path = tmp_path / os.fsdecode(b"odd\xff.json")
    path.write_text(DAMAGED)
    assert "odd\ufffd" in good("summary", path, "--data-path", tmp_path / "store")


def test_sql_stops_after_its_time(runs):
    query = "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.range + b.range = 7"
    assert "stopped after 0.2 s" in bad("sql", runs["naive"], query, "--timeout", "0.2")


def test_sql_cannot_write_even_where_it_may_read(runs):
    target = runs["naive"] / "more.parquet"
    assert "read-only" in bad("sql", runs["naive"], f"EXPLAIN ANALYZE COPY (SELECT 1) TO '{target}'")
    assert not target.exists()


def test_our_own_mistake_is_one_line(tmp_path, runs):
    (tmp_path / "sitecustomize.py").write_text(
        "import neuronscope.cli.opening as opening\n"
        "def broken(*arguments, **options):\n    raise ZeroDivisionError('oops')\n"
        "opening.open_profiles = broken\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    assert "internal error (ZeroDivisionError: oops)" in bad("summary", runs["naive"], PYTHONPATH=path)


def test_another_host_gets_a_link_with_a_token(runs):
    command = [sys.executable, "-m", "neuronscope.cli", "serve", str(runs["naive"]), "--host", "0.0.0.0", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        try:
            text = ""
            while "Ctrl-C" not in text:
                line = process.stdout.readline()
                assert line, text
                text += line
            link = text.partition("Open ")[2].split()[0]
            assert "whoever reaches this machine and has this link" in text and "?token=" in link
            api = link.replace("/?", "/api/profiles?")
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(api.partition("?")[0], timeout=20)
            token = link.partition("token=")[2]
            request = urllib.request.Request(api.partition("?")[0], headers={"Authorization": f"Bearer {token}"})
            assert json.load(urllib.request.urlopen(request, timeout=20))[0]["name"] == "naive"
        finally:
            process.send_signal(signal.SIGINT)
