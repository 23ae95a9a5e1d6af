"""Nodes of the job that is shown: those that could take a pod of one that waits, and those of one that is placed."""

import re
from typing import Final

from playwright.sync_api import expect

from tests.page.conftest import Open
from tests.page.documents import fits
from tests.page.gateway import PageGateway
from tests.page.synthetic import Json, SyntheticCell

_PIXELS: Final = """([color]) => {
  const canvas = document.getElementById("map");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4) found += color.every((value, index) => data[at + index] === value);
  return found;
}"""
"""Pixels of the map that have a colour."""
_ACCENT: Final = [0x0B, 0x5F, 0xAD]


def address(job: Json) -> str:
    return f"#/job/{job['namespace']}/{job['name']}"


def of(cell: SyntheticCell, n: int) -> list[int]:
    """Rows of the nodes that a job has chips on."""
    return [row for row, node in enumerate(cell.nodes) if n in node[3]]


def test_nodes_for_a_job_that_waits_are_marked_and_the_others_say_why_not(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    job = small.jobs[small.queue[0]]
    groups = {one["reason"]: one for one in fits(small, job)}
    page = open_page(f"{gateway.url}{address(job)}", color_scheme="light")
    content = page.locator("#content")
    able = groups["fits"]["nodes"]
    expect(content).to_contain_text(f"{len(able)} of 12 nodes could take")
    rows = page.get_by_role("table", name="Nodes that cannot take a pod").locator("tbody tr")
    expect(rows).to_have_count(len(groups) - 1)
    expect(rows.filter(has_text=groups["shortage"]["words"])).to_contain_text(str(len(groups["shortage"]["nodes"])))
    page.wait_for_function(f"(asked) => ({_PIXELS})(asked) > 100", arg=[_ACCENT])
    page.locator("#map").focus()
    changes = page.get_by_role("log", name="Changes")
    for _ in range(len(small.nodes)):
        page.keyboard.press("ArrowRight")
    for _ in range(len(small.nodes)):
        page.keyboard.press("ArrowLeft")
    expect(changes).to_contain_text(re.compile(rf"cannot take a pod of {job['name']}: (has fewer|is )"))
    page.goto(f"{gateway.url}#/jobs")
    page.wait_for_function(f"(asked) => ({_PIXELS})(asked) < 100", arg=[_ACCENT])


def test_the_nodes_of_a_placed_job_are_framed_and_zoomed_to(open_page: Open, gateway: PageGateway) -> None:
    cell = gateway.cell = SyntheticCell(300, seed=3)
    rows = next(rows for one in cell.jobs if len(rows := of(cell, one)) == 4 and len({row // 4 for row in rows}) == 1)
    job = cell.jobs[cell.nodes[rows[0]][3][0]]
    page = open_page(f"{gateway.url}{address(job)}")
    page.wait_for_url(re.compile(r"\?map=a[23]-\d+,"))
    name, scale = page.url.rpartition("?map=")[2].split(",")
    middle = next(row for row, place in enumerate(cell.layout["nodes"]) if place[0] == name)
    assert middle // 16 == rows[0] // 16, "the middle of the map is at the leaf switch of the job"
    assert float(scale) > 60


def test_a_first_view_that_is_late_still_leads_to_the_job_of_the_address(open_page: Open, gateway: PageGateway) -> None:
    """It comes right before the time to note the place of the map, and its first frame right after."""
    cell = gateway.cell = SyntheticCell(300, seed=3)
    job = next(job for job in cell.jobs.values() if len(of(cell, job["n"])) == 1)
    gateway.held.add("/api/v1/view/changes")
    page = open_page("about:blank")
    page.clock.install()
    page.clock.pause_at(1_800_000_000)
    page.goto(f"{gateway.url}{address(job)}")
    expect(page.locator("#connection")).to_have_text("Connecting")
    page.clock.run_for(300)
    gateway.held.clear()
    expect(page.locator("#connection")).to_have_text("Live")
    page.clock.run_for(2_000)
    page.wait_for_url("**?map=*")
