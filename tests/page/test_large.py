"""10,000 nodes, fingers, and many changes at once."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import CDPSession, Page, expect

from tests.page.conftest import Open
from tests.page.gateway import PageGateway, running
from tests.page.synthetic import SyntheticCell
from tests.support.waiting import SLACK

NODES = 10_000


@pytest.fixture(scope="module")
def large() -> Iterator[PageGateway]:
    with running(PageGateway(SyntheticCell(NODES))) as started:
        yield started


def scale_of(address: str) -> float:
    """Pixels of a node, as the address says."""
    found = re.search(r"map=[^,]+,([\d.]+)", address)
    assert found is not None
    return float(found[1])


def test_ten_thousand_nodes_are_shown_searched_and_walked(open_page: Open, large: PageGateway) -> None:
    page = open_page(large.url)
    expect(page.locator("#map")).to_have_attribute("aria-label", re.compile("Map of the cell: 10,000 nodes"))
    rows = page.get_by_role("table", name="Groups of nodes").locator("tbody tr")
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Show 200 more of 387").click()
    expect(rows).to_have_count(300)
    last = large.cell.layout["nodes"][-1][0]
    page.keyboard.press("/")
    page.keyboard.type(last)
    page.keyboard.press("Enter")
    expect(page.locator("#panel-title")).to_have_text(f"Node {last}")
    page.wait_for_url(re.compile(rf"map={last},"))
    assert scale_of(page.url) > 20, "the map went to the node, near enough for its chips"
    page.locator("#map").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.locator("#panel-title")).not_to_have_text(f"Node {last}")
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    page.locator("#map").focus()
    page.keyboard.press("Home")
    page.wait_for_url(re.compile(r"^[^?]*$"))


def test_many_jobs_in_a_row_are_announced_in_sums(open_page: Open, large: PageGateway) -> None:
    page = open_page(f"{large.url}#/jobs")
    expect(page.locator("#connection")).to_have_text("Live")
    log = page.get_by_role("log", name="Changes").locator("p")
    expect(log).to_have_count(0)
    names = [f"burst-{number}" for number in range(40)]
    for name in names:
        n = large.cell.add_job(name=name, phase="recovering")
        large.cell.jobs[n]["since_ms"] = large.cell.at_ms + n
        large.send(large.cell.change())
    for name in names:
        expect(page.locator("#content")).to_contain_text(name)
    expect(log.first).to_be_attached(timeout=8_000 * SLACK)
    assert log.count() < 10, "one announcement each few seconds, not one for each job"
    assert re.fullmatch(r"(\d+ jobs recovering|team-\w/burst-\d+ is recovering)\.", log.first.inner_text())


def touch(session: CDPSession, kind: str, points: list[tuple[float, float]]) -> None:
    session.send(
        "Input.dispatchTouchEvent",
        {"type": kind, "touchPoints": [{"x": x, "y": y, "id": index} for index, (x, y) in enumerate(points)]},
    )


def address_at_rest(page: Page, former: str = "") -> str:
    """Address with the place of the map after a gesture; another one than before.

    The page writes it 300 ms after the last move, so on a busy machine it also does within a gesture. A timer of the
    page that is begun after the gesture, and is longer, ends after that of the last move, however late both are.
    """
    page.wait_for_url(lambda address: "map=" in address and address != former)
    address: str = page.evaluate("new Promise((done) => setTimeout(() => done(location.href), 700))")
    assert "map=" in address
    return address


def test_two_fingers_zoom_and_one_moves(open_page: Open, gateway: PageGateway) -> None:
    page = open_page(gateway.url, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    expect(page.locator("#connection")).to_have_text("Live")
    box = page.locator("#map").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    session = page.context.new_cdp_session(page)
    touch(session, "touchStart", [(x - 20, y), (x + 20, y)])
    for step in range(1, 9):
        touch(session, "touchMove", [(x - 20 - 3 * step, y), (x + 20 + 3 * step, y)])
    touch(session, "touchEnd", [])
    zoomed = address_at_rest(page)
    assert scale_of(zoomed) > 60
    touch(session, "touchStart", [(x + 160, y)])
    for step in range(1, 17):
        touch(session, "touchMove", [(x + 160 - 20 * step, y)])
    touch(session, "touchEnd", [])
    moved = address_at_rest(page, zoomed)
    assert moved != zoomed
    assert scale_of(moved) == scale_of(zoomed)
    expect(page.locator("#panel-title")).to_have_text("Cell")
