"""The routes of docs/http-api.md over a built profile."""

import io
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from neuronscope.analysis import Profile
from neuronscope.server.app import create_app


@pytest.fixture(scope="module")
def client(build_tables, rmsnorm, works, client_of):
    naive = Profile("naive", build_tables(rmsnorm))
    fused = Profile("fused", build_tables([works("aten::_fused_rms_norm", program=18_000)]))
    return client_of(create_app([naive, fused]))


def ok(client, path):
    response = client.get(path)
    assert response.status_code == 200, response.text
    return response.json()


def test_lists_profiles_in_the_order_opened(client):
    assert [line["name"] for line in ok(client, "/api/profiles")] == ["naive", "fused"]


def test_card_has_tracks_steps_and_facts(client):
    card = ok(client, "/api/profiles/naive")
    shorts = [track["short"] for group in card["groups"] for track in group["tracks"]]
    assert shorts == ["framework/TID:0", "framework/Stream:0", "neuron_rt/NC:0", "neuron_hw/NC0:4", "neuron_hw/NC0:5"]
    assert card["origin_ns"] == "1759000000000000000"
    assert card["default_range"]["end"] == card["span_ns"] == 2_433_000
    assert card["made_by"]["label"] == "emulated · trn2"
    assert card["health"]["clean"] and card["health"]["dropped"] == 0
    assert card["facts"][0].startswith("Device busy 2.33 ms of the 2.39 ms")
    assert card["empty"] is None


def test_tiles_are_an_arrow_stream(client):
    response = client.get("/api/profiles/naive/tiles?start=0&end=2433000&width=1000&tracks=3")
    table = pa.ipc.open_stream(io.BytesIO(response.content)).read_all()
    rows = table.to_pylist()
    assert [row["duration"] for row in rows if row["kind"] == 0] == [388_000] * 6
    assert [row["duration"] for row in rows if row["kind"] == 1] == [13_000] * 5
    assert {row["track"] for row in rows} == {3}


def test_unchanged_tile_is_answered_with_304(client):
    path = "/api/profiles/naive/tiles?start=0&end=1000000&width=500"
    tag = client.get(path).headers["etag"]
    again = client.get(path, headers={"If-None-Match": tag})
    assert again.status_code == 304 and again.content == b""
    assert client.get(path.replace("500", "501"), headers={"If-None-Match": '"other"'}).status_code == 200


def test_large_answers_are_compressed(client):
    response = client.get("/api/profiles/naive/tiles?width=4000", headers={"Accept-Encoding": "gzip"})
    assert response.headers["content-encoding"] == "gzip"


def test_event_in_full(client):
    event = ok(client, "/api/profiles/naive/events/30")
    assert event["role"] == "execution" and event["lane_label"] == "neuron_hw/NC0:5"
    assert event["execution"]["launch_ns"] == 385_000 and event["execution"]["program_ns"] == 3_000
    assert event["execution"]["physical_cores"] == 2
    assert event["gap_before"]["duration_ns"] == 13_000


def test_chain_runs_from_the_operator_to_both_physical_cores(client):
    chain = ok(client, "/api/profiles/naive/events/29/chain")
    assert [event["role"] for event in chain["events"]] == [
        "dispatch",
        "device interaction",
        "schedule",
        "execution",
        "execution",
    ]
    assert chain["cause"] == "26"
    assert chain["upstream"] == ["26", "27", "28"] and chain["downstream"] == []
    ends = {event["id"]: event for event in chain["events"]}
    assert {(link["from"], link["to"]) for link in chain["links"]} == {
        ("26", "27"),
        ("27", "28"),
        ("28", "29"),
        ("28", "30"),
    }
    assert ends["29"]["wait_ns"] == ends["29"]["start"] - ends["28"]["end"]
    assert ends["27"]["wait_reason"].endswith("behind 5 executions")


def test_neighbours_stay_in_the_lane(client):
    assert ok(client, "/api/profiles/naive/neighbours?event=4&direction=next")["id"] == "9"
    assert ok(client, "/api/profiles/naive/neighbours?event=4&direction=previous") is None


def test_gaps_largest_first_and_once_per_execution(client):
    gaps = ok(client, "/api/profiles/naive/gaps?limit=10")
    assert [gap["duration_ns"] for gap in gaps] == [13_000] * 5
    assert {gap["track_id"] for gap in gaps} == {3}


def test_operators_of_the_default_range_and_of_a_window(client):
    table = ok(client, "/api/profiles/naive/operators")
    assert next((row["name"], row["calls"]) for row in table["rows"]) == ("aten::mul", 3)
    assert table["total"]["device_time_ns"] == 6 * 388_000
    assert table["reason"]["title"] == "Why it takes 2.33 ms"
    window = ok(client, "/api/profiles/naive/operators?start=400000&end=800000")
    assert [row["name"] for row in window["rows"] if row["device_time_ns"]] == ["aten::mean"]


def test_search_by_text_and_regular_expression(client):
    assert ok(client, "/api/profiles/naive/search?q=MEAN&limit=2")["total"] == 5
    assert ok(client, "/api/profiles/naive/search?q=/^nrta_.*schedule$/")["total"] == 6
    assert client.get("/api/profiles/naive/search?q=/(/").status_code == 400


def test_ingest_report(client):
    report = ok(client, "/api/profiles/naive/ingest")
    assert report["stored"] == 30 and report["skipped"] == 0 and report["rows"][0]["kind"] == "stored"


def test_a_profile_removed_while_it_is_shown_is_told_as_gone(build_tables, rmsnorm, client_of, tmp_path):
    folder = tmp_path / "naive"
    folder.mkdir()
    for name, table in build_tables(rmsnorm).items():
        pq.write_table(table, folder / f"{name}.parquet")
    client = client_of(create_app([Profile("naive", folder, tmp_path / "trace.json")]))
    ok(client, "/api/profiles/naive")
    shutil.rmtree(folder)
    for path in ("search?q=mul", "events/1", "operators"):
        answer = client.get(f"/api/profiles/naive/{path}")
        assert answer.status_code == 410
        assert answer.json()["error"].startswith("naive: removed from the library")
        assert f"neuronscope view {tmp_path / 'trace.json'}" in answer.json()["error"]


def test_overview_is_busy_where_the_device_works(client):
    tracks = {
        track["kind"]: track
        for track in ok(client, "/api/profiles/naive/overview?start=0&end=2433000&width=50")["tracks"]
    }
    assert max(tracks["device"]["busy"]) == 1.0
    assert tracks["framework"]["busy"][-1] == 0.0
    assert len(tracks["device"]["name_id"]) == 50


def test_comparison_terms_sum_to_the_difference_in_span(client):
    answer = ok(client, "/api/compare?profiles=naive,fused&base=naive")
    naive, fused = answer["profiles"]
    assert fused["delta_span_ns"] == fused["span_ns"] - naive["span_ns"] == sum(t["delta_ns"] for t in fused["terms"])
    assert answer["sentence"].startswith("Six launches instead of one: that is 97 % of the difference.")
    assert {point["bound"] for point in answer["roofline"]["points"]} == {"launch"}


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/api/profiles/nobody", 404, "no profile 'nobody'. Opened: naive, fused"),
        ("/api/profiles/naive/events/999", 404, "no event 999"),
        ("/api/profiles/naive/events/999/chain", 404, "no event 999"),
        ("/api/profiles/naive/events/x", 400, "not a number"),
        ("/api/profiles/naive/events/99999999999999999999", 400, "64 bits"),
        ("/api/profiles/naive/tiles?width=0", 400, "width=0"),
        ("/api/profiles/naive/tiles?width=many", 400, "whole number"),
        ("/api/profiles/naive/tiles?start=5&end=5", 400, "end must be greater"),
        ("/api/profiles/naive/tiles?tracks=a", 400, "track ids"),
        ("/api/profiles/naive/neighbours?event=4&direction=up", 400, "next or previous"),
        ("/api/compare?profiles=naive,nobody", 404, "nobody"),
        ("/api/nothing", 404, "no route"),
    ],
)
def test_errors_are_one_json_line(client, path, status, says):
    response = client.get(path)
    assert response.status_code == status
    assert says in response.json()["error"] and "\n" not in response.json()["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml",
        "/%2e%2e/%2e%2e/pyproject.toml",
        "/..%2f..%2f__init__.py",
        "/assets/../../app.py",
        "//etc/passwd",
    ],
)
def test_no_path_leaves_the_page_folder(client, path, tmp_path, monkeypatch):
    root = tmp_path / "web"
    root.mkdir()
    (root / "index.html").write_text("<title>page</title>")
    (tmp_path / "app.py").write_text("secret")
    monkeypatch.setattr("neuronscope.server.web.WEB_ROOT", root)
    response = client.get(path)
    assert "secret" not in response.text and "root:" not in response.text and "[project]" not in response.text


def test_page_is_served_and_its_own_routes_get_it_too(client, tmp_path, monkeypatch):
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<title>page</title>")
    (tmp_path / "assets" / "index-abc.js").write_text("1")
    monkeypatch.setattr("neuronscope.server.web.WEB_ROOT", tmp_path)
    assert "page" in client.get("/").text
    assert "page" in client.get("/profile/naive").text
    script = client.get("/assets/index-abc.js")
    assert (
        script.headers["content-type"].startswith("text/javascript") and "immutable" in script.headers["cache-control"]
    )
    assert client.get("/assets/none.js").status_code == 404


def test_a_missing_page_says_how_to_build_it(client, tmp_path, monkeypatch):
    monkeypatch.setattr("neuronscope.server.web.WEB_ROOT", tmp_path)
    response = client.get("/")
    assert response.status_code == 503 and "make ui" in response.text


def test_our_own_mistake_shows_no_traceback(client, monkeypatch):
    monkeypatch.setattr("neuronscope.server.app.card.profile_card", lambda profile: 1 / 0)
    response = client.get("/api/profiles/naive")
    assert response.status_code == 500
    assert "ZeroDivisionError" in response.json()["error"] and "Traceback" not in response.text


def test_a_profile_read_anew_while_open_is_said_to_be_gone(
    build_tables, rmsnorm, works, write_tables, tmp_path, client_of
):
    folder = write_tables(build_tables(rmsnorm), tmp_path / "naive")
    client = client_of(create_app([Profile("naive", folder, tmp_path / "my trace.json")]))
    ok(client, "/api/profiles/naive")
    folder.rename(tmp_path / "old")  # what a store does when the source has changed
    write_tables(build_tables([works("aten::sort", program=9_000)]), folder)
    for path in ("/api/profiles/naive", "/api/profiles/naive/tiles", "/api/profiles/naive/gaps", "/api/compare"):
        answer = client.get(path)
        assert answer.status_code == 410, path
        assert "read anew" in answer.json()["error"] and "'" in answer.json()["error"]
