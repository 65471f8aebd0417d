"""Opening files from the page: chosen and dropped, followed, cancelled, refused; against the real server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

pytestmark = pytest.mark.browser

Show = Callable[..., Page]
ROW = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
DROP = """async (files) => {
    const data = new DataTransfer();
    for (const [name, text] of files) data.items.add(new File([text], name));
    for (const type of ["dragenter", "dragover", "drop"])
        document.body.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


def trace(name: str) -> str:
    return json.dumps({"schemaVersion": 1, "traceEvents": [{**ROW, "name": name}]})


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("library")


@pytest.fixture(scope="module")
def empty(built_page: None, library: Path) -> Iterator[str]:
    """Address of a server over an empty library."""
    command = [sys.executable, "-u", "-m", "neuronscope.cli", "serve", "--port", "0", "--data-path", str(library)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    line = next(text for text in process.stdout if "http://" in text)
    yield re.search(r"http://\S+", line)[0]  # type: ignore[index]
    process.terminate()
    process.communicate()


def never(_: Route) -> None:
    """Lets a request hang."""


def upload(page: Page, name: str) -> str:
    """The phase an upload ends in."""
    row = page.locator("[data-testid=upload]", has_text=name).first
    expect(row).to_have_attribute("data-phase", re.compile("done|failed|cancelled"), timeout=60_000)
    return str(row.get_attribute("data-phase"))


def test_an_empty_library_offers_to_open_a_file(show: Show, empty: str, tmp_path: Path) -> None:
    page = show(empty, wait=False)
    expect(page.get_by_text("No profile is open")).to_be_visible()
    (tmp_path / "first.json").write_text(trace("aten::first"))
    page.locator("[data-testid=upload-file]").first.set_input_files(tmp_path / "first.json")
    page.wait_for_selector("[data-testid=timeline][data-ready=true]", timeout=60_000)
    expect(page.locator("[data-testid=uploads]")).to_have_count(0)
    assert [s["name"] for s in page.evaluate("window.__neuronscope.slices()")] == ["aten::first"]
    assert "profile=first" in page.url


def test_files_dropped_anywhere_are_opened_as_one_profile(show: Show, empty: str) -> None:
    page = show(empty, wait=False)
    page.wait_for_selector("[data-testid=open-upload]")
    page.evaluate(DROP, [["rank0.json", trace("aten::zero")], ["rank1.json", trace("aten::one")]])
    page.wait_for_url(re.compile("profile=rank0"), timeout=60_000)
    page.wait_for_selector("[data-testid=timeline][data-ready=true]")
    assert {s["name"] for s in page.evaluate("window.__neuronscope.slices()")} == {"aten::zero", "aten::one"}


def test_while_something_is_dragged_over_the_page_says_so(show: Show, empty: str) -> None:
    page = show(empty, wait=False)
    page.wait_for_selector("[data-testid=open-upload]")
    enter = DROP.replace('"dragenter", "dragover", "drop"', '"dragenter"')
    page.evaluate(enter, [["a.json", ""]])
    expect(page.locator("[data-testid=drop-overlay]")).to_be_visible()
    page.evaluate(enter.replace("dragenter", "dragleave"), [["a.json", ""]])
    expect(page.locator("[data-testid=drop-overlay]")).to_have_count(0)


def test_what_is_no_profile_says_why_on_the_page(show: Show, empty: str, tmp_path: Path) -> None:
    page = show(empty, wait=False)
    page.locator("[data-testid=open-upload]").click()
    (tmp_path / "notes.txt").write_text("hello")
    page.locator("[data-testid=uploads] [data-testid=upload-file]").set_input_files(tmp_path / "notes.txt")
    assert upload(page, "notes") == "failed"
    expect(page.get_by_role("alert")).to_contain_text("notes.txt: unknown format. Looked for")
    page.get_by_label("Forget notes.txt").click()
    expect(page.locator("[data-testid=upload]")).to_have_count(0)


def test_an_upload_can_be_cancelled(show: Show, empty: str, library: Path, tmp_path: Path) -> None:
    page = show(empty, wait=False)
    page.route("**/api/uploads/*/files/**", never)
    page.locator("[data-testid=open-upload]").click()
    (tmp_path / "slow.json").write_text(trace("aten::slow"))
    before = {path.name for path in (library / "uploads").glob("*-*")}
    page.locator("[data-testid=uploads] [data-testid=upload-file]").set_input_files(tmp_path / "slow.json")
    page.get_by_label("Cancel slow").click()
    assert upload(page, "slow") == "cancelled"
    page.wait_for_function(
        "async () => (await (await fetch('api/uploads')).json()).uploads.every((u) => u.state !== 'receiving')"
    )
    assert {path.name for path in (library / "uploads").glob("*-*")} == before


def test_a_server_that_takes_no_uploads_shows_no_button(show: Show, three: str) -> None:
    page = show(three)
    expect(page.locator("[data-testid=open-upload]")).to_have_count(0)
