"""Take the pictures of the documentation: python tools/screenshots.py build/demo docs/images (after `make demo`)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from check_demo import free_port, wait_until_up
from playwright.sync_api import Page, sync_playwright

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


def slices(page: Page) -> list[dict[str, Any]]:
    """What the timeline draws, with screen rectangles."""
    found: list[dict[str, Any]] = page.evaluate("window.__neuronscope.slices()")
    return found


def ready(page: Page) -> None:
    """Wait until the timeline has drawn its tiles."""
    page.wait_for_selector("[data-testid=timeline][data-ready=true]")


def timeline(page: Page, address: str, path: Path) -> None:
    """The naive run, the last multiplication's chain selected."""
    page.goto(f"{address}/")
    ready(page)
    last = [s for s in slices(page) if s["trackLabel"].startswith("neuron_hw/NC0:") and not s["gap"]]
    lane = min(s["trackLabel"] for s in last)
    rect = [s for s in last if s["trackLabel"] == lane][-1]["rect"]
    page.mouse.click(rect["x"] + rect["width"] / 2, rect["y"] + rect["height"] / 2)
    page.wait_for_selector("[data-testid=chain-card]")
    page.mouse.move(700, 880)
    page.wait_for_timeout(500)
    page.screenshot(path=path)


def comparison(page: Page, address: str, path: Path) -> None:
    """The three side by side."""
    page.goto(f"{address}/")
    page.get_by_text("Compare", exact=True).first.click()
    page.wait_for_selector("[data-testid=compare-sentence]")
    page.mouse.move(700, 880)
    page.wait_for_timeout(500)
    page.screenshot(path=path)


def main() -> None:
    """Serve the demo, take four pictures, stop."""
    demo, images = Path(sys.argv[1]), Path(sys.argv[2])
    names = [run["name"] for run in json.loads((demo / "compare.json").read_text())]
    command = [str(Path(sys.executable).parent / "neuronscope"), "view", "--data-path", str(demo / "store")]
    command += [f"{name}={demo / name}" for name in names]
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL)
    try:
        wait_until_up(f"{address}/api/profiles", server)
        executable = next(filter(None, map(shutil.which, CHROMIUM)))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=executable, args=OPTIONS)
            for scheme in ("light", "dark"):
                context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
                page = context.new_page()
                timeline(page, address, images / f"timeline-{scheme}.png")
                comparison(page, address, images / f"compare-{scheme}.png")
                context.close()
            browser.close()
    finally:
        server.terminate()


if __name__ == "__main__":
    main()
