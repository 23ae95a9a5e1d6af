"""Stories of jobs whose answers are late, fail, or come before the newest event is stored."""

import pytest
from playwright.sync_api import Response, expect

from tests.page.conftest import Open
from tests.page.gateway import PageGateway
from tests.page.synthetic import Json, SyntheticCell


@pytest.fixture
def running(small: SyntheticCell) -> list[Json]:
    """Jobs that run, with all their events."""
    return [job for job in small.jobs.values() if job["phase"] == "running" and len(small.events[key(job)]) > 1]


def key(job: Json) -> str:
    return f"{job['namespace']}/{job['name']}/{job['uid']}"


def path(job: Json, what: str = "") -> str:
    return f"/api/v1/jobs/{job['namespace']}/{job['name']}{what}"


def address(job: Json) -> str:
    return f"#/job/{job['namespace']}/{job['name']}"


def test_a_late_story_is_not_shown_under_the_name_of_another_job(
    open_page: Open, gateway: PageGateway, small: SyntheticCell, running: list[Json]
) -> None:
    first, other = running[:2]
    gateway.held.add(path(first, "/explain"))
    with_request = f"**{path(first, '/explain')}"
    page = open_page("about:blank")
    with page.expect_request(with_request):
        page.goto(f"{gateway.url}{address(first)}")
    page.goto(f"{gateway.url}{address(other)}")
    content = page.locator("#content")
    expect(content).to_contain_text(f"{other['name']} has the first free nodes that suffice.")
    with page.expect_response(with_request):
        gateway.held.clear()
    small.wait(small.add_job(name="marker"), "it waits")
    gateway.send(small.change())
    expect(page.locator("#views")).to_contain_text(f"Queue {len(small.queue)}")
    expect(content).to_contain_text(f"{other['name']} has the first free nodes that suffice.")
    expect(content).not_to_contain_text(first["name"])


def test_what_failed_is_asked_for_again(
    open_page: Open, gateway: PageGateway, running: list[Json], allowed: list[str]
) -> None:
    allowed.append("503")
    job = running[0]
    gateway.failing.add(path(job, "/events"))
    page = open_page(f"{gateway.url}{address(job)}")
    content = page.locator("#content")
    expect(content).to_contain_text("The events are not available: NATS does not answer")
    gateway.failing.clear()
    expect(content.locator(".timeline li")).to_have_count(3)
    expect(content).not_to_contain_text("not available")


def test_reasons_that_cannot_be_read_are_asked_for_as_long_as_it_takes(
    open_page: Open, gateway: PageGateway, running: list[Json], allowed: list[str]
) -> None:
    allowed.append("503")
    job = running[0]
    gateway.failing.add(path(job, "/explain"))
    url = f"**{path(job, '/explain')}"
    page = open_page("about:blank")
    page.clock.install()
    with page.expect_response(url):
        page.goto(f"{gateway.url}{address(job)}")
    expect(page.locator("#content .timeline li")).to_have_count(3)
    for pause_s in (1, 3, 10, 30, 30, 30):
        with page.expect_response(url):
            for _ in range(pause_s + 5):
                page.clock.run_for(1_000)
    gateway.failing.clear()
    with page.expect_response(url):
        for _ in range(35):
            page.clock.run_for(1_000)
    page.clock.run_for(1_000)
    expect(page.locator("#content")).to_contain_text(f"{job['name']} has the first free nodes that suffice.")


def test_a_job_that_cannot_be_read_is_not_said_to_be_unknown(
    open_page: Open, gateway: PageGateway, small: SyntheticCell, running: list[Json], allowed: list[str]
) -> None:
    allowed.append("503")
    job = running[0]
    gateway.former.append(small.jobs.pop(job["n"]))
    gateway.failing.add(path(job))
    page = open_page(f"{gateway.url}{address(job)}")
    content = page.locator("#content")
    expect(content).to_have_text("The job is not available: NATS does not answer, expected it soon.")
    gateway.failing.clear()
    expect(content.locator(".timeline li")).to_have_count(3)


def test_an_event_that_is_stored_after_the_status_is_read_too(
    open_page: Open, gateway: PageGateway, small: SyntheticCell, running: list[Json]
) -> None:
    job = running[0]
    page = open_page(f"{gateway.url}{address(job)}")
    timeline = page.locator("#content .timeline")
    expect(timeline).to_contain_text("so far")

    def is_of_events(response: Response) -> bool:
        return path(job, "/events") in response.url

    with page.expect_response(is_of_events):
        job |= {"phase": "succeeded", "since_ms": small.at_ms}
        small._changed.add(job["n"])
        gateway.send(small.change())
    expect(timeline).not_to_contain_text("so far")
    expect(timeline.locator("li")).to_have_count(3)
    small._event(job["n"], "succeeded")
    expect(timeline.locator("li")).to_have_count(4)
    expect(timeline).to_contain_text("Succeeded")


def test_a_job_that_waits_is_as_old_as_its_submission(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    job = small.jobs[small.queue[0]]
    job |= {"submitted_ms": small.at_ms - 7_200_000, "since_ms": small.at_ms}  # as after another try
    page = open_page(f"{gateway.url}{address(job)}")
    expect(page.locator("#content .job-head")).to_contain_text("waiting, submitted 2 h ago")
    page.goto(f"{gateway.url}#/jobs")
    expect(page.locator("#content tbody tr", has_text=job["name"])).to_contain_text("2 h")
