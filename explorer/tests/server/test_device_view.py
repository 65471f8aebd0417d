"""The device's side of one execution over HTTP."""

from pathlib import Path

from neuronscope.analysis.device_view import device_profile_id
from neuronscope.analysis.library import open_profile
from neuronscope.server.app import create_app


def test_a_link_to_an_execution_works_on_a_server_that_has_the_whole(tmp_path, client_of):
    golden = open_profile(Path(__file__).parents[1] / "golden" / "session", data_path=tmp_path)
    number = golden.rows("SELECT min(execution_id) AS n FROM Instruction")[0]["n"]
    identity = device_profile_id(golden, number)
    client = client_of(create_app([golden]))
    found = client.get(f"/api/profiles/{identity}").json()
    assert found["id"] == identity
    assert client.get(f"/api/profiles/{identity}/analyses/lanes").json()["rows"]
    assert client.get(f"/api/profiles/{golden.id}~99999999").status_code == 404
    assert client.get(f"/api/profiles/{identity}~1").status_code == 404
    assert client.get("/api/profiles").json()[0]["id"] == golden.id
