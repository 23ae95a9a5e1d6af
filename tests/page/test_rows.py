"""What rows of nodes, jobs and faults can hold beyond the usual, and changes of the layout."""

import re

from playwright.sync_api import expect

from tests.page.conftest import Open
from tests.page.gateway import PageGateway
from tests.page.synthetic import SyntheticCell


def test_a_chip_that_jobs_share_is_listed_for_each_of_them(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    first, second = (small.add_job(name=name, namespace="team-a", phase="running") for name in ("half", "other-half"))
    node = ["ok", 0, 0, [first, 0, 0, 0, 0, 0, 0, 0], 0, 0, 0, 0, 1, 0, 0b11000000, [[0, [first, second]]]]
    small.nodes[2] = node
    name = small.layout["nodes"][2][0]
    page = open_page(f"{gateway.url}#/node/{name}")
    rows = page.get_by_role("table", name=f"Chips of {name}").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_have_text("0team-a/half, team-a/other-half")
    expect(rows.nth(1)).to_have_text("1-5free")
    expect(page.locator("#content")).to_contain_text("1 of 6")
    page.goto(f"{gateway.url}#/job/team-a/other-half")
    expect(page.get_by_role("table", name="Places of other-half")).to_contain_text(name)


def test_a_chip_that_is_reserved_names_who_has_it_and_who_gets_it(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    low, high = (small.add_job(name=name, namespace="team-a", phase=phase) for name, phase in (("low", "ending"), ("high", "waiting")))  # fmt: skip
    owners = [low, low, high, 0, 0, 0, 0, 0]
    small.nodes[2] = ["ok", 0, 0, owners, 0, 0, 0b11, 0, 0, 0b110, 0, [[1, [low, high]]]]
    name = small.layout["nodes"][2][0]
    page = open_page(f"{gateway.url}#/node/{name}")
    rows = page.get_by_role("table", name=f"Chips of {name}").locator("tbody tr")
    expect(rows).to_have_text(
        ["0team-a/low", "1team-a/low, reserved for team-a/high", "2reserved for team-a/high", "3-7free"]
    )


def test_positions_follow_the_queue_and_jobs_without_chips_have_their_own(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    small.wait(small.add_job(name="plain", namespace="team-a", chips=0, is_plain=True), "it waits for memory")
    page = open_page(f"{gateway.url}#/queue")
    cards = page.locator("ol.cards li")
    expect(cards).to_have_count(4)
    expect(cards.nth(2)).to_contain_text("Position 3")
    expect(cards.nth(3)).to_contain_text("Position 1")
    expect(cards.nth(3)).to_contain_text("queue of jobs without chips")
    gone = small.queue.pop(0)
    small._gone.append(gone)
    gateway.send(small.change() | {"jobs": []})
    expect(cards).to_have_count(3)
    expect(cards.nth(0)).to_contain_text("Position 1")


def label(cell: SyntheticCell, absent: int = 0) -> str:
    used = sum(owner != 0 for node in cell.nodes for owner in node[3])
    chips = sum(len(node[3]) for node in cell.nodes) - absent
    return f"Map of the cell: {len(cell.nodes)} nodes, {used} of {chips} chips in use"


def test_nodes_come_and_leave(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    page = open_page(gateway.url)
    area = page.locator("#map")
    expect(area).to_have_attribute("aria-label", label(small))
    larger = SyntheticCell(40)
    larger.version = small.version + 1
    gateway.send(larger.view())
    expect(area).to_have_attribute("aria-label", label(larger))
    gateway.send(small.view() | {"version": larger.version + 1}, event="view")
    expect(area).to_have_attribute("aria-label", label(small))


def test_the_chosen_node_stays_the_same_when_nodes_come_or_leave(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    page = open_page(gateway.url)
    area = page.locator("#map")
    expect(area).to_have_attribute("aria-label", label(small))
    area.press("ArrowRight")
    area.press("ArrowRight")
    log = page.get_by_role("log", name="Changes")
    expect(log).to_contain_text("a2-1: ")
    small.layout["nodes"].insert(0, ["a1-0", 0, -1, -1, 0, 8])
    small.nodes.insert(0, ["ok", 0, 0, [0] * 8, 0, 0, 0, 0, 0, 0])
    small.faults.clear()
    gateway.send(small.view() | {"version": 2}, event="view")
    expect(area).to_have_attribute("aria-label", label(small))
    area.press("Enter")
    expect(page.locator("#panel-title")).to_have_text("Node a2-1")
    del small.layout["nodes"][1:], small.nodes[1:]
    gateway.send(small.view() | {"version": 3}, event="view")
    expect(area).to_have_attribute("aria-label", re.compile(": 1 node, "))
    area.press("ArrowRight")
    expect(log).to_contain_text("a1-0: ")


def test_a_click_on_a_chip_opens_its_job_also_beside_absent_chips(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    first, second = (small.add_job(name=name, namespace="team-a", phase="running") for name in ("left", "right"))
    small.nodes[2] = ["ok", 0, 0, [first, first, second, second, 0, 0, 0, 0], 0, 0, 0, 0, 0, 0, 0b11110000]
    page = open_page(f"{gateway.url}#/?map={small.layout['nodes'][2][0]},200")
    expect(page.locator("#map")).to_have_attribute("aria-label", label(small, absent=4))
    box = page.locator("#map").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2 + 75, box["y"] + box["height"] / 2 - 40)
    expect(page.locator("#panel-title")).to_have_text("Job team-a/right")


def test_a_node_without_a_superpod_has_its_rack(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    small.layout["racks"] = ["rack-9"]
    for row, leaf in ((0, 0), (1, -1)):
        small.layout["nodes"][row][3:5] = [0, leaf]
    page = open_page(f"{gateway.url}#/node/a2-0")
    expect(page.locator("#content dl")).to_contain_text("Rackrack-9")
    page.goto(f"{gateway.url}#/node/a2-1")
    expect(page.locator("#content dl")).to_contain_text("Grouprack-9")
    page.get_by_role("link", name="rack-9").click()
    expect(page.locator("#content tbody")).to_contain_text("a2-1")


def test_every_level_of_a_fault_has_a_sign_and_a_word(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    levels = (
        "unhealthy",
        "recovering",
        "network-unhealthy",
        "sub-healthy",
        "no-new-work",
        "evict",
        "not-ready",
        "gone",
    )
    small.faults = [
        {"at_ms": 0, "node": 0, "place": "a2-0", "level": level, "sentence": "", "jobs": [], "kind": "x", "chips": []}
        for level in levels
    ]
    page = open_page(f"{gateway.url}#/faults")
    badges = page.locator("#content .badge")
    expect(badges).to_have_text(
        [
            "✕ unhealthy",
            "↻ recovering",
            "◥ network unhealthy",
            "◥ sub-healthy",
            "▲ no new work",
            "✕ evict",
            "✕ not ready",
            "✕ gone",
        ]
    )


def test_a_job_that_left_the_view_is_read_from_the_gateway(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    n = small.add_job(name="former", namespace="team-a")
    small.jobs[n] |= {"phase": "succeeded", "since_ms": small.at_ms}
    small._event(n, "succeeded")
    gateway.former.append(small.jobs.pop(n))
    page = open_page(f"{gateway.url}#/job/team-a/former")
    expect(page.locator("#content")).to_contain_text("succeeded")
    expect(page.locator(".timeline li")).to_have_count(2)


def test_a_name_that_no_job_has_is_told(open_page: Open, gateway: PageGateway, allowed: list[str]) -> None:
    allowed.append("404")
    page = open_page(f"{gateway.url}#/job/team-a/nobody")
    expect(page.locator("#content")).to_have_text("There is no job team-a/nobody in this cell.")
