"""What a reader may have done: buttons follow the rights, nothing is sent before it is confirmed, commands to copy."""

import pytest
from playwright.sync_api import Page, expect

from tests.page.browser import overflow, violations
from tests.page.conftest import Open
from tests.page.gateway import PageGateway
from tests.page.synthetic import Json, SyntheticCell
from tests.support.waiting import SLACK

ALL = {"read": ["*"], "submit": ["*"], "operate": True}
HOSTILE = "'; rm -rf ~ #<img src=x onerror=document.title='broken'>"


@pytest.fixture
def job(small: SyntheticCell) -> Json:
    """A job that runs on two nodes."""
    return next(job for job in small.jobs.values() if job["phase"] == "running" and job["pods"] == 2)


def address(job: Json) -> str:
    return f"#/job/{job['namespace']}/{job['name']}"


def sent(page: Page, gateway: PageGateway) -> tuple[str, str, object]:
    """The one thing that was sent, once the page has said so."""
    expect(page.locator("#done")).to_contain_text("is stored.")
    (found,) = gateway.sent
    return found


def test_a_job_is_cancelled_after_it_was_said_what_happens(open_page: Open, gateway: PageGateway, job: Json) -> None:
    gateway.rights = {"read": ["*"], "submit": [job["namespace"]], "operate": False}
    page = open_page(f"{gateway.url}{address(job)}")
    page.get_by_role("button", name="Cancel the job …").click()
    dialog = page.get_by_role("dialog", name=f"Cancel {job['namespace']}/{job['name']}?")
    expect(dialog).to_contain_text("(2 pods on 2 nodes), and its chips are given back (16 chips)")
    expect(dialog.get_by_role("button", name="Back")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    assert gateway.sent == []
    page.get_by_role("button", name="Cancel the job …").press("Enter")
    dialog.get_by_label("Reason").fill("a & b")
    dialog.get_by_role("button", name="Cancel the job").click()
    path = f"/api/v1/jobs/{job['namespace']}/{job['name']}?uid={job['uid']}&reason=a+%26+b"
    assert sent(page, gateway) == ("DELETE", path, None)
    page.goto(f"{gateway.url}#/jobs")
    expect(page.locator("#done")).to_be_hidden()


def test_what_a_reader_may_not_do_is_not_offered(
    open_page: Open, gateway: PageGateway, small: SyntheticCell, job: Json
) -> None:
    gateway.rights = {"read": ["*"], "submit": ["another"], "operate": False}
    page = open_page(f"{gateway.url}{address(job)}")
    expect(page.locator(".timeline")).to_be_visible()
    expect(page.locator("[data-action]")).to_have_count(0)
    page.goto(f"{gateway.url}#/node/{small.layout['nodes'][0][0]}")
    expect(page.locator("#panel-title")).to_contain_text("Node")
    expect(page.locator("[data-action]")).to_have_count(0)
    expect(page.get_by_text("Commands")).to_be_visible()


def test_a_refusal_is_shown_where_it_was_asked_for(
    open_page: Open, gateway: PageGateway, job: Json, allowed: list[str]
) -> None:
    allowed.append("503")
    gateway.rights = ALL
    page = open_page(f"{gateway.url}{address(job)}")
    page.get_by_role("button", name="Cancel the job …").click()
    gateway.failing.add(f"/api/v1/jobs/{job['namespace']}/{job['name']}")
    page.get_by_role("button", name="Cancel the job", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text("It was not done: NATS does not answer, expected it soon.")
    expect(page.locator("#done")).to_be_hidden()


def test_a_node_is_drained_and_returned(open_page: Open, gateway: PageGateway, small: SyntheticCell, job: Json) -> None:
    gateway.rights = ALL
    row = next(row for row, node in enumerate(small.nodes) if job["n"] in node[3])
    name = small.layout["nodes"][row][0]
    page = open_page(f"{gateway.url}#/node/{name}")
    page.get_by_role("button", name="Drain the node …").click()
    dialog = page.get_by_role("dialog", name=f"Drain node {name}?")
    expect(dialog).to_contain_text("accepts no new work from now on")
    expect(dialog).to_contain_text(f"1 job is there and moved to other nodes, or started anew: {job['namespace']}/")
    drain = {"kind": "node", "name": name, "since_ms": small.at_ms, "by": "program tester", "reason": "its fans"}
    gateway.documents["drains"] = {"drains": [drain], "next": ""}
    dialog.get_by_label("Reason").fill("its fans")
    dialog.get_by_role("button", name="Drain").click()
    body = {"kind": "node", "name": name, "reason": "its fans"}
    assert sent(page, gateway) == ("POST", "/api/v1/drains", body)
    gateway.sent.clear()
    expect(page.locator("#content")).to_contain_text(f"Node {name} is drained since")
    expect(page.locator("#content")).to_contain_text("by program tester: its fans")
    page.get_by_role("button", name=f"Return node {name} to service …").click()
    page.get_by_role("button", name="Return to service", exact=True).click()
    expect(page.locator("#done")).to_contain_text("The end of the drain")
    assert gateway.sent == [("DELETE", f"/api/v1/drains/node/{name}", None)]


def test_restarts_that_are_held_back_are_approved(open_page: Open, gateway: PageGateway, job: Json) -> None:
    gateway.rights = ALL
    held = {"kind": "CardUnhealthy", "domain": "leaf-1", "reason": "3 of 8 jobs would restart", "approvable": True}
    gateway.documents["faults"] |= {"held": [held | {"namespace": job["namespace"], "name": job["name"]}]}
    page = open_page(f"{gateway.url}#/faults")
    part = page.get_by_role("region", name="Not restarted yet")
    expect(part).to_contain_text("3 of 8 jobs would restart.")
    part.get_by_role("button", name="Approve …").click()
    dialog = page.get_by_role("dialog", name="Approve restarts for CardUnhealthy in domain leaf-1?")
    expect(dialog).to_contain_text(f"1 job restarts, as many at a time as the settings permit: {job['namespace']}/")
    dialog.get_by_role("button", name="Approve").click()
    body = {"kind": "CardUnhealthy", "domain": "leaf-1", "lasts_ms": 600_000, "reason": ""}
    assert sent(page, gateway) == ("POST", "/api/v1/approvals", body)


def test_commands_are_copied_as_a_shell_takes_them(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    n = small.add_job(name=HOSTILE, namespace="team-a")
    small.wait(n, "it waits")
    page = open_page("about:blank")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=gateway.url.rstrip("/"))
    page.goto(f"{gateway.url}#/queue")
    page.locator("#content").get_by_role("link", name="rm -rf").click()
    page.get_by_text("Commands").click()
    page.get_by_role("button", name="Copy berth explain").click()
    expect(page.locator("#done")).to_contain_text("Copied: berth explain")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == "berth explain 'team-a/'\\''; rm -rf ~ #<img src=x onerror=document.title='\\''broken'\\''>'"
    page.evaluate("void (navigator.clipboard.writeText = () => Promise.reject(new Error('no')))")
    page.get_by_role("button", name="Copy berth cancel").click()
    expect(page.locator("#done")).to_contain_text("Selected, to be copied: berth cancel")
    assert page.evaluate("getSelection().toString()").startswith("berth cancel 'team-a/")
    assert "broken" not in page.title().replace(HOSTILE, "")


@pytest.mark.timeout(120 * SLACK)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_about_actions_also_on_a_telephone(
    open_page: Open, gateway: PageGateway, job: Json, axe: str, scheme: str
) -> None:
    gateway.rights = ALL
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    page = open_page(f"{gateway.url}{address(job)}", color_scheme=scheme, **phone)
    page.get_by_text("Commands").click()
    expect(page.locator(".timeline")).to_be_visible()
    assert (violations(page, axe), overflow(page)) == ([], 0)
    page.get_by_role("button", name="Cancel the job …").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert (violations(page, axe), overflow(page)) == ([], 0)
