"""The documentation is true: generated pages are current, links exist, the walk-through's blocks run as printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(python|console)(?: *\{([^}\n]*)\})?\n(.*?)^```$", re.M | re.S)
ELLIPSIS = "…"


def test_generated_pages_are_current():
    run = subprocess.run(
        [sys.executable, "-m", "docs.generate", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, f"{run.stdout}{run.stderr}\nrun `make docs` and commit the result"


@pytest.mark.parametrize("page", sorted([*DOCS.glob("*.md"), *ROOT.glob("*.md")]), ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


def matches(expected, actual):
    """What of `expected` is missing in `actual`, in order; … stands for anything in a line, a line … for any lines."""
    lines = [line.rstrip() for line in actual.splitlines()]
    position = 0
    for line in expected.splitlines():
        wanted = line.split()
        if wanted in ([], [ELLIPSIS]):
            continue
        words = (".*?".join(map(re.escape, word.split(ELLIPSIS))) for word in wanted)
        pattern = re.compile(r"\s+".join(words) + r"\s*$")
        found = next((i for i in range(position, len(lines)) if pattern.match(lines[i].strip())), None)
        if found is None:
            return f"line not found after line {position}: {line!r}"
        position = found + 1
    return ""


def test_walkthrough_runs_as_printed(tmp_path):
    """Python blocks are saved under the name in braces; `$ command` lines run and must print what stands below them."""
    import os

    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", COLUMNS="100")
    environment.pop("TORCH_DEVICE_BACKEND_AUTOLOAD", None)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    ran = 0
    for language, name, body in BLOCK.findall((DOCS / "walkthrough.md").read_text()):
        if language == "python":
            assert name, "a python block of the walk-through needs a file name: ```python {naive.py}"
            (tmp_path / name).write_text(body)
            continue
        for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
            command, _, expected = part.partition("\n")
            run = subprocess.run(
                ["bash", "-c", command],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
            assert run.returncode == 0, f"$ {command}\n{run.stdout}\n{run.stderr}"
            problem = matches(expected, run.stdout)
            assert not problem, f"$ {command}\n{problem}\n--- printed:\n{run.stdout}\n{run.stderr}"
            ran += 1
    assert ran >= 4
