"""The interface's description, SQL over HTTP, and the routes that answer as the commands do."""

import json

import pytest
from neuronscope.analysis.profile import Profile
from neuronscope.server import query
from neuronscope.server.app import create_app
from neuronscope.server.openapi import ROUTES
from starlette.routing import Route


@pytest.fixture(scope="module")
def app(build_tables, rmsnorm, works):
    return create_app(
        [
            Profile("naive", build_tables(rmsnorm)),
            Profile("fused", build_tables([works("aten::_fused_rms_norm", program=18_000)])),
        ]
    )


@pytest.fixture(scope="module")
def client(app, client_of):
    return client_of(app)


def ask(client, text, **more):
    return client.post("/api/profiles/naive/sql", json={"query": text, **more})


def test_every_route_is_described_and_every_description_is_a_route(app, client):
    served = {
        (method.lower(), route.path.replace(":path}", "}"))
        for route in app.routes
        if isinstance(route, Route) and route.path.startswith("/api/") and "rest" not in route.path
        for method in route.methods - {"HEAD"}
    }
    document = client.get("/api/openapi.json").json()
    described = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert described == served
    page = client.get("/api/docs").text
    assert all(route.path in page for route in ROUTES) and "<script" not in page
    assert document["info"]["version"].startswith("0.")


def test_sql_answers_rows_with_types(client):
    answer = ask(client, "SELECT name, calls, share FROM operators() ORDER BY name LIMIT 2").json()
    assert [column["name"] for column in answer["columns"]] == ["name", "calls", "share"]
    assert [row[:2] for row in answer["rows"]] == [["aten::add", 1], ["aten::mean", 1]]
    assert answer["truncated"] is False


def test_sql_limits_rows_and_keeps_numbers_exact(client):
    answer = ask(client, "SELECT 9007199254740993 AS big, 'nan'::DOUBLE AS odd, [1, 2] AS list FROM range(5)", limit=2)
    assert answer.json() == {
        "columns": [
            {"name": "big", "type": "int64"},
            {"name": "odd", "type": "double"},
            {"name": "list", "type": answer.json()["columns"][2]["type"]},
        ],
        "rows": [["9007199254740993", None, [1, 2]]] * 2,
        "truncated": True,
    }


@pytest.mark.parametrize("text", ["DESCRIBE Slice", "EXPLAIN SELECT 1", "FROM Step", "WITH a AS (SELECT 1) FROM a"])
def test_all_kinds_of_queries_are_answered(client, text):
    assert ask(client, text).json()["rows"]


def test_sql_is_stopped_after_its_time(client):
    text = "SELECT count(*) FROM range(100000) a, range(10000000) b WHERE a.range * b.range = 3"
    answer = ask(client, text, timeout_s=0.2)
    assert answer.status_code == 400 and "0.2 s" in answer.json()["error"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"json": {"query": "DROP TABLE Step"}}, "read-only"),
        ({"json": {"query": "SELECT 1; SELECT 2"}}, "one statement"),
        ({"json": {"query": "SELECT * FROM nothing"}}, "nothing"),
        ({"json": {"query": "SELECT * FROM read_text('/etc/hostname')"}}, ""),
        ({"json": {"text": "SELECT 1"}}, "needs a text `query`"),
        ({"json": [1]}, "needs a text `query`"),
        ({"json": {"query": "SELECT 1", "limit": 0}}, "limit=0: must be"),
        ({"json": {"query": "SELECT 1", "timeout_s": "long"}}, "timeout_s='long'"),
        ({"json": {"query": "SELECT 1", "timeout_s": True}}, "timeout_s=True"),
        ({"json": {"query": "x" * 70_000}}, "longer than"),
        ({"content": b"{", "headers": {"content-type": "application/json"}}, "no JSON"),
        ({"content": json.dumps({"query": "SELECT 1"}), "headers": {"content-type": "text/plain"}}, "application/json"),
    ],
)
def test_what_sql_refuses(client, given, says):
    answer = client.post("/api/profiles/naive/sql", **given)
    assert answer.status_code == 400 and says in answer.json()["error"]


def test_other_methods_and_profiles_are_refused(client):
    answer = client.get("/api/profiles/naive/sql")
    assert answer.status_code == 404 and "no route GET" in answer.json()["error"]
    assert client.post("/api/profiles/none/sql", json={"query": "SELECT 1"}).status_code == 404
    assert client.post("/api/profiles/naive/operators").status_code == 405


def test_the_roofline_answers_as_the_command(client):
    answer = client.get("/api/profiles/naive/roofline").json()
    assert answer["rows"] and {row["bound"] for row in answer["rows"]} <= {"launch", "compute", "memory", ""}
    assert answer["roofs"]["ridge"] == answer["roofs"]["flops_per_second"] / answer["roofs"]["bytes_per_second"]


def test_top_answers_as_the_command(client):
    answer = client.get("/api/profiles/naive/top?by=source&limit=1").json()
    assert answer["by"] == "source" and answer["rows"][0]["name"] == "naive.py:17"
    assert isinstance(answer["rows"][0]["first_event"], str)
    assert client.get("/api/profiles/naive/top?by=colour").status_code == 400


def test_diff_answers_as_the_command(client):
    answer = client.get("/api/diff?before=naive&after=fused&fail_on=executions > 0").json()
    assert answer["worse"] is False and answer["metrics"][0]["name"] == "device_time"
    assert client.get("/api/diff?before=naive").status_code == 400
    assert client.get("/api/diff?before=naive&after=fused&fail_on=x").status_code == 400


def test_a_long_body_is_not_read_to_its_end(wait_for):
    async def chunks():
        while True:
            yield b"x" * 10_000

    with pytest.raises(query.SqlRequestError, match="longer than"):
        wait_for(query.read_body(chunks(), "application/json"))
