"""Who may ask the server: host names on loopback, the token elsewhere."""

import pytest
from neuronscope.analysis import Profile
from neuronscope.server import run
from neuronscope.server.app import create_app
from neuronscope.server.guard import LOOPBACK, Guard

TOKEN = "s3cret"


@pytest.fixture(scope="module")
def app(build_tables, rmsnorm):
    return create_app([Profile("naive", build_tables(rmsnorm))])


@pytest.fixture(scope="module")
def local(app, client_of):
    return client_of(Guard(app, LOOPBACK, None))


@pytest.fixture(scope="module")
def open_to_all(app, client_of):
    return client_of(Guard(app, None, TOKEN))


@pytest.mark.parametrize("host", ["localhost:3001", "127.0.0.1", "LOCALHOST", "[::1]:3001", "127.0.0.1:9"])
def test_this_machine_by_any_of_its_names(local, host):
    assert local.get("/api/profiles", {"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:3001", "localhost.evil.example", "127.0.0.1.nip.io", ""]
)
@pytest.mark.parametrize("path", ["/api/profiles", "/"])
def test_another_sites_name_that_points_here_is_refused(local, host, path):
    answer = local.get(path, {"Host": host})
    assert answer.status_code == 403
    assert "127.0.0.1" in answer.json()["error"]


def test_without_the_token_nothing_is_told(open_to_all):
    for path in ("/api/profiles", "/", "/api/profiles?token=wrong", "/api/profiles?token="):
        answer = open_to_all.get(path)
        assert answer.status_code == 403
        assert "token" in answer.json()["error"]
    assert open_to_all.get("/api/profiles", {"Authorization": "Bearer wrong"}).status_code == 403
    assert open_to_all.get("/api/profiles", {"Cookie": "neuronscope=s3cret; ;;="}).status_code == 403


def test_the_link_with_the_token_sets_a_cookie_that_opens_the_rest(open_to_all):
    answer = open_to_all.get(f"/naive?a=b%20c&token={TOKEN}")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/naive?a=b+c"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert open_to_all.get("/api/profiles", {"Cookie": cookie.partition(";")[0]}).status_code == 200


def test_a_program_sends_the_token_in_a_header(open_to_all):
    assert open_to_all.get("/api/profiles", {"Authorization": f"Bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize("path", ["//evil.example/", "/%5Cevil.example/"])
def test_the_link_never_leads_to_another_site(open_to_all, path):
    location = open_to_all.get(f"http://test{path}?token={TOKEN}").headers["location"]
    assert location.startswith("/") and not location.startswith(("//", "/\\"))


@pytest.mark.parametrize(("host", "expected"), [("127.0.0.1", True), ("localhost", True), ("0.0.0.0", False)])
def test_only_loopback_needs_no_token(host, expected):
    with run.bind(host, 0) as server:
        assert run.is_loopback(server) is expected
