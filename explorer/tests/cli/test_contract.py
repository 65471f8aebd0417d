"""`neuronscope ingest PATH --json` whatever PATH is: exit 0 and the keys of the contract, or 2 and one clear line."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import sqlite3
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from neuronscope.cli.app import run

GOOD = b'{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}'
KEYS = [
    "format", "events_in_file", "stored", "repaired", "skipped", "device_slices", "device_time_ns", "device_busy_ns",
    "processes", "ranks", "warnings",
]  # fmt: skip
Ingest = Callable[[Path], tuple[int, str, str]]


@pytest.fixture
def ingest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ingest:
    """Run the command on a path; exit code and what it printed."""

    def run_it(path: Path) -> tuple[int, str, str]:
        code = run(["ingest", str(path), "--json", "--data-path", str(tmp_path / "library")])
        out, err = capsys.readouterr()
        return code, out, err

    return run_it


def refused(found: tuple[int, str, str], *says: str) -> None:
    """Exit 2, nothing on stdout, one line that says something, on stderr."""
    code, out, err = found
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "Traceback" not in err
    assert "internal error" not in err
    for text in says:
        assert text in err


def taken(found: tuple[int, str, str]) -> dict[str, object]:
    code, out, _ = found
    assert code == 0
    printed: dict[str, object] = json.loads(out)
    assert list(printed) == KEYS
    return printed


LOOKED_FOR = "Looked for: a trace in JSON"
OTHERS: dict[str, tuple[bytes, str]] = {
    "picture.png": (b"\x89PNG\r\n\x1a\n" + bytes(90), "a PNG picture"),
    "program": (b"\x7fELF" + bytes(90), "an ELF program"),
    "model.pt": (b"\x80\x02}q\x00.", "a pickle"),
    "page.html": (b"<!doctype html>", "HTML"),
    "data.h5": (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    "notes.txt": (b"hello\n" * 9, "unknown format"),
    "zeros.json": (bytes(5000), "unknown format"),
    "line.json": (b"x" * 2_000_000, "unknown format"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_formats_are_named_and_what_was_looked_for_is_listed(tmp_path: Path, ingest: Ingest, name: str) -> None:
    content, what = OTHERS[name]
    (tmp_path / name).write_bytes(content)
    refused(ingest(tmp_path / name), name, what, LOOKED_FOR)


NOTHING: dict[str, tuple[bytes, str]] = {
    "empty.json": (b"", "empty file"),
    "blank.json": (b" \n\n", "empty file"),
    "empty.json.gz": (gzip.compress(b""), "empty file"),
    "object.json": (b'{"a": "' + b"y" * 2_000_000 + b'"}', "no traceEvents"),
    "open.json": (b'{"traceEvents": [' + b"{" * 500_000, "none of its"),
    "deep.json": (b"[" * 500_000, "empty"),
    "deep_object.json": (b'{"a":' * 500_000, "no traceEvents"),
    "snapshot.pickle": (pickle.dumps({"segments": []}), "a pickle"),
    "report.nsys-rep": (b"\1\2\3\4" * 9, "nsys export --type sqlite"),
    "cut.zip": (b"PK\x03\x04" + bytes(40), "damaged or encrypted archive"),
    "bomb.json.gz": (gzip.compress(b"[" + b" " * 20_000_000), "its list of events is empty"),
}


@pytest.mark.parametrize("name", NOTHING)
def test_a_file_with_nothing_in_it_says_why(tmp_path: Path, ingest: Ingest, name: str) -> None:
    content, why = NOTHING[name]
    (tmp_path / name).write_bytes(content)
    refused(ingest(tmp_path / name), name, why)


def test_a_database_of_another_tool(tmp_path: Path, ingest: Ingest) -> None:
    connection = sqlite3.connect(tmp_path / "other.sqlite")
    connection.execute("CREATE TABLE t (a)")
    connection.commit()
    connection.close()
    refused(ingest(tmp_path / "other.sqlite"), "a SQLite file of something else", "CUPTI_ACTIVITY_KIND_KERNEL")


def test_paths_that_are_no_files(tmp_path: Path, ingest: Ingest) -> None:
    refused(ingest(tmp_path / "absent.json"), "no such file or directory")
    (tmp_path / "link.json").symlink_to(tmp_path / "gone.json")
    refused(ingest(tmp_path / "link.json"), "a link to", "gone.json", "does not exist")
    (tmp_path / "folder").mkdir()
    refused(ingest(tmp_path / "folder"), "no profile here", "trace_info.pb")
    refused(ingest(Path(os.devnull)), "neither a file nor a folder")
    refused(ingest(Path("x" * 6000)), "no such file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path: Path, ingest: Ingest) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    refused(ingest(tmp_path / "pipe.json"), "save it to a file first")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="whoever runs this may read everything")
def test_what_may_not_be_read(tmp_path: Path, ingest: Ingest) -> None:
    (tmp_path / "closed.json").write_bytes(GOOD)
    (tmp_path / "closed.json").chmod(0)
    refused(ingest(tmp_path / "closed.json"), "Permission denied")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "trace.json").write_bytes(GOOD)
    (tmp_path / "folder").chmod(0)
    refused(ingest(tmp_path / "folder"), "folder: Permission denied")
    (tmp_path / "folder").chmod(0o700)


def test_archives_unpack_nothing_elsewhere_and_are_named(tmp_path: Path, ingest: Ingest) -> None:
    with zipfile.ZipFile(tmp_path / "traversal.zip", "w") as archive:
        archive.writestr("../../../evil.json", GOOD)
    assert taken(ingest(tmp_path / "traversal.zip"))["stored"] == 1
    with tarfile.open(tmp_path / "traversal.tar", "w") as archive_:
        member = tarfile.TarInfo("/../../evil.json")
        member.size = len(GOOD)
        archive_.addfile(member, io.BytesIO(GOOD))
        link = tarfile.TarInfo("passwords.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive_.addfile(link)
    assert taken(ingest(tmp_path / "traversal.tar"))["stored"] == 1
    assert not list(tmp_path.parent.glob("**/evil.json"))
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run/trace.json", b"[" + b" " * 20_000_000)
    found = ingest(tmp_path / "bomb.zip")
    refused(found, "bomb.zip: run/trace.json: its list of events is empty")
    assert "library" not in found[2]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the size of files")
def test_no_room_for_the_profile(tmp_path: Path, ingest: Ingest) -> None:
    import resource

    events = [
        {"ph": "X", "name": f"n{i}", "pid": 1, "tid": 1, "ts": i, "dur": 1, "args": {"x": os.urandom(40).hex()}}
        for i in range(20_000)
    ]
    (tmp_path / "large.json").write_text(json.dumps(events))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        found = ingest(tmp_path / "large.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    refused(found, "no room for the profile", "--data-path")
    left = [path.name for path in (tmp_path / "library").rglob("*") if path.is_file() and not path.name.startswith(".")]
    assert left == []
    assert taken(ingest(tmp_path / "large.json"))["stored"] == len(events)


NOT_OURS = bytes(range(7, 200))


@pytest.mark.parametrize("below", [".", "i-0abc_pid_7/20260101_000000"])
def test_a_raw_capture_names_the_command_to_run_on_the_instance(tmp_path: Path, ingest: Ingest, below: str) -> None:
    session = tmp_path / "it's a capture" / below
    session.mkdir(parents=True)
    for name in ("ntrace.pb", "trace_info.pb", "1234567_instid_0_vnc_0.ntff", "neff_1234567.neff"):
        (session / name).write_bytes(NOT_OURS)
    quoted = "'" + str(session.resolve()).replace("'", "'\"'\"'") + "'"
    command = f"neuron-explorer view -d {quoted} --ingest-only --data-path OUT"
    refused(ingest(tmp_path / "it's a capture"), command, "`neuronscope view OUT`")
    (session / "trace.json").write_bytes(GOOD)
    printed = taken(ingest(tmp_path / "it's a capture"))
    said = {row["kind"]: row["message"] for row in printed["warnings"]}  # type: ignore[attr-defined]
    assert command in said["foreign_session"]
    assert "nc_exec_running" in said["foreign_session"]


def test_raw_device_profiles_name_the_command_too(tmp_path: Path, ingest: Ingest) -> None:
    pair = tmp_path / "pair"
    pair.mkdir()
    for name in ("7654321_instid_0_vnc_0.ntff", "neff_7654321.neff"):
        (pair / name).write_bytes(NOT_OURS)
    refused(ingest(pair), f"neuron-explorer view -n {pair}/neff_7654321.neff -s {pair}/7654321_instid_0_vnc_0.ntff")
    (pair / "another.ntff").write_bytes(NOT_OURS)
    refused(ingest(pair), f"neuron-explorer view -d {pair} --ingest-only --data-path OUT")
