"""Uploads against a real server: received, read, opened; refused, broken off and cancelled without a trace."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from neuronscope.server.app import create_app
from neuronscope.server.guard import LOOPBACK, Guard
from neuronscope.server.run import bind
from neuronscope.server.uploads import UploadError, Uploads, safe_path
from neuronscope.store import Store

LIMIT = 1 << 20
BYTES = {"Content-Type": "application/octet-stream"}
ROW = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
TRACE = json.dumps({"schemaVersion": 1, "traceEvents": [ROW]}).encode()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("library")


@pytest.fixture(scope="module")
def client(library: Path) -> Iterator[httpx.Client]:
    """A client of a server without profiles whose uploads may have 1 MiB."""
    application = create_app([], Store(library), LIMIT)
    config = uvicorn.Config(Guard(application, LOOPBACK, None), log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    with bind("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=30) as http:
            yield http
        server.should_exit = True
        thread.join()
        application.state.uploads.close()


def events(client: httpx.Client, identity: str) -> list[dict[str, Any]]:
    """What the stream of an upload says until it ends."""
    with client.stream("GET", f"/api/uploads/{identity}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        return [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")]


def begin(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/api/uploads", json={"name": "run", **body})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def left(library: Path) -> set[str]:
    return {path.name for path in (library / "uploads").glob("*-*") if path.is_dir()}


def test_one_file_is_received_read_and_opened(client: httpx.Client, library: Path) -> None:
    answer = client.post("/api/uploads?name=trace.json", content=TRACE, headers=BYTES)
    assert answer.status_code == 202
    last = events(client, answer.json()["id"])[-1]
    assert (last["state"], last["received_bytes"], last["error"]) == ("done", len(TRACE), None)
    assert client.get(f"/api/profiles/{last['profile']}").json()["health"]["stored"] == 1
    assert last["profile"] in [line["id"] for line in client.get("/api/profiles").json()]
    (kept,) = (library / "uploads").glob(f"*-{last['id']}/trace.json")
    assert kept.read_bytes() == TRACE


def test_a_folder_comes_file_by_file(client: httpx.Client) -> None:
    upload = begin(client, name="two ranks", size=2 * len(TRACE))
    for rank in (0, 1):
        path = f"/api/uploads/{upload['id']}/files/rank{rank}/trace.json"
        assert client.put(path, content=TRACE, headers=BYTES).status_code == 200
    assert client.get(f"/api/uploads/{upload['id']}").json()["received_bytes"] == 2 * len(TRACE)
    assert client.post(f"/api/uploads/{upload['id']}/read", json={}).status_code == 202
    said = events(client, upload["id"])
    assert [one["state"] for one in said][-1] == "done"
    card = client.get(f"/api/profiles/{said[-1]['profile']}").json()
    assert (card["name"], card["health"]["stored"]) == ("two ranks", 2)


def test_what_is_no_profile_fails_with_its_line_and_leaves_nothing(client: httpx.Client, library: Path) -> None:
    before = left(library)
    answer = client.post("/api/uploads?name=notes.txt", content=b"hello", headers=BYTES)
    last = events(client, answer.json()["id"])[-1]
    assert last["state"] == "failed"
    assert last["error"].startswith("notes.txt: unknown format. Looked for")
    assert left(library) == before


@pytest.mark.parametrize(
    "path",
    [
        "../evil.json", "..%2fevil.json", "a/../../evil.json", "%2e%2e/evil.json", "/etc/passwd", "a//b.json",
        "a%5cb.json", "C:evil", "a%00b", ".part-x", "x" * 300,
    ],
)  # fmt: skip
def test_no_file_leaves_its_folder(client: httpx.Client, library: Path, path: str) -> None:
    upload = begin(client)
    before = {str(file) for file in library.parent.rglob("*.json")}
    url = httpx.URL(f"{client.base_url}/api/uploads/{upload['id']}/files/", raw_path=None).copy_with(
        raw_path=f"/api/uploads/{upload['id']}/files/{path}".encode()
    )
    assert client.put(url, content=TRACE, headers=BYTES).status_code in (400, 404, 405)
    assert {str(file) for file in library.parent.rglob("*.json")} == before
    assert client.delete(f"/api/uploads/{upload['id']}").json()["state"] == "cancelled"


@pytest.mark.parametrize(
    "text", ["..", "a/..", "", "a/", "/a", "a\\b", "nul\0", "a:b", "a" * 201, "x. ", "/".join("a" * 20)]
)
def test_paths_that_are_refused(text: str) -> None:
    with pytest.raises(UploadError, match="relative path"):
        safe_path(text)
    assert str(safe_path("rank 0/trace-ä.json.gz")) == "rank 0/trace-ä.json.gz"


def test_more_than_the_limit_is_refused_before_and_while_it_comes(client: httpx.Client, library: Path) -> None:
    before = left(library)
    assert client.post("/api/uploads", json={"name": "big", "size": LIMIT + 1}).status_code == 413

    def pieces() -> Iterator[bytes]:
        for _ in range(2 * LIMIT // 65_536):
            yield b"x" * 65_536

    upload = begin(client)
    try:
        answer = client.put(f"/api/uploads/{upload['id']}/files/a.json", content=pieces(), headers=BYTES)
        assert answer.status_code == 413
        assert "at most" in answer.text or "most" in answer.text
    except httpx.TransportError:  # the server hangs up on who goes on sending
        pass
    assert client.get(f"/api/uploads/{upload['id']}").json()["received_bytes"] == 0
    client.delete(f"/api/uploads/{upload['id']}")
    assert left(library) == before


def test_a_connection_that_breaks_leaves_nothing_of_the_file(client: httpx.Client, library: Path) -> None:
    upload = begin(client)
    host, port = client.base_url.host, client.base_url.port
    assert port is not None
    with socket.create_connection((host, port)) as raw:
        head = f"PUT /api/uploads/{upload['id']}/files/a.json HTTP/1.1\r\nHost: {host}:{port}\r\n"
        raw.sendall(
            f"{head}Content-Type: application/octet-stream\r\nContent-Length: 1000\r\n\r\n".encode() + b"x" * 10
        )
        time.sleep(0.2)
    deadline = time.monotonic() + 10
    (folder,) = (library / "uploads").glob(f"*-{upload['id']}")
    while list(folder.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not list(folder.iterdir())
    assert client.get(f"/api/uploads/{upload['id']}").json()["received_bytes"] == 0
    assert client.put(f"/api/uploads/{upload['id']}/files/a.json", content=TRACE, headers=BYTES).status_code == 200
    client.delete(f"/api/uploads/{upload['id']}")


def test_a_cancelled_reading_stops_and_leaves_nothing(client: httpx.Client, library: Path) -> None:
    before = left(library), {path.name for path in (library / "profiles" / "global").glob("*@latest")}
    answer = client.post("/api/uploads?name=slow.json", content=TRACE, headers=BYTES)
    identity = answer.json()["id"]
    assert client.delete(f"/api/uploads/{identity}").json()["state"] == "cancelled"
    assert events(client, identity)[-1]["state"] == "cancelled"
    assert (left(library), {path.name for path in (library / "profiles" / "global").glob("*@latest")}) == before


def test_what_a_foreign_page_can_send_is_refused(client: httpx.Client) -> None:
    foreign = {"Origin": "http://evil.example"}
    assert client.post("/api/uploads?name=a.json", content=TRACE).status_code == 415
    text = {"Content-Type": "text/plain"}
    assert client.post("/api/uploads?name=a.json", content=TRACE, headers=text).status_code == 415
    assert client.post("/api/uploads?name=a.json", content=TRACE, headers=BYTES | foreign).status_code == 403
    assert client.get("/api/uploads", headers=foreign).status_code == 200


def test_a_server_without_a_library_takes_none(client_of: Any) -> None:
    client = client_of(create_app([]))
    assert client.get("/api/uploads").json() == {"enabled": False}
    assert client.post("/api/uploads", json={"name": "x"}).status_code == 403


def test_what_a_killed_server_left_goes_at_the_next_start_and_nothing_else(tmp_path: Path) -> None:
    store = Store(tmp_path)
    uploads = tmp_path / "uploads"
    (uploads / "dead-1").mkdir(parents=True)
    (uploads / "dead-1" / ".part-x").write_bytes(b"{")
    (uploads / "dead-2").mkdir()
    (uploads / "dead-2" / "trace.json").write_bytes(TRACE)
    profile = store.add(uploads / "dead-2" / "trace.json")
    living = Uploads(store, lambda identity, name: identity)
    going_on = living.begin("run").folder
    assert not (uploads / "dead-1").exists()
    Uploads(store, lambda identity, name: identity)
    assert going_on.is_dir()
    assert store.open(profile.id).source.exists()
    living.close()
    assert {path.name for path in uploads.iterdir()} == {"dead-2"}


def test_away_from_loopback_an_upload_needs_the_token(client_of: Any, library: Path) -> None:
    application = create_app([], Store(library))
    client = client_of(Guard(application, None, "s3cret"))
    assert client.post("/api/uploads", json={"name": "x"}).status_code == 403
    assert client.request("PUT", "/api/uploads/1/files/a", content=b"x", headers=BYTES).status_code == 403
    wanted = {"Authorization": "Bearer s3cret"}
    assert client.post("/api/uploads", json={"name": "x"}, headers=wanted).status_code == 201
    application.state.uploads.close()
