"""A real server and a real browser for the page's tests."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import neuronscope
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

TESTS = Path(__file__).resolve().parent.parent
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
# Without the network switches a background service of the browser keeps asking for hosts that tests must not need.
SWITCHES = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _started(command: list[str]) -> Iterator[str]:
    """Runs a server, yields the address it prints, ends it."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    printed = []
    try:
        for line in process.stdout:
            printed.append(line)
            if found := re.search(r"http://\S+", line):
                yield found[0]
                break
        else:
            pytest.fail(f"the server ended without printing an address:\n{''.join(printed)}")
    finally:
        process.terminate()
        process.communicate()


def _view(arguments: list[str], store: Path) -> Iterator[str]:
    yield from _started(
        [sys.executable, "-u", "-m", "neuronscope.cli", "view", *arguments, "--port", "0", "--data-path", str(store)]
    )


@pytest.fixture(scope="session")
def built_page() -> None:
    """Skips where the page was left out on purpose or there is no browser."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (tools/ensure_chromium.sh installs Debian's)")
    if not (Path(neuronscope.__file__).parent / "_web" / "index.html").is_file():
        pytest.skip("the page is not built (python explorer/hatch_build.py build)")


@pytest.fixture(scope="session")
def golden(built_page: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server that shows the golden session of an emulated trn2."""
    yield from _view([f"golden={TESTS / 'golden' / 'session'}"], tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def with_sources(built_page: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server that shows the golden session and knows a folder with its code."""
    folder = tmp_path_factory.mktemp("code")
    file = folder / "examples" / "rmsnorm" / "naive.py"
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"line_{number} = {number}\n" for number in range(1, 40)))
    session = f"golden={TESTS / 'golden' / 'session'}"
    yield from _view([session, "--framework-source-root", str(folder)], tmp_path_factory.mktemp("store"))


@pytest.fixture
def removable(built_page: None, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Address of a server that shows the golden session, and the library a test may take away from it."""
    store = tmp_path / "store"
    for address in _view([f"golden={TESTS / 'golden' / 'session'}"], store):
        yield address, store


@pytest.fixture(scope="session")
def three(built_page: None) -> Iterator[str]:
    """Address of a server that shows three implementations of RMSNorm, six launches against one and one."""
    yield from _started([sys.executable, "-u", str(TESTS / "serve_fixture.py"), "0"])


@pytest.fixture(scope="session")
def cpu_only(built_page: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server that shows a torch.profiler trace without a device."""
    folder = tmp_path_factory.mktemp("cpu")
    call = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 100, "dur": 5, "args": {}}
    (folder / "cpu.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": [call]}))
    yield from _view([str(folder / "cpu.json")], folder / "store")


@pytest.fixture(scope="session")
def ranks(built_page: None, job_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server that shows a distributed job of three ranks, the last of which is late."""
    yield from _view([f"job={job_folder}"], tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def browser(built_page: None) -> Iterator[Browser]:
    """Debian's chromium, headless."""
    with sync_playwright() as playwright:
        instance = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield instance
        instance.close()


@pytest.fixture
def show(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens an address in a fresh browser profile and waits until the timeline is drawn; fails on script errors."""
    contexts = []
    errors: list[str] = []

    def opened(address: str, *, wait: bool = True, scheme: str = "light") -> Page:
        context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        if wait:
            ready(page)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert errors == []


def ready(page: Page) -> None:
    """Waits until everything in view is loaded and drawn."""
    page.wait_for_selector("[data-testid=timeline][data-ready=true]")
