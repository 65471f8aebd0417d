"""The analyses over HTTP, and that every surface gives the same figures."""

import json
from pathlib import Path

import pytest
from neuronscope.analysis.catalog import ANALYSES, UnknownAnalysisError
from neuronscope.analysis.library import open_profile
from neuronscope.cli.app import run
from neuronscope.server.app import create_app


def test_the_list_names_what_each_answers(job, client_of):
    listed = client_of(create_app([job])).get("/api/analyses").json()
    assert [one["name"] for one in listed] == list(ANALYSES)
    assert all(one["title"].endswith(".") and one["share_of"] for one in listed)


@pytest.mark.parametrize("name", [name for name in ANALYSES if name != "throttling"])  # no sample is throttled
def test_every_surface_gives_the_same_figures(job, job_folder, name, client_of, capsys, tmp_path_factory):
    if name == "hierarchy":  # of a device profile
        job_folder = Path(__file__).parents[1] / "golden" / "session"
        job = open_profile(job_folder, data_path=tmp_path_factory.mktemp("golden"))
    found = job.analyse(name).to_dict()
    assert found["rows"] and found["facts"] and not found["reason"] and found["share_of"]
    library = tmp_path_factory.getbasetemp() / "surfaces"
    assert run([name, str(job_folder), "--json", "--data-path", str(library)]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(found))
    assert run([name, str(job_folder), "--data-path", str(library)]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    answer = client_of(create_app([job])).get(f"/api/profiles/{job.id}/analyses/{name}").json()
    assert answer["facts"] == found["facts"] and len(answer["rows"]) == len(found["rows"])
    same = {key for key in found["rows"][0] if not key.endswith(("_ts", "event_id")) and key != "evidence"}
    assert [{k: row[k] for k in same} for row in answer["rows"]] == [{k: row[k] for k in same} for row in found["rows"]]
    if ANALYSES[name].whole:  # without a range the macro is about everything
        assert job.sql(f"FROM {ANALYSES[name].macro}()").to_pylist() == found["rows"]


def test_an_unknown_analysis_lists_those_there_are(job, client_of):
    with pytest.raises(UnknownAnalysisError, match="steps, insights"):
        job.analyse("nothing")
    answer = client_of(create_app([job])).get(f"/api/profiles/{job.id}/analyses/nothing")
    assert answer.status_code == 404 and "no analysis 'nothing'" in answer.json()["error"]
