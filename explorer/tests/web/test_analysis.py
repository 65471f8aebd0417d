"""The Analysis view: what a user looks for first, in a real browser against the real server."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

Show = Callable[..., Page]


def analysis(page: Page) -> Page:
    page.get_by_role("button", name="Analysis", exact=True).click()
    expect(page.get_by_test_id("analysis")).to_be_visible()
    return page


def test_the_straggler_is_named_and_its_evidence_is_one_click_away(ranks: str, show: Show) -> None:
    page = analysis(show(ranks))
    insight = page.locator("[data-testid=insight][data-rule=straggler]")
    expect(insight).to_contain_text("Ranks wait for the last one: at most")
    expect(page.get_by_test_id("analysis-ranks")).to_contain_text("Rank 2 starts last in 3 of 3 collectives")
    assert page.get_by_test_id("analysis-ranks").locator("tbody tr").count() == 3
    insight.get_by_role("button").first.click()
    page.wait_for_url(re.compile(r"[?&]event=\d+"))
    expect(page.get_by_test_id("event-panel")).to_contain_text("ncclDevKernel_AllReduce")


def test_every_step_is_a_bar_whose_parts_fill_it(ranks: str, show: Show) -> None:
    page = analysis(show(ranks))
    bars = page.get_by_test_id("split-bar")
    expect(bars).to_have_count(9)  # three steps of three ranks
    box = bars.first.locator(".split-bar").bounding_box()
    widths = bars.first.locator(".split-part").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
    assert box is not None and sum(widths) == pytest.approx(box["width"], abs=1)
    described = bars.first.get_by_role("img").get_attribute("aria-label")
    assert described is not None and "computing 40." in described and "exposed communication" in described
    bars.first.get_by_role("button").press("Enter")
    page.wait_for_url(re.compile("scope=ProfilerStep"))


def test_the_view_is_in_the_link_and_names_its_wholes(golden: str, show: Show) -> None:
    page = analysis(show(golden))
    assert "view=analysis" in page.url
    expect(page.get_by_test_id("analysis-steps")).to_contain_text("shares of the steps' spans")
    for name in ("overlap", "memory", "launches"):
        expect(page.get_by_test_id(f"analysis-{name}")).to_contain_text("share: of ")
    again = show(page.url, wait=False)
    expect(again.get_by_test_id("insight").first).to_contain_text("Launch cost of many small executions")


def test_what_a_profile_cannot_tell_is_said(cpu_only: str, show: Show) -> None:
    page = analysis(show(cpu_only))
    expect(page.get_by_test_id("analysis-steps")).to_contain_text("This trace has CPU activity only")
    expect(page.get_by_test_id("analysis-ranks")).to_contain_text("open a folder with one trace per rank")
    expect(page.get_by_test_id("analysis-memory")).to_contain_text("profile_memory=True")


def test_executables_lie_on_the_roofline(golden: str, show: Show) -> None:
    page = analysis(show(golden))
    card = page.get_by_test_id("analysis-roofline")
    expect(card.get_by_test_id("roof-point")).to_have_count(6)
    assert card.locator("tbody tr").count() == 6
    expect(card).to_contain_text("78.6 TFLOP/s")


def test_a_profile_without_known_peaks_says_so(cpu_only: str, show: Show) -> None:
    page = analysis(show(cpu_only))
    expect(page.get_by_test_id("analysis-roofline")).to_contain_text("no device work in this profile")
