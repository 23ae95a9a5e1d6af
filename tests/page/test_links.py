"""Links to other sites by template: where they are, and that no name changes where they lead."""

import re

from playwright.sync_api import Page, expect

from tests.page.conftest import Open
from tests.page.gateway import PageGateway
from tests.page.synthetic import SyntheticCell

LINKS = [
    {"name": "Job logs", "url": "https://logs.example/{namespace}/{job}?q={job}"},
    {"name": "Pod logs", "url": "https://logs.example/pods/{namespace}/{pod}"},
    {"name": "Grafana", "url": "https://grafana.example/d/node?var-node={node}"},
    {"name": "Script", "url": "javascript:alert('{job}')"},
]


def targets(page: Page) -> list[str]:
    """Where the links lead, in their order."""
    links = page.locator("#content a.outside")
    expect(links.first).to_be_visible()
    assert {link.get_attribute("rel") for link in links.all()} == {"noopener noreferrer"}
    return [str(link.get_attribute("href")) for link in links.all()]


def test_links_are_where_their_names_are_known(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    gateway.documents["page"] = {"links": LINKS}
    job = next(job for job in small.jobs.values() if job["phase"] == "running" and job["pods"] == 2)
    name, namespace = job["name"], job["namespace"]
    nodes = [small.layout["nodes"][row][0] for row, node in enumerate(small.nodes) if job["n"] in node[3]]
    page = open_page(f"{gateway.url}#/job/{namespace}/{name}")
    expect(page.get_by_role("table", name=f"Places of {name}").get_by_role("link", name="Pod logs of")).to_have_count(2)
    assert targets(page) == [
        f"https://logs.example/{namespace}/{name}?q={name}",
        f"https://logs.example/pods/{namespace}/{name}-master-0",
        f"https://grafana.example/d/node?var-node={nodes[0]}",
        f"https://logs.example/pods/{namespace}/{name}-worker-0",
        f"https://grafana.example/d/node?var-node={nodes[1]}",
    ]
    page.goto(f"{gateway.url}#/node/{nodes[0]}")
    expect(page.locator("#panel-title")).to_contain_text("Node")
    expect(page.locator("#content a.outside")).to_have_count(1)
    assert targets(page) == [f"https://grafana.example/d/node?var-node={nodes[0]}"]


def test_names_are_encoded_and_lead_nowhere_else(
    open_page: Open, gateway: PageGateway, small: SyntheticCell, allowed: list[str]
) -> None:
    allowed.append("404")  # no gateway has a job with the name ..
    gateway.documents["page"] = {"links": LINKS}
    hostile = '../x?a=b&c#d%2F\\e"><script>alert(1)</script>'
    small.wait(small.add_job(name=hostile, namespace="team-a"), "it waits")
    small.wait(small.add_job(name="..", namespace="team-a"), "it waits")
    page = open_page(f"{gateway.url}#/queue")
    page.locator("#content").get_by_role("link", name=re.compile("script")).click()
    encoded = "..%2Fx%3Fa%3Db%26c%23d%252F%5Ce%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E"
    assert targets(page) == [f"https://logs.example/team-a/{encoded}?q={encoded}"]
    page.goto(f"{gateway.url}#/queue")
    page.locator("#content").get_by_role("link", name="team-a/..", exact=True).click()
    expect(page.locator("#content")).to_contain_text("it waits")
    expect(page.locator("#content a.outside")).to_have_count(0)
