"""Colours of the map by use, job or namespace, from afar and near; and times in one zone."""

import re

from playwright.sync_api import Page, expect

from tests.page.browser import violations
from tests.page.conftest import Open
from tests.page.gateway import PageGateway
from tests.page.synthetic import SyntheticCell


def filled(small: SyntheticCell) -> None:
    """Two jobs of one namespace and one of another on whole nodes, and one on two chips."""
    small.nodes = [["ok", 0, 0, [0] * 8, 0, 0, 0, 0, 0, 0] for _ in small.nodes]
    small.jobs.clear()
    small.queue.clear()
    for row, (namespace, name) in enumerate((("team-a", "one"), ("team-a", "two"), ("vision", "three"))):
        small.place(small.add_job(name=name, namespace=namespace, phase="running", chips=8), [row])
    n = small.add_job(name="part", namespace="vision", phase="running", chips=2)
    small.nodes[3][3][:2] = [n, n]


def color(page: Page, node: str, scale: int, up: float = 0.0) -> list[int]:
    """Colour of the map in the middle of a node, or above it by a share of its side."""
    page.goto(re.sub("#.*", "", page.url) + f"#/faults?map={node},{scale}")
    page.wait_for_function(
        "(wanted) => document.querySelector('#map') && location.hash.includes(wanted)", arg=f"map={node},{scale}"
    )
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    found: list[int] = page.evaluate(
        """(up) => {
          const canvas = document.getElementById("map");
          const [x, y] = [canvas.width / 2, canvas.height / 2 - up * canvas.width / canvas.clientWidth];
          return [...canvas.getContext("2d").getImageData(x + 1, y + 1, 1, 1).data].slice(0, 3);
        }""",
        up * scale,
    )
    return found


def test_colours_by_namespace_are_the_same_for_its_jobs_at_every_zoom(
    open_page: Open, gateway: PageGateway, small: SyntheticCell, axe: str
) -> None:
    filled(small)
    page = open_page(f"{gateway.url}#/faults")
    expect(page.locator("#connection")).to_have_text("Live")
    by = page.get_by_role("combobox", name="Colours of the map")
    listed = page.get_by_role("list", name="Colours of namespaces").get_by_role("listitem")
    expect(listed).to_have_count(0)
    assert color(page, "a2-0", 12) == color(page, "a2-2", 12), "by use: both are full"
    by.select_option("namespace")
    expect(listed).to_have_text(["team-a", "vision"])
    near = [color(page, f"a2-{row}", 12) for row in range(3)]
    assert near[0] == near[1] != near[2]
    assert [color(page, f"a2-{row}", 30) for row in (0, 2)] == [near[0], near[2]], "chips have the same colours"
    by.select_option("job")
    jobs = [color(page, f"a2-{row}", 12) for row in range(3)]
    assert len({tuple(one) for one in jobs}) == 3
    assert violations(page, axe) == []
    page.reload()
    expect(by).to_have_value("job")


def test_a_node_in_part_is_coloured_in_part(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    filled(small)
    page = open_page(f"{gateway.url}#/faults")
    expect(page.locator("#connection")).to_have_text("Live")
    page.get_by_role("combobox", name="Colours of the map").select_option("namespace")
    assert color(page, "a2-3", 16, up=0.3) == color(page, "a2-5", 16), "the upper part is as a free node"
    assert color(page, "a2-3", 16, up=-0.35) == color(page, "a2-2", 16)


def test_namespaces_have_colours_of_their_own(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    small.nodes = [["ok", 0, 0, [0] * 8, 0, 0, 0, 0, 0, 0] for _ in small.nodes]
    small.jobs.clear()
    small.queue.clear()
    for row in range(12):
        small.place(small.add_job(name="j", namespace=f"team-{row}", phase="running", chips=8), [row])
    page = open_page(f"{gateway.url}#/faults")
    page.get_by_role("combobox", name="Colours of the map").select_option("namespace")
    listed = page.get_by_role("list", name="Colours of namespaces")
    expect(listed.get_by_role("listitem")).to_have_count(11)
    expect(listed).to_contain_text("and 2 more")
    colors = listed.locator(".swatch").evaluate_all("(all) => all.map((one) => getComputedStyle(one).backgroundColor)")
    assert len(set(colors)) == 10


def test_times_are_utc_wherever_the_reader_is(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    job = next(job for job in small.jobs.values() if job["phase"] == "running")
    small.jobs[job["n"]]["submitted_ms"] = small.at_ms - 60_000
    page = open_page(f"{gateway.url}#/job/{job['namespace']}/{job['name']}", timezone_id="Asia/Shanghai")
    content = page.locator("#content")
    expect(content.locator("dl")).to_contain_text("Submitted14:12:20 UTC")
    expect(content).to_contain_text("What happened (UTC)")
    page.goto(f"{gateway.url}#/")
    expect(content.locator(".axis")).to_contain_text("13:13:20 UTC")
