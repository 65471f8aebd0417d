"""From an execution to its engines and its source code, and back; waiting can be ended; narrow windows."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

pytestmark = pytest.mark.browser

Show = Callable[..., Page]


def select_execution(page: Page) -> str:
    """Selects the first execution of the largest operator; its event id."""
    page.get_by_test_id("operator-row").first.click()
    expect(page.get_by_test_id("event-panel")).to_contain_text("nc_exec_running")
    found = re.search(r"event=(\d+)", page.url)
    assert found is not None
    return found[1]


def test_an_execution_opens_its_engines_and_leads_back(golden: str, show: Show) -> None:
    page = show(golden)
    event = select_execution(page)
    page.get_by_test_id("open-engines").click()
    page.wait_for_url(re.compile(r"profile=golden(~|%7E)\d+"))
    page.wait_for_selector("[data-testid=timeline][data-ready=true]")
    labels = page.get_by_test_id("lane-label").all_inner_texts()
    assert any("Vector" in text or "Scalar" in text or "Tensor" in text for text in labels)
    assert any("DMA" in text for text in labels)
    inside = page.url
    page.get_by_test_id("back-out").click()
    page.wait_for_url(re.compile(rf"profile=golden&event={event}"))
    expect(page.get_by_test_id("event-panel")).to_contain_text("nc_exec_running")
    again = show(inside)  # the link alone opens the engines
    expect(again.get_by_test_id("back-out")).to_be_visible()
    again.keyboard.press("e")
    again.wait_for_url(re.compile(rf"profile=golden&event={event}"))


def test_an_operator_opens_the_engines_of_its_first_execution(golden: str, show: Show) -> None:
    page = show(golden)
    page.get_by_role("button", name="Operators", exact=True).click()
    page.get_by_test_id("row-engines").first.click()
    page.wait_for_url(re.compile(r"profile=golden(~|%7E)\d+"))


def test_the_code_of_the_selected_event_is_shown(with_sources: str, golden: str, show: Show) -> None:
    page = show(with_sources)
    select_execution(page)
    here = page.get_by_test_id("source").locator(".here")
    expect(here).to_have_text(re.compile(r"^\d+line_\d+ = \d+$"))
    without = show(golden)
    select_execution(without)
    expect(without.get_by_test_id("event-panel")).to_contain_text("--framework-source-root")


def test_a_slow_analysis_says_so_and_can_be_stopped(golden: str, show: Show) -> None:
    page = show(golden)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/analyses/insights*", hold)
    page.get_by_role("button", name="Analysis", exact=True).click()
    card = page.get_by_test_id("analysis-insights")
    expect(card).to_contain_text(re.compile(r"working, \d+ s"))
    expect(page.get_by_test_id("analysis-steps").get_by_test_id("split-bar").first).to_be_visible()  # nothing waits
    card.get_by_test_id("stop").click()
    expect(card).to_contain_text("stopped")
    page.unroute("**/analyses/insights*")
    card.get_by_role("button", name="work it out again").click()
    expect(card.get_by_test_id("insight").first).to_be_visible()


@pytest.mark.parametrize("view", ["timeline", "analysis", "operators"])
def test_a_narrow_window_cuts_nothing_off(golden: str, show: Show, view: str) -> None:
    page = show(golden)
    page.set_viewport_size({"width": 720, "height": 800})
    page.get_by_role("button", name=view.capitalize(), exact=True).click()
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 720
    for name in ("Link", "?"):
        box = page.get_by_text(name, exact=True).first.bounding_box()
        assert box is not None and box["x"] + box["width"] <= 720
