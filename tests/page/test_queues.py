"""The view of queues, and the table of jobs with its filters and orders."""

import re

from playwright.sync_api import Page, expect

from tests.page.browser import overflow, violations
from tests.page.conftest import Open
from tests.page.gateway import PageGateway
from tests.page.synthetic import SyntheticCell


def rows(page: Page, name: str) -> list[list[str]]:
    """Texts of a table."""
    found: list[list[str]] = page.get_by_role("table", name=name, exact=True).evaluate(
        "(table) => [...table.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return found


def test_the_tree_of_queues_has_amounts_and_sums_of_what_waits(
    open_page: Open, gateway: PageGateway, small: SyntheticCell, axe: str
) -> None:
    small.has_queues = True
    page = open_page(f"{gateway.url}#/queues")
    name = "Queues huawei.com/Ascend910"
    expect(page.get_by_role("table", name=name, exact=True)).to_be_visible()
    assert [[row[0], *row[2:]] for row in rows(page, name)] == [
        ["root", "60", "-", "96", "-", "3", "2 h 30 min"],
        ["default (made)", "8", "8", "0", "96", "-", "-"],
        ["research", "52", "-", "64", "96", "3", "2 h 30 min"],
        ["llm", "48", "16", "32", "72", "2", "2 h 30 min"],
        ["vision ■ closedfor team-a, vision", "4", "-", "32", "-", "1", "1 min"],
    ]
    indents = page.locator("table.data tbody th").evaluate_all("(all) => all.map((one) => one.style.paddingLeft)")
    assert indents[:5] == ["0px", "14px", "14px", "28px", "28px"]
    expect(page.locator(".card.bad")).to_contain_text("parent is nowhere, expected the name of a queue")
    expect(page.get_by_role("table", name="Queues cpu")).to_be_hidden()
    page.get_by_text("CPUs and memory").click()
    expect(page.get_by_role("table", name="Queues cpu")).to_be_visible()
    assert violations(page, axe) == []


def test_a_queue_leads_to_its_jobs(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    small.has_queues = True
    small.add_job(name="of-llm", namespace="team-a", queue="llm")
    page = open_page(f"{gateway.url}#/queues")
    page.get_by_role("link", name="llm", exact=True).first.click()
    expect(page.locator("#panel-title")).to_have_text("Jobs")
    expect(page.get_by_role("combobox", name="Queue")).to_have_value("llm")
    assert [row[0] for row in rows(page, "List of jobs")] == ["team-a/of-llm"]


def test_queues_that_the_cell_does_not_apply_are_shown_with_a_sentence(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    small.has_queues = True
    gateway.documents["queues"]["are_applied"] = False
    for queue in gateway.documents["queues"]["queues"]:
        queue["amounts"] = []
    page = open_page(f"{gateway.url}#/queues")
    expect(page.locator(".callout")).to_contain_text("decisions.queues")
    assert rows(page, "Tree of queues")[0] == ["root", "3", "2 h 30 min"]


def test_a_cell_without_queues_says_so_and_the_navigation_has_no_view_of_them(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    page = open_page(f"{gateway.url}#/queues")
    views = page.get_by_role("navigation", name="Views")
    expect(page.locator("#content")).to_have_text("This cell has no queues: its jobs share the whole cell.")
    expect(views.get_by_role("link", name="Queues")).to_have_count(0)
    page.goto(f"{gateway.url}#/jobs")
    expect(page.get_by_role("columnheader", name="State")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Queue")).to_have_count(0)
    gateway.send(small.change() | {"has_queues": True})
    expect(views.get_by_role("link", name="Queues")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Queue")).to_be_visible()


def test_jobs_are_sorted_and_filtered_and_the_address_has_it(
    open_page: Open, gateway: PageGateway, small: SyntheticCell, axe: str
) -> None:
    small.has_queues = True
    small.jobs.clear()
    small.queue.clear()
    for index, (namespace, queue, chips) in enumerate((("a", "x", 8), ("b", "x", 64), ("b", "y", 16))):
        small.add_job(name=f"job-{index}", namespace=namespace, queue=queue, chips=chips, phase="running")
    small.add_job(name="done", namespace="b", queue="y", phase="succeeded", chips=4)
    page = open_page(f"{gateway.url}#/jobs")
    expect(page.get_by_role("status").filter(has_text="jobs with")).to_have_text("3 jobs with 88 chips")
    page.get_by_role("button", name="Chips").click()
    expect(page.get_by_role("columnheader", name="Chips")).to_have_attribute("aria-sort", "ascending")
    assert [row[4] for row in rows(page, "List of jobs")] == ["8", "16", "64"]
    page.get_by_role("button", name="Chips").press("Enter")
    assert [row[4] for row in rows(page, "List of jobs")] == ["64", "16", "8"]
    page.get_by_role("combobox", name="Namespace").select_option("b")
    page.get_by_role("combobox", name="Queue").select_option("y")
    assert [row[0] for row in rows(page, "List of jobs")] == ["b/job-2"]
    page.get_by_role("combobox", name="State").select_option("all")
    assert [row[0] for row in rows(page, "List of jobs")] == ["b/job-2", "b/done"]
    page.get_by_role("searchbox", name="Name has").fill("done")
    assert [row[0] for row in rows(page, "List of jobs")] == ["b/done"]
    page.wait_for_url(re.compile("find=done"))
    assert violations(page, axe) == []
    other = open_page(page.url)
    expect(other.get_by_role("searchbox", name="Name has")).to_have_value("done")
    assert [row[0] for row in rows(other, "List of jobs")] == ["b/done"]
    other.get_by_role("navigation").get_by_role("link", name="Jobs").click()
    expect(other.get_by_role("searchbox", name="Name has")).to_have_value("")
    expect(other.get_by_role("table", name="List of jobs").locator("tbody tr")).to_have_count(3)


def test_what_a_tenant_writes_is_text_in_both_views(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    evil = "<img src=x onerror=document.title='run'>"
    small.has_queues = True
    small.add_job(name=evil, namespace="a", queue=evil, sentence=evil)
    gateway.documents["queues"]["queues"][0]["reason"] = evil
    gateway.documents["queues"]["queues"][2]["name"] = evil
    page = open_page(f"{gateway.url}#/jobs?find=onerror")
    expect(page.locator("#content tbody")).to_contain_text(evil)
    page.goto(f"{gateway.url}#/queues")
    expect(page.locator(".card.bad")).to_contain_text(evil)
    expect(page.locator("#content img")).to_have_count(0)


def test_both_views_fit_a_telephone(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    small.has_queues = True
    small.add_job(name="x" * 60, namespace="a", queue="q" * 253)
    gateway.documents["queues"]["queues"][2]["name"] = "q" * 253
    page = open_page(gateway.url, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    for view in ("queues", "jobs"):
        page.goto(f"{gateway.url}#/{view}")
        expect(page.locator("table.data")).not_to_have_count(0)
        assert overflow(page) == 0
