"""The page for every reader: rules of axe-core, the keyboard alone, narrow screens, addresses, search, themes."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.page.browser import overflow, violations
from tests.page.conftest import Open
from tests.page.gateway import PageGateway
from tests.page.synthetic import SyntheticCell

VIEWS = ("", "queue", "jobs", "faults", "services", "dead", "group/leaf/leaf-0", "node/a2-8", "job/JOB", "job/WAITING")


def addresses(small: SyntheticCell) -> list[str]:
    """Addresses of all views."""
    placed = next(job for job in small.jobs.values() if job["phase"] == "running")
    waiting = small.jobs[small.queue[0]]
    names = {"JOB": placed, "WAITING": waiting}
    return [
        "/".join(
            f"{names[part]['namespace']}/{names[part]['name']}" if part in names else part for part in view.split("/")
        )
        for view in VIEWS
    ]


def settled(page: Page) -> None:
    expect(page.locator("#connection")).to_have_text("Live")
    expect(page.locator("#content")).not_to_contain_text("Reading the")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_view(
    open_page: Open, gateway: PageGateway, small: SyntheticCell, axe: str, scheme: str
) -> None:
    page = open_page(gateway.url, color_scheme=scheme)
    page.locator("#legend summary").click()
    found = {}
    for address in addresses(small):
        page.goto(f"{gateway.url}#/{address}")
        settled(page)
        found[address] = violations(page, axe)
    page.get_by_role("combobox", name="Search").fill("a")
    expect(page.locator("#found").get_by_role("option").first).to_be_visible()
    found["search"] = violations(page, axe)
    assert {address: problems for address, problems in found.items() if problems} == {}


def test_axe_notices_a_fault(open_page: Open, gateway: PageGateway, axe: str) -> None:
    page = open_page(gateway.url)
    settled(page)
    page.evaluate("document.getElementById('zoom-in').removeAttribute('aria-label')")
    page.evaluate("document.getElementById('zoom-in').textContent = ''")
    assert [one.partition(":")[0] for one in violations(page, axe)] == ["button-name"]


def test_no_view_is_wider_than_a_telephone(
    open_page: Open, gateway: PageGateway, small: SyntheticCell, axe: str
) -> None:
    small.wait(small.add_job(name="a-name-without-a-break-" + 60 * "x"), "waits")
    page = open_page(gateway.url, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    wide = {}
    for address in addresses(small):
        page.goto(f"{gateway.url}#/{address}")
        settled(page)
        wide[address] = overflow(page)
    assert {address: pixels for address, pixels in wide.items() if pixels > 0} == {}
    assert violations(page, axe) == []


def test_everything_is_reached_with_the_keyboard(open_page: Open, gateway: PageGateway) -> None:
    page = open_page(gateway.url)
    settled(page)
    expect(page.get_by_text("leaf-0", exact=True).first).to_be_visible()  # the panel's rows come after its title
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
    for wanted in ("skip", "search", "theme", "map", "zoom-in", "zoom-out", "zoom-fit", "leaf-0"):
        assert wanted in seen
    assert any(text.startswith("Queue") for text in seen)


def test_the_skip_link_leads_to_the_view(open_page: Open, gateway: PageGateway) -> None:
    page = open_page(gateway.url)
    settled(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#panel-title")).to_be_focused()


def test_the_map_is_walked_with_the_keyboard(open_page: Open, gateway: PageGateway) -> None:
    page = open_page(gateway.url)
    settled(page)
    page.locator("#map").focus()
    page.keyboard.press("ArrowRight")
    changes = page.get_by_role("log", name="Changes")
    expect(changes).to_contain_text("a2-0: ")
    page.keyboard.press("ArrowRight")
    expect(changes).to_contain_text("a2-1: ")
    page.keyboard.press("ArrowDown")
    expect(changes).to_contain_text("a2-3: ")
    page.keyboard.press("+")
    page.keyboard.press("+")
    page.wait_for_url(re.compile(r"map=a2-\d+,[\d.]+"))
    page.keyboard.press("Home")
    page.wait_for_url(re.compile(r"#/$"))
    page.keyboard.press("Enter")
    expect(page.locator("#panel-title")).to_have_text("Node a2-3")
    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()


def test_search_finds_jobs_and_nodes(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    page = open_page(gateway.url)
    settled(page)
    job = next(job for job in small.jobs.values() if job["phase"] == "running")
    page.keyboard.press("/")
    page.keyboard.type(job["name"])
    expect(page.locator("#found").get_by_role("option").first).to_contain_text(f"{job['namespace']}/{job['name']}")
    page.keyboard.press("Enter")
    expect(page.locator("#panel-title")).to_have_text(f"Job {job['namespace']}/{job['name']}")
    page.keyboard.press("/")
    page.keyboard.type("a2-1")
    expect(page.locator("#found").get_by_role("option")).to_have_count(3)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#found").get_by_role("option").nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.locator("#panel-title")).to_have_text("Node a2-10")
    page.keyboard.press("/")
    page.keyboard.type("no-such-thing")
    expect(page.locator("#found").get_by_role("option")).to_have_text("Nothing found")
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox")).to_be_hidden()


def test_an_address_leads_to_the_same_view_and_place(open_page: Open, gateway: PageGateway) -> None:
    page = open_page(f"{gateway.url}#/node/a2-4")
    settled(page)
    page.locator("#zoom-in").click()
    page.wait_for_url(re.compile(r"#/node/a2-4\?map="))
    once = page.url
    page.locator("#zoom-in").click()
    page.wait_for_url(lambda address: "#/node/a2-4?map=" in address and address != once)
    address = page.url
    other = open_page(address)
    expect(other.locator("#panel-title")).to_have_text("Node a2-4")
    page.reload()
    expect(page.locator("#panel-title")).to_have_text("Node a2-4")
    settled(page)
    assert page.url == address
    page.goto(f"{gateway.url}#/no-such-view")
    expect(page.locator("#panel-title")).to_have_text("Not found")
    page.go_back()
    expect(page.locator("#panel-title")).to_have_text("Node a2-4")


def test_a_move_of_the_map_right_before_a_new_address_is_not_a_part_of_it(
    open_page: Open, gateway: PageGateway
) -> None:
    """A page that is busy sees the key first, then it is time to write the place, then comes the new address."""
    page = open_page(gateway.url)
    settled(page)
    page.keyboard.press("/")
    page.keyboard.type("a2-4")
    expect(page.locator("#found").get_by_role("option").first).to_contain_text("a2-4")
    page.evaluate(
        """() => {
          document.getElementById("zoom-in").click();
          setTimeout(() => {
            const end = performance.now() + 1000;
            while (performance.now() < end);
          }, 0);
        }"""
    )
    page.keyboard.press("Enter")
    page.wait_for_url("**#/node/a2-4?map=a2-4,*")


def test_an_address_with_a_place_moves_the_map_also_from_another_view(open_page: Open, gateway: PageGateway) -> None:
    page = open_page(f"{gateway.url}#/queue")
    settled(page)
    page.locator("#zoom-in").click()
    page.wait_for_url("**#/queue?map=*")
    from_whole_cell = page.url
    page.locator("#zoom-fit").click()
    page.wait_for_url("**#/queue")
    page.goto(f"{gateway.url}#/jobs?map=a2-4,90.0")
    expect(page.locator("#panel-title")).to_have_text("Jobs")
    page.locator("#zoom-in").click()
    page.wait_for_url("**#/jobs?map=a2-4,135.0")
    page.get_by_role("link", name="Queue").click()
    page.wait_for_url("**#/queue?map=a2-4,135.0")
    page.go_back()
    page.go_back()
    page.wait_for_url("**#/queue")
    page.locator("#zoom-in").click()
    page.wait_for_url(from_whole_cell)


def test_the_place_of_an_address_waits_for_the_view(open_page: Open, gateway: PageGateway) -> None:
    gateway.held.add("/api/v1/view/changes")
    page = open_page("about:blank")
    page.clock.install()
    page.goto(f"{gateway.url}#/?map=a2-4,90.0")
    expect(page.locator("#connection")).to_have_text("Connecting")
    page.clock.run_for(1_000)
    assert page.url.endswith("#/?map=a2-4,90.0")
    gateway.held.clear()
    settled(page)
    page.clock.run_for(1_000)
    assert page.url.endswith("#/?map=a2-4,90.0")


def test_the_theme_is_chosen_and_remembered(open_page: Open, gateway: PageGateway) -> None:
    page = open_page(gateway.url, color_scheme="light")
    settled(page)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Theme: system").click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate(ground) == dark
    page.get_by_role("button", name="Theme: dark").click()
    expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
    assert page.evaluate(ground) == light


def test_a_click_on_the_map_opens_what_is_there(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    page = open_page(gateway.url)
    settled(page)
    row = next(row for row, node in enumerate(small.nodes) if len(set(node[3])) == 1 and node[3][0] > 0)
    job = small.jobs[small.nodes[row][3][0]]
    page.goto(f"{gateway.url}#/?map={small.layout['nodes'][row][0]},200")
    page.reload()
    settled(page)
    box = page.locator("#map").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2 + 30, box["y"] + box["height"] / 2 + 30)
    expect(page.locator("#panel-title")).to_have_text(f"Job {job['namespace']}/{job['name']}")
