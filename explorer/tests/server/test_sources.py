"""The source panel: code from the named folders, and never from anywhere else."""

import pytest
from neuronscope.analysis import Profile
from neuronscope.server.app import create_app
from neuronscope.server.sources import SourceError, Sources


@pytest.fixture
def roots(tmp_path):
    """A framework root and a kernel root, a secret beside them, and links that lead to it."""
    framework, nki = tmp_path / "framework", tmp_path / "nki"
    (framework / "model").mkdir(parents=True)
    nki.mkdir()
    (framework / "model" / "layers.py").write_text("".join(f"line {n}\n" for n in range(1, 41)))
    (framework / "train.py").write_text("first\nsecond\n")
    (nki / "kernel.py").write_text("@nki.jit\ndef kernel():\n    pass\n")
    (tmp_path / "secret.py").write_text("password\n")
    (framework / "link.py").symlink_to(tmp_path / "secret.py")
    (framework / "out").symlink_to(tmp_path)
    return framework, nki


@pytest.mark.parametrize(
    ("place", "file", "line"),
    [
        ("/home/someone/project/model/layers.py:12", "model/layers.py", 12),
        ("model/layers.py(12): forward", "model/layers.py", 12),
        ("C:\\work\\project\\model\\layers.py:3", "model/layers.py", 3),
        ("train.py:2:7", "train.py", 2),
        ("/other/kernel.py:2", "kernel.py", 2),
        ("layers.py:12", "model/layers.py", 12),
    ],
)
def test_a_recorded_path_is_found_by_its_longest_end(roots, place, file, line):
    found = Sources(*roots).lines(place)
    assert (found["file"], found["line"]) == (file, line)
    text = (roots[file == "kernel.py"] / file).read_text().splitlines()[line - 1]
    assert found["lines"][line - found["first"]] == text


@pytest.mark.parametrize(
    "place",
    [
        "../secret.py:1",
        "model/../../secret.py:1",
        "/etc/passwd:1",
        "//etc/passwd:1",
        "link.py:1",
        "out/secret.py:1",
        "secret.py:1",
        "..\\secret.py:1",
        "%2e%2e/secret.py:1",
        "file:///etc/passwd:1",
        "model:1",
    ],
)
def test_nothing_outside_the_roots_is_shown(roots, place):
    found = Sources(*roots).lines(place)
    assert "lines" not in found
    assert "is not below" in found["reason"]


@pytest.mark.parametrize("place", ["", "train.py", "train.py:", ":1", "train.py\0.txt:1", "train.py:x"])
def test_what_is_no_place_is_refused(roots, place):
    with pytest.raises(SourceError, match="give a file and a line"):
        Sources(*roots).lines(place)


def test_a_name_that_several_files_have_is_not_guessed(roots):
    (roots[0] / "other").mkdir()
    (roots[0] / "other" / "layers.py").write_text("other\n")
    assert "is one of 2 files of that name" in Sources(*roots).lines("layers.py:1")["reason"]


def test_a_line_the_file_does_not_have_says_so(roots):
    assert "has 2 lines, not 30" in Sources(*roots).lines("train.py:30")["reason"]


def test_a_root_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(SourceError, match="--nki-source-root"):
        Sources(None, tmp_path / "absent")


def test_the_route_answers_lines_or_the_option_that_is_missing(roots, build_tables, rmsnorm, client_of):
    profiles = [Profile("naive", build_tables(rmsnorm))]
    with_roots = client_of(create_app(profiles, sources=Sources(*roots)))
    assert with_roots.get("/api/source?place=train.py:2").json()["lines"] == ["first", "second"]
    assert with_roots.get("/api/source?place=nowhere").status_code == 400
    assert "--framework-source-root" in client_of(create_app(profiles)).get("/api/source?place=a.py:1").json()["reason"]
