"""Killed at any moment, or out of room: nothing half made is ever seen, and the next start makes all of it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from neuronscope.store import Store

# Adds a trace to a library and makes its indexes; before the n-th look at a file below the library it kills itself.
# What is large is made small, so that a short trace takes the way of a large one: helpers, scratch files, kept indexes.
SCRIPT = """
import os, signal, sys
source, root, moment, limit = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
from neuronscope.readers import event_list, helper, ranks, scratch, session, source as sources, texts
from neuronscope.analysis import arrays, library
for name, module in list(sys.modules.items()):
    if name.startswith("neuronscope.readers.") and hasattr(module, "CHUNK_ROWS"):
        module.CHUNK_ROWS = 2_000
sources._IN_MEMORY_BYTES, event_list._PIECE_BYTES, helper._WORTH_BYTES = 10_000, 200_000, 10_000
texts.HELD_BYTES = 0
arrays._LEAST_ROWS = arrays._LEAST_BYTES = 1
seen = 0
def watch(event, arguments):
    global seen
    if event.split(".")[0] in ("open", "os", "shutil", "mmap") and any(root in str(part) for part in arguments):
        seen += 1
        if seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
if limit:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    profile = library.open_profile(source, data_path=root)
    profile.timeline, profile.event_index
    print(seen)
except OSError as error:
    print("refused:", error)
"""


def run(source: Path, root: Path, moment: int = 0, limit: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, str(source), str(root), str(moment), str(limit)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def tables(root: Path) -> dict[str, object]:
    """All rows of the one profile of a library."""
    (profile,) = Store(root).list()
    return {file.stem: pq.read_table(file).to_pydict() for file in sorted(profile.path.glob("*.parquet"))}


def left_over(root: Path) -> list[str]:
    """What lies in a library besides finished profiles and locks."""
    found = [path.relative_to(root) for path in (root / "profiles" / "global").rglob("*")]
    hidden = [path for path in found if any(part.startswith(".") for part in path.parts)]
    return sorted(str(path) for path in hidden if not path.name.endswith((".lock", ".notes.json")))  # both are meant


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "cuda.json"
    script = "import sys; sys.path.insert(0, sys.argv[1]); import synthetic, pathlib; "
    script += "synthetic.write(pathlib.Path(sys.argv[2]), steps=2, calls=400, counters=True)"
    subprocess.run([sys.executable, "-c", script, str(Path(__file__).parents[1]), str(path)], check=True)
    return path


@pytest.fixture(scope="module")
def whole(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, object]]:
    """How many moments an undisturbed start has, and the tables it makes."""
    root = tmp_path_factory.mktemp("whole")
    done = run(trace, root)
    assert done.returncode == 0, done.stderr
    return int(done.stdout), tables(root)


@pytest.mark.parametrize("share", [0.05, 0.35, 0.65, 0.95])
def test_killed_at_any_moment_the_next_start_is_clean_and_complete(
    trace: Path, tmp_path: Path, whole: tuple[int, dict[str, object]], share: float
) -> None:
    moments, expected = whole
    moment = max(round(share * moments) + random.Random(share).randrange(-2, 3), 1)
    assert run(trace, tmp_path, moment).returncode == -signal.SIGKILL
    if Store(tmp_path).list():  # killed after it was complete, while the indexes were made
        assert tables(tmp_path) == expected
    again = run(trace, tmp_path)
    assert again.returncode == 0, again.stderr
    assert tables(tmp_path) == expected
    assert left_over(tmp_path) == []


@pytest.mark.slow
def test_killed_at_every_moment_in_turn(trace: Path, tmp_path: Path, whole: tuple[int, dict[str, object]]) -> None:
    moments, expected = whole
    for moment in range(1, moments + 1, max(moments // 60, 1)):
        root = tmp_path / str(moment)
        assert run(trace, root, moment).returncode == -signal.SIGKILL
        assert run(trace, root).returncode == 0
        assert tables(root) == expected, moment
        assert left_over(root) == [], moment


@pytest.mark.parametrize("share", [0.05, 0.95])
def test_without_room_one_line_says_so_and_nothing_is_left(trace: Path, tmp_path: Path, share: float) -> None:
    run(trace, tmp_path / "whole")
    (profile,) = Store(tmp_path / "whole").list()
    limit = int(share * max(path.stat().st_size for path in profile.path.glob("*.parquet")))
    tmp_path /= "short"
    done = run(trace, tmp_path, limit=limit)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"refused: {tmp_path}: no room for the profile")
    assert len(done.stdout.splitlines()) == 1
    assert Store(tmp_path).list() == []
    assert left_over(tmp_path) == []
