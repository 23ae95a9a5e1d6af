"""A telephone: what is above the map takes at most 120 px, whatever the state of the connection."""

import pytest
from playwright.sync_api import Page, expect

from tests.page.browser import overflow, violations
from tests.page.conftest import Open
from tests.page.gateway import PageGateway, running
from tests.page.synthetic import SyntheticCell

HEADER_MOST = 120
TOKEN = "a-secret-token"  # noqa: S105  # of this test alone


def header(page: Page) -> float:
    """Height of everything above the map."""
    height: float = page.evaluate("document.getElementById('main').getBoundingClientRect().top + scrollY")
    return height


def narrow(open_page: Open, address: str, width: int = 390) -> Page:
    return open_page(address, viewport={"width": width, "height": 844}, has_touch=True, is_mobile=True)


@pytest.mark.parametrize("width", [320, 390, 600])
def test_the_header_has_two_lines_and_every_view_can_be_reached(
    open_page: Open, gateway: PageGateway, small: SyntheticCell, width: int, axe: str
) -> None:
    small.has_queues = True
    page = narrow(open_page, gateway.url, width)
    expect(page.locator("#connection")).to_have_text("Live")
    assert header(page) <= HEADER_MOST
    for name in ("Queue", "Jobs", "Queues", "Faults", "Services", "Dead letters", "Cell"):
        link = page.get_by_role("navigation", name="Views").get_by_role("link").filter(has_text=name).first
        link.tap()
        expect(page.locator("#panel-title")).to_have_text(name)
        assert overflow(page) == 0
    assert header(page) <= HEADER_MOST
    assert violations(page, axe) == []


def test_the_search_fits_with_its_results(open_page: Open, gateway: PageGateway) -> None:
    page = narrow(open_page, gateway.url)
    expect(page.locator("#connection")).to_have_text("Live")
    page.get_by_role("combobox", name="Search").fill("a2-1")
    found = page.locator("#found")
    expect(found.get_by_role("option")).to_have_count(3)
    box = found.bounding_box()
    assert box is not None
    assert box["width"] > 300
    assert overflow(page) == 0


def test_a_lost_connection_and_a_token_leave_it_small(
    open_page: Open, small: SyntheticCell, allowed: list[str]
) -> None:
    allowed += ["401", "ERR_", "503"]
    with running(PageGateway(small, token=TOKEN)) as gateway:
        page = narrow(open_page, gateway.url)
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").last.click()
        expect(page.locator("#connection")).to_have_text("Live")
        assert header(page) <= HEADER_MOST
        gateway.failing.update({"/api/v1/me", "/api/v1/view/changes"})
        gateway.drop()
        expect(page.locator("#connection")).to_contain_text("lost, retrying in")
        assert header(page) <= HEADER_MOST
        assert overflow(page) == 0
        page.context.close()
