"""What a user does on the page, in a real browser against the real server."""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

pytestmark = pytest.mark.browser

Show = Callable[..., Page]


def ready(page: Page) -> None:
    page.wait_for_selector("[data-testid=timeline][data-ready=true]")


def slices(page: Page, **wanted: object) -> list[dict[str, Any]]:
    """Slices on screen that match, from left to right."""
    items = page.evaluate("window.__neuronscope.slices()")
    found = [i for i in items if all(i[key] == value for key, value in wanted.items())]
    return sorted(found, key=lambda i: (i["track"], i["start"]))


def click(page: Page, item: dict[str, Any], **options: Any) -> None:
    rect = item["rect"]
    page.mouse.click(rect["x"] + rect["width"] / 2, rect["y"] + rect["height"] / 2, **options)


def span(page: Page) -> int:
    """Visible time range in nanoseconds, from the address."""
    page.wait_for_url(re.compile(r"[?&]t="))
    start, end = re.search(r"[?&]t=(-?\d+)(?:~|%7E)(-?\d+)", page.url).groups()  # type: ignore[union-attr]
    return int(end) - int(start)


def last_execution(page: Page) -> dict[str, Any]:
    executions = slices(page, name="nc_exec_running")
    return [e for e in executions if e["track"] == executions[0]["track"]][-1]


def chain_names(page: Page) -> list[str]:
    return page.locator("[data-testid=chain-card] .card-name").all_text_contents()


def pixel(page: Page, x: float, y: float) -> tuple[int, int, int]:
    """Colour on screen, read from a screenshot."""
    png = base64.b64encode(page.screenshot(clip={"x": x, "y": y, "width": 1, "height": 1})).decode()
    script = """async (png) => {
        const image = new Image(); image.src = 'data:image/png;base64,' + png; await image.decode();
        const g = document.createElement('canvas').getContext('2d'); g.drawImage(image, 0, 0);
        return Array.from(g.getImageData(0, 0, 1, 1).data).slice(0, 3); }"""
    red, green, blue = page.evaluate(script, png)
    return red, green, blue


def test_lanes_run_from_framework_to_hardware(golden: str, show: Show) -> None:
    page = show(golden)
    lanes = page.get_by_test_id("lane-label")
    names = [text.split("▾")[0] for text in lanes.locator(".short").all_text_contents()]
    kinds = [name.split(":")[0] for name in names]
    order = ["framework/TID", "framework/Stream", "neuron_rt/NC", "neuron_hw/NC0"]
    assert [k for k in dict.fromkeys(kinds) if k in order] == order
    assert (
        sum(re.fullmatch(r"neuron_hw/NC0:\d+", name) is not None for name in names) == 2
    )  # a logical core of trn2 is two physical ones
    expect(lanes.first).to_have_attribute("title", re.compile(r"^i-emulated\w+/PID:4121/framework/TID:"))
    expect(lanes.first).to_contain_text("dispatch · host, measured")
    expect(lanes.filter(has_text="framework/Stream").first).to_contain_text("enqueue measured · end emulated")
    for lane in lanes.all():
        expect(lane).to_contain_text(re.compile("measured|emulated"))


def test_badge_and_health_say_what_made_it_and_that_nothing_is_missing(golden: str, show: Show) -> None:
    page = show(golden)
    expect(page.get_by_test_id("made-by")).to_have_text("emulated · trn2")
    chip = page.get_by_test_id("health-chip")
    expect(chip).to_contain_text("0 dropped")
    chip.click()
    expect(page.get_by_test_id("health")).to_contain_text("dropped while recording")
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("health")).to_have_count(0)


def test_clicking_an_execution_leads_back_to_its_operator(golden: str, show: Show) -> None:
    page = show(golden)
    click(page, last_execution(page))
    expect(page.get_by_test_id("chain-card").first).to_be_visible()
    names = chain_names(page)
    assert names[0] == "aten::mul"
    assert names.index("nrta_execute_schedule") < names.index("nc_exec_running")
    panel = page.get_by_test_id("event-panel")
    expect(panel).to_contain_text("nc_exec_running")
    expect(panel).to_contain_text("385 µs calibrated")
    expect(panel).to_contain_text(re.compile(r"engines \+ DMA.*simulated"))
    expect(panel).to_contain_text("once (2 physical cores)")
    expect(page.locator("[data-testid=operator-row].selected")).to_have_attribute("data-name", "aten::mul")


def test_following_a_link_recentres_and_keeps_the_zoom_and_back_returns(golden: str, show: Show) -> None:
    page = show(golden)
    click(page, last_execution(page))
    expect(page.get_by_test_id("chain-card").first).to_be_visible()
    page.keyboard.press("f")
    ready(page)
    before, zoomed = page.url, span(page)
    page.get_by_test_id("chain-card").first.click()
    expect(page.get_by_test_id("event-panel")).to_contain_text("aten::mul")
    ready(page)
    assert span(page) == pytest.approx(zoomed, abs=2)
    chosen = page.locator("[data-testid=chain-card][aria-current=true]").get_attribute("data-event")
    rect = next(i for i in slices(page) if i["id"] == chosen)["rect"]
    lanes = page.get_by_test_id("slices").bounding_box()
    assert lanes is not None
    assert rect["x"] + rect["width"] / 2 == pytest.approx(lanes["x"] + lanes["width"] / 2, abs=3)
    page.go_back()
    page.wait_for_url(before)
    expect(page.get_by_test_id("event-panel")).to_contain_text("nc_exec_running")


def test_the_keyboard_steps_through_lane_chain_and_gaps(golden: str, show: Show) -> None:
    page = show(golden)
    first = slices(page, name="nc_exec_running")[0]
    click(page, first)
    current = page.locator("[data-testid=chain-card][aria-current=true]")
    expect(current).to_have_attribute("data-event", first["id"])
    page.keyboard.press(".")
    expect(current).not_to_have_attribute("data-event", first["id"])
    page.keyboard.press(",")
    expect(current).to_have_attribute("data-event", first["id"])
    page.keyboard.press("[")
    expect(current).to_contain_text("nrta_execute_schedule")
    page.keyboard.press("]")
    expect(current).to_contain_text("nc_exec_running")
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("chain-card")).to_have_count(0)
    page.keyboard.press("n")
    expect(page.get_by_test_id("event-panel")).to_contain_text("idle")


def test_zooming_keeps_what_is_under_the_pointer(golden: str, show: Show) -> None:
    page = show(golden)
    target = last_execution(page)
    x, y = target["rect"]["x"] + 5, target["rect"]["y"] + 5
    page.mouse.move(x, y)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    span(page)
    ready(page)
    after = next(i for i in slices(page) if i["id"] == target["id"] and i["track"] == target["track"])
    assert after["rect"]["x"] == pytest.approx(target["rect"]["x"], abs=6)
    assert after["rect"]["width"] > target["rect"]["width"]


def test_dragging_over_the_ruler_zooms_and_over_the_lanes_moves(golden: str, show: Show) -> None:
    page = show(golden)
    ruler = page.get_by_label("Time ruler").bounding_box()
    assert ruler is not None
    page.mouse.move(ruler["x"] + ruler["width"] * 0.25, ruler["y"] + 8)
    page.mouse.down()
    page.mouse.move(ruler["x"] + ruler["width"] * 0.5, ruler["y"] + 8, steps=4)
    page.mouse.up()
    whole = page.evaluate(
        "fetch('api/profiles/golden').then(r => r.json()).then(c => c.default_range.end - c.default_range.start)"
    )
    zoomed = span(page)
    assert zoomed == pytest.approx(whole / 0.97 * 0.25, rel=0.02)
    ready(page)
    before = page.url
    page.mouse.move(900, 360)
    page.mouse.down()
    page.mouse.move(800, 360, steps=4)
    page.mouse.up()
    page.wait_for_url(lambda url: url != before)
    assert span(page) == pytest.approx(zoomed, abs=2)


def test_shift_drag_measures_and_escape_ends_it(golden: str, show: Show) -> None:
    page = show(golden)
    before = page.url
    page.keyboard.down("Shift")
    page.mouse.move(600, 360)
    page.mouse.down()
    page.mouse.move(900, 360, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    per_pixel = slices(page, name="nc_exec_running")[0]
    nanoseconds = 300 * per_pixel["duration"] / per_pixel["rect"]["width"]
    measured = page.get_by_test_id("measure")
    text = re.compile(r"^Δ ([\d.]+) µs · device busy ([\d.]+) % · (\d+) slices$")
    expect(measured).to_have_text(text)
    time, busy, count = text.findall(measured.text_content() or "")[0]
    assert float(time) == pytest.approx(nanoseconds / 1000, rel=0.01)
    box = page.get_by_test_id("slices").bounding_box()
    assert box is not None
    under = [i["rect"] for i in slices(page, gap=False) if i["rect"]["x"] < 900]
    assert int(count) == sum(r["x"] + r["width"] > 600 for r in under)
    first = [i for i in slices(page, gap=False) if i["trackLabel"] == "neuron_hw/NC0:4"]
    covered = sum(max(0, min(900, i["rect"]["x"] + i["rect"]["width"]) - max(600, i["rect"]["x"])) for i in first)
    assert float(busy) == pytest.approx(covered / 3, abs=1)
    page.keyboard.press("Escape")  # ends the measurement, not the view
    expect(measured).to_have_text("")
    assert page.url == before


def test_hardware_lanes_are_in_sight_beside_the_chain(golden: str, three: str, show: Show) -> None:
    for address in (golden, three):
        page = show(address)
        click(page, last_execution(page))
        expect(page.get_by_test_id("chain-card").first).to_be_visible()
        page.locator(".lanes").evaluate("e => { e.scrollTop = 0 }")
        lanes = page.locator(".lanes").bounding_box()
        assert lanes is not None
        hardware = page.get_by_test_id("lane-label").filter(has_text=re.compile(r"neuron_hw/NC0:\d"))
        assert hardware.count() == 2
        for label in hardware.all():
            box = label.bounding_box()
            assert box is not None and box["y"] + box["height"] <= lanes["y"] + lanes["height"]


def test_a_mark_flags_the_selection_and_travels_with_the_link(golden: str, show: Show) -> None:
    page = show(golden)
    target = last_execution(page)
    click(page, target)
    expect(page.get_by_test_id("event-panel")).to_contain_text("nc_exec_running")
    page.keyboard.press("m")
    flag = page.get_by_test_id("mark")
    expect(flag).to_have_text("aten::mul")
    expect(flag).to_have_attribute("data-at", str(target["start"]))
    box = flag.bounding_box()
    assert box is not None and box["x"] == pytest.approx(target["rect"]["x"], abs=2)
    flag.get_by_role("button").click()
    page.get_by_label("Name of the mark").fill("slow & last")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"mark="))
    expect(show(page.url).get_by_test_id("mark")).to_have_text("slow & last")
    page.go_back()
    expect(flag).to_have_text("aten::mul")
    flag.get_by_role("button").click()
    page.get_by_role("button", name="Remove").click()
    expect(flag).to_have_count(0)
    assert "mark=" not in page.url


def test_without_a_selection_a_mark_is_set_where_the_pointer_is(golden: str, show: Show) -> None:
    page = show(golden)
    page.mouse.move(700, 400)
    page.keyboard.press("m")
    box = page.get_by_test_id("mark").bounding_box()
    assert box is not None and box["x"] == pytest.approx(700, abs=2)
    page.keyboard.press("m")  # again at the same place takes it away
    expect(page.get_by_test_id("mark")).to_have_count(0)


def test_a_tooltip_leaves_the_wait_on_the_arrow_readable(golden: str, show: Show) -> None:
    page = show(golden)
    click(page, last_execution(page))
    label = page.evaluate("""() => new Promise((done) => {
        const look = () => window.__neuronscope.labels()[0] ? done(window.__neuronscope.labels()[0])
            : requestAnimationFrame(look);
        look(); })""")
    above = next(
        i["rect"]
        for i in slices(page, gap=False)
        if i["rect"]["y"] < label["y"]
        and i["rect"]["x"] < label["x"] < i["rect"]["x"] + i["rect"]["width"]
        and i["trackLabel"].startswith(("neuron_rt", "framework/Stream"))
    )
    page.mouse.move(label["x"] - 10, above["y"] + above["height"] / 2)
    tooltip = page.get_by_test_id("tooltip").bounding_box()
    assert tooltip is not None
    apart = (
        tooltip["x"] + tooltip["width"] <= label["x"]
        or label["x"] + label["width"] <= tooltip["x"]
        or tooltip["y"] + tooltip["height"] <= label["y"]
        or label["y"] + label["height"] <= tooltip["y"]
    )
    assert apart, (tooltip, label)


def test_pointing_at_a_gap_says_how_long_and_why(golden: str, show: Show) -> None:
    page = show(golden)
    gap = max(slices(page, gap=True), key=lambda g: g["rect"]["width"])
    page.mouse.move(gap["rect"]["x"] + gap["rect"]["width"] / 2, gap["rect"]["y"] + 6)
    expect(page.get_by_test_id("tooltip")).to_contain_text(re.compile(r"\d µs idle: \w+"))


def test_pointing_at_a_slice_names_it_and_an_estimate_says_so(golden: str, show: Show) -> None:
    page = show(golden)
    estimated = slices(page, estimated=True, name="nc_exec_running")[0]
    page.mouse.move(estimated["rect"]["x"] + 20, estimated["rect"]["y"] + 6)
    tooltip = page.get_by_test_id("tooltip")
    expect(tooltip).to_contain_text("≈")
    expect(tooltip).to_contain_text("estimated")


def test_search_finds_a_slice_and_goes_there(golden: str, show: Show) -> None:
    page = show(golden)
    page.keyboard.press("/")
    page.keyboard.type("rsqrt")
    expect(page.get_by_test_id("search-result").first).to_contain_text("rsqrt")
    page.keyboard.press("Enter")
    expect(page.locator("[data-testid=chain-card][aria-current=true]")).to_contain_text("rsqrt")


def test_a_search_without_hits_says_so(golden: str, show: Show) -> None:
    page = show(golden)
    page.locator("#search").fill("no such operator")
    expect(page.locator("#search-results")).to_contain_text("No slice has this in its name.")


def test_a_link_opens_the_same_view_for_someone_else(golden: str, show: Show) -> None:
    page = show(golden)
    click(page, last_execution(page))
    page.keyboard.press("f")
    span(page)
    ready(page)
    other = show(page.url)
    shown, theirs = slices(page), slices(other)
    assert [(i["id"], i["track"]) for i in theirs] == [(i["id"], i["track"]) for i in shown]
    for mine, same in zip(shown, theirs, strict=True):
        assert same["rect"] == pytest.approx(mine["rect"], abs=0.1)  # a link holds whole nanoseconds
    expect(other.locator("[data-testid=chain-card][aria-current=true]")).to_contain_text("nc_exec_running")


def test_operators_add_up_and_say_why(golden: str, show: Show) -> None:
    page = show(golden)
    page.get_by_role("button", name="Operators", exact=True).click()
    rows = page.get_by_test_id("operator-row")
    expect(rows.first).to_have_attribute("data-name", "aten::mul")

    def exact(cells: Any) -> int:
        return int(re.sub(r"\D", "", cells.locator("td.strong").get_attribute("title")))

    total = exact(page.get_by_test_id("operator-total"))
    assert sum(exact(row) for row in rows.all()) == total
    expect(page.get_by_test_id("reason")).to_contain_text("launch cost")
    rows.first.click()  # leads to a slice on the timeline
    expect(page.locator("[data-testid=chain-card][aria-current=true]")).to_be_visible()


@pytest.mark.parametrize("renderer", ["webgl2", "2d"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_operator_has_one_colour_on_the_canvas_and_in_the_table(
    golden: str, show: Show, renderer: str, scheme: str
) -> None:
    page = show(f"{golden}?renderer={renderer}", scheme=scheme)
    if page.evaluate("window.__neuronscope.renderer") != renderer:
        assert renderer == "webgl2"
        pytest.skip("this chromium has no WebGL2")
    dispatch = next(i for i in slices(page, name="aten::mul", lane=1) if i["rect"]["width"] > 6)
    rect = dispatch["rect"]
    drawn = pixel(page, rect["x"] + rect["width"] / 2, rect["y"] + rect["height"] / 2)
    dot = page.locator("[data-testid=operator-row][data-name='aten::mul'] .dot")
    style = dot.evaluate("e => getComputedStyle(e).backgroundColor")
    assert drawn == pytest.approx([int(n) for n in re.findall(r"\d+", style)], abs=3)


def test_help_lists_the_keys_and_the_theme_can_be_switched(golden: str, show: Show) -> None:
    page = show(golden)
    page.keyboard.press("?")
    expect(page.get_by_test_id("help")).to_contain_text("next gap")
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("help")).to_have_count(0)
    root = page.locator("html")
    expect(root).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="Switch to the dark theme").click()
    expect(root).to_have_attribute("data-theme", "dark")


def test_copying_the_selection_gives_a_markdown_row_with_its_link(golden: str, show: Show) -> None:
    page = show(golden)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    click(page, last_execution(page))
    expect(page.get_by_test_id("event-panel")).to_contain_text("nc_exec_running")
    page.keyboard.press("c")
    expect(page.get_by_role("status")).to_have_text("Selection copied")
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.startswith("|")
    assert f"[open]({page.url}) |" in text


def test_details_give_the_time_first_and_then_every_nanosecond(golden: str, show: Show) -> None:
    page = show(golden)
    target = last_execution(page)
    click(page, target)
    row = page.locator(".field", has=page.get_by_text("duration", exact=True))
    expect(row).to_have_text(re.compile(rf"^duration\d{{3}} µs {target['duration']:,} ns$"))


def test_neff_and_source_can_be_copied(golden: str, show: Show) -> None:
    page = show(golden)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    click(page, last_execution(page))
    event = page.locator("[data-testid=chain-card][aria-current=true]").get_attribute("data-event")
    details = page.evaluate(f"fetch('api/profiles/golden/events/{event}').then(r => r.json()).then(e => e.execution)")
    for name, value in (("NEFF", details["neff"]), ("source", details["source"])):
        page.get_by_role("button", name=f"Copy {name}").click()
        expect(page.get_by_role("status")).to_have_text(f"{name} copied")
        assert page.evaluate("navigator.clipboard.readText()") == value


def test_terms_and_the_report_are_copied_as_markdown(three: str, golden: str, show: Show) -> None:
    page = show(f"{three}?view=compare", wait=False)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy terms").click()
    expect(page.get_by_role("status")).to_have_text("Terms copied")
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert lines[0].startswith("| naive → fused, span ")
    assert re.fullmatch(r"\| launches 6 → 1 \| .* \| −1,925\.000 µs \|", lines[2])
    assert lines[-1].startswith("| sum |")
    page = show(golden)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_test_id("health-chip").click()
    page.get_by_role("button", name="Copy as Markdown").click()
    expect(page.get_by_role("status")).to_have_text("Report copied")
    assert "| dropped while recording | 0 |" in page.evaluate("navigator.clipboard.readText()")


def test_a_term_highlights_its_part_of_every_execution(three: str, show: Show) -> None:
    page = show(f"{three}?view=compare", wait=False)
    lit = page.get_by_test_id("lit")
    expect(page.get_by_test_id("compare-execution")).to_have_count(8)
    expect(lit).to_have_count(0)
    for term, parts in (("launches", 8), ("engines and DMA", 8), ("gaps", 5)):
        page.locator(f"[data-testid=compare-term][data-name='{term}']").click()
        expect(lit).to_have_count(parts)
        for name in lit.locator("text").all():
            text, part = name.bounding_box(), name.locator("..").bounding_box()
            assert text is not None and part is not None and text["x"] + text["width"] <= part["x"] + part["width"] - 3
        expect(page.locator("[aria-pressed=true]").filter(has_text=term)).to_have_count(1)
    page.get_by_role("button", name="gaps").press("Enter")  # again: nothing is singled out
    expect(lit).to_have_count(0)


def test_names_of_executions_are_shortened_not_dropped(three: str, show: Show) -> None:
    page = show(f"{three}?view=compare", wait=False)
    names = page.get_by_test_id("compare-name")
    expect(names.last).to_have_text(re.compile(r"^Torch.*…$"))
    page.set_viewport_size({"width": 4000, "height": 900})
    expect(names.last).to_have_text("Torch-Compiled Region: 0/0")


def test_figures_of_the_comparison_have_three_digits(three: str, show: Show) -> None:
    page = show(f"{three}?view=compare", wait=False)
    rows = page.get_by_test_id("compare-row")
    expect(rows).to_have_count(3)
    figures = re.findall(r"([\d.]+) (?:KiB|MiB|µs|ms)", " ".join(rows.locator("td").all_text_contents()))
    assert len(figures) >= 12
    assert {len(figure.replace(".", "")) for figure in figures} == {3}
    expect(page.get_by_test_id("roofline")).to_contain_text("launch-bound: the roofs say nothing about these")
    figure = page.get_by_test_id("roofline").bounding_box()
    chart = page.get_by_test_id("roofline").locator("svg").bounding_box()
    assert figure and chart and round(chart["width"]) == round(figure["width"])  # so letters keep their size


def test_comparison_terms_sum_to_the_difference_in_span(three: str, show: Show) -> None:
    page = show(three)
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_test_id("compare-sentence")).to_contain_text("launches")
    rows = page.get_by_test_id("compare-row")
    expect(rows).to_have_count(3)

    def check(base: str, other: str) -> None:
        expect(page.get_by_test_id("compare-terms")).to_contain_text(f"{base} → {other}")
        terms = {
            t.get_attribute("data-name"): int(t.get_attribute("data-delta-ns") or "")
            for t in page.get_by_test_id("compare-term").all()
        }
        assert set(terms) == {"launches", "engines and DMA", "gaps"}
        spans = page.evaluate(
            "fetch('api/compare?profiles=naive,fused,compiled&base=naive').then(r => r.json())"
            ".then(c => Object.fromEntries(c.profiles.map(p => [p.id, p.span_ns])))"
        )
        assert sum(terms.values()) == spans[other] - spans[base]
        expect(page.get_by_test_id("compare-sum")).to_have_attribute("data-delta-ns", str(sum(terms.values())))
        expect(page.get_by_test_id("compare-sum")).to_contain_text("exact")

    check("naive", "fused")
    page.get_by_role("button", name="compiled", exact=True).click()
    check("naive", "compiled")
    page.get_by_role("button", name="Make fused the base").click()
    check("fused", "compiled")
    page.go_back()
    check("naive", "compiled")


def test_six_launches_are_drawn_against_one(three: str, show: Show) -> None:
    page = show(f"{three}?view=compare", wait=False)
    expect(page.get_by_test_id("compare-execution")).to_have_count(8)  # 6 + 1 + 1
    page.get_by_test_id("compare-execution").nth(5).click()
    ready(page)
    expect(page.locator("[data-testid=chain-card][aria-current=true]")).to_contain_text("nc_exec_running")


def test_without_a_device_the_page_says_why(cpu_only: str, show: Show) -> None:
    page = show(cpu_only)
    expect(page.locator(".lanes .empty-note")).to_contain_text("No device rows.")
    expect(page.get_by_role("button", name="Compare")).to_have_count(0)
    row = page.get_by_test_id("operator-row")
    expect(row).to_have_text(
        re.compile(r"^aten::add1[\d.]+ µs100\.0 %$")
    )  # the host's times, where there are no others
    expect(page.get_by_test_id("operator-total")).to_contain_text("Self CPU total")
    page.keyboard.press("n")
    expect(page.get_by_role("status")).to_have_text("No device lanes, so no gaps")
    box = page.locator("canvas.overview").bounding_box()
    assert box is not None
    drawn = pixel(page, box["x"] + box["width"] / 2, box["y"] + 10)
    dot = row.locator(".dot").evaluate("e => getComputedStyle(e).backgroundColor")
    assert drawn == pytest.approx([int(n) for n in re.findall(r"\d+", dot)], abs=3)


def test_errors_of_the_server_appear_on_the_page(golden: str, show: Show) -> None:
    page = show(f"{golden}?profile=missing", wait=False)
    expect(page.get_by_role("alert")).to_contain_text("missing")


def test_a_failed_overview_is_told_and_can_be_tried_again(golden: str, show: Show) -> None:
    page = show(golden, wait=False)
    page.route("**/overview?*", lambda route: route.fulfill(status=500, json={"error": "overview: disk is gone"}))
    page.goto(golden)
    expect(page.get_by_role("alert")).to_have_text(re.compile("^overview: disk is gone"))
    page.unroute("**/overview?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_profile_removed_while_it_is_viewed_is_told_once(removable: tuple[str, Path], show: Show) -> None:
    address, store = removable
    page = show(address)
    shutil.rmtree(store)
    click(page, last_execution(page))
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("golden: removed from the library since it was opened")
    expect(alert).to_have_count(1)


def test_a_server_that_is_gone_is_told_once(golden: str, show: Show) -> None:
    page = show(golden)
    page.route("**/api/**", lambda route: route.abort())
    click(page, last_execution(page))
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The server does not answer.")
    expect(alert).to_have_count(1)
    page.unroute("**/api/**")
    page.get_by_role("button", name="Reload").click()
    ready(page)
    expect(alert).to_have_count(0)


def test_the_focus_goes_through_the_page_as_it_is_read(golden: str, show: Show) -> None:
    page = show(golden)
    name = "e => e.getAttribute('aria-label') || e.textContent.trim()"
    seen = []
    for _ in range(14):
        page.keyboard.press("Tab")
        seen.append(page.locator(":focus").evaluate(name))
    wanted = ["Timeline", "Operators", "Search slices", "Keys and help", "Link", "Step shown", "Height of the timeline"]
    assert [label for label in seen if label in wanted] == wanted
    assert all(seen)  # whatever takes the focus has a name


def test_the_result_the_arrow_keys_are_at_is_announced(golden: str, show: Show) -> None:
    page = show(golden)
    box = page.locator("#search")
    box.fill("mul")
    expect(page.get_by_test_id("search-result").nth(1)).to_be_visible()
    page.keyboard.press("ArrowDown")
    second = page.get_by_test_id("search-result").nth(1).get_attribute("id")
    expect(box).to_have_attribute("aria-activedescendant", second or "")


def test_a_failed_tile_is_told_and_can_be_tried_again(golden: str, show: Show) -> None:
    page = show(golden, wait=False)

    def refuse(route: Route) -> None:
        route.fulfill(status=500, content_type="application/json", body='{"error": "store: disk is gone"}')

    page.route("**/tiles?*", refuse)
    page.goto(golden)
    expect(page.get_by_role("alert")).to_contain_text("store: disk is gone")
    page.unroute("**/tiles?*")
    page.get_by_role("button", name="Try again").click()
    ready(page)
    assert slices(page, name="nc_exec_running")
