"""The page beside a living cell: views, changes, loss of the connection, tokens."""

import pytest
from playwright.sync_api import expect

from tests.page.conftest import Open
from tests.page.gateway import PageGateway, running
from tests.page.synthetic import SyntheticCell
from tests.support.waiting import SLACK

TOKEN = "a-secret-token"  # noqa: S105  # of this test alone
HOSTILE = "<img src=x onerror=document.title='broken'>"


def test_the_cell_is_shown_with_its_figures(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    page = open_page(gateway.url)
    used = sum(owner != 0 for node in small.nodes for owner in node[3])
    chips = sum(len(node[3]) for node in small.nodes)
    expect(page.locator(".figures")).to_contain_text(f"{used} of {chips} chips in use")
    expect(page.locator("#connection")).to_have_text("Live")
    expect(page.locator("#cell-name")).to_have_text("synthetic")
    rows = page.get_by_role("table", name="Groups of nodes").locator("tbody tr")
    expect(rows).to_have_count(len(small.layout["leaves"]))


def test_the_queue_is_in_order_with_reason_and_age(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    page = open_page(f"{gateway.url}#/queue")
    cards = page.locator("ol.cards li")
    expect(cards).to_have_count(len(small.queue))
    for place, n in enumerate(small.queue):
        job = small.jobs[n]
        expect(cards.nth(place)).to_contain_text(f"{job['namespace']}/{job['name']}")
        expect(cards.nth(place)).to_contain_text(job["sentence"])
    ages = [int(text.split()[0]) for text in page.locator("ol.cards time").all_inner_texts()]
    age_s = (small.at_ms - small.jobs[small.queue[0]]["submitted_ms"]) / 1000
    assert age_s - 1 <= ages[0] <= age_s + 30 * SLACK, "the age is that of the clock of the server"
    expect(page.locator("#content")).not_to_contain_text("expected start")


def test_an_expected_start_is_shown_once_there_is_one(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    small.jobs[small.queue[0]]["expected_start_ms"] = small.at_ms + 600_000
    page = open_page(f"{gateway.url}#/queue")
    expect(page.locator("ol.cards li").first).to_contain_text("expected start: 14:23:20")


def test_a_job_appears_with_its_change(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    page = open_page(f"{gateway.url}#/queue")
    expect(page.locator("ol.cards li")).to_have_count(3)
    n = small.add_job(name="brand-new", namespace="team-a")
    small.wait(n, "it waits for 2 nodes")
    gateway.send(small.change())
    card = page.locator("#content").get_by_text("brand-new")
    card.wait_for()
    expect(page.get_by_role("log", name="Changes")).to_contain_text("team-a/brand-new is waiting.")
    free = small._free_rows()
    small.place(n, free[:1])
    gateway.send(small.change())
    expect(card).to_have_count(0)
    page.goto(f"{gateway.url}#/job/team-a/brand-new")
    name = small.layout["nodes"][free[0]][0]
    expect(page.get_by_role("table", name="Places of brand-new")).to_contain_text(name)


def test_the_story_of_a_job(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    job = next(job for job in small.jobs.values() if job["phase"] == "running" and job["pods"] == 2)
    page = open_page(f"{gateway.url}#/job/{job['namespace']}/{job['name']}")
    expect(page.locator("#panel-title")).to_have_text(f"Job {job['namespace']}/{job['name']}")
    content = page.locator("#content")
    expect(content).to_contain_text("2 pods, 16 chips")
    expect(content).to_contain_text(f"{job['name']} has the first free nodes that suffice.")
    expect(content.locator(".timeline li")).to_have_count(3)
    expect(content.locator(".timeline")).to_contain_text("Request accepted")
    expect(content.get_by_role("table")).to_contain_text("0-7")
    waiting = small.jobs[small.queue[0]]
    page.goto(f"{gateway.url}#/job/{waiting['namespace']}/{waiting['name']}")
    expect(content).to_contain_text(waiting["sentence"])
    expect(content).to_contain_text("It has no chips yet.")


def test_faults_services_and_dead_letters(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    page = open_page(f"{gateway.url}#/faults")
    content = page.locator("#content")
    expect(content.locator("li.card")).to_have_count(len(small.faults))
    expect(content).to_contain_text(small.faults[0]["sentence"])
    page.goto(f"{gateway.url}#/services")
    for text in ("shard 1 does not answer", "dispatcher-1", "LEDGER 1,200", "1 of 2 answer", "48,120", "not ready"):
        expect(content).to_contain_text(text)
    page.goto(f"{gateway.url}#/dead")
    expect(content.locator("li.card")).to_have_count(2)
    expect(content).to_contain_text("the subject names another job")


def test_services_without_a_leader_and_letters_that_cannot_be_read(
    open_page: Open, gateway: PageGateway, allowed: list[str]
) -> None:
    allowed.append("503")
    page = open_page(f"{gateway.url}#/dead")
    content = page.locator("#content")
    expect(content.locator("li.card")).to_have_count(2)
    gateway.failing.add("/api/v1/dead")
    gateway.documents["cell"]["status"]["leader"] |= {"process": "", "waiting": 0}
    page.goto(f"{gateway.url}#/services")
    expect(content).to_contain_text("nobody leads; the lease is that of dispatcher-1")
    expect(content).not_to_contain_text("Jobs that wait")
    page.goto(f"{gateway.url}#/dead")
    expect(content).to_contain_text("The letters are old: NATS does not answer")
    expect(content.locator("li.card")).to_have_count(2)


def test_a_node_and_its_group(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    fault = small.faults[0]
    name = small.layout["nodes"][fault["node"]][0]
    page = open_page(f"{gateway.url}#/node/{name}")
    expect(page.locator("#panel-title")).to_have_text(f"Node {name}")
    expect(page.locator("#content")).to_contain_text(fault["sentence"])
    page.get_by_role("link", name="leaf-").first.click()
    expect(page.locator("#panel-title")).to_contain_text("leaf-")
    expect(page.locator("tbody")).to_contain_text(name)


def test_the_page_survives_a_restart_of_the_server(open_page: Open, small: SyntheticCell, allowed: list[str]) -> None:
    allowed.append("net::ERR_")  # the page asks while nobody listens
    first = PageGateway(small)
    first.start()
    page = open_page(f"{first.url}#/queue")
    expect(page.locator("ol.cards li")).to_have_count(3)
    first.stop()
    expect(page.locator("#connection")).to_contain_text("Connection lost, retrying in")
    expect(page.get_by_role("button", name="Retry now")).to_be_visible()
    expect(page.locator("ol.cards li")).to_have_count(3)
    small.wait(small.add_job(name="meanwhile"), "it waits")
    # Before anybody listens again: afterwards the page may be back by itself, and without the button, before the click.
    with page.expect_request("**/api/v1/me"):
        page.get_by_role("button", name="Retry now").click()
    with running(PageGateway(small, port=first.port)):
        # What the click asked for failed; it asks again 1, 3, 7 and 15 s later, or up to a quarter later than that.
        expect(page.locator("#connection")).to_have_text("Live", timeout=10_000 * SLACK)
        expect(page.locator("#content").get_by_text("meanwhile")).to_be_visible()


def test_silence_is_a_loss_only_after_three_pauses_of_the_gateway(open_page: Open, gateway: PageGateway) -> None:
    path = "/api/v1/view/changes"
    page = open_page("about:blank")
    page.clock.install()
    state = page.locator("#connection")
    gateway.keepalive_s = 600
    page.goto(gateway.url)
    expect(state).to_have_text("Live")
    page.clock.run_for(200_000)
    gateway.keepalive_s = 40
    page.reload()
    expect(state).to_have_text("Live")
    page.clock.run_for(90_000)
    assert gateway.requests.count(path) == 2, "one for each time that the page was opened"
    with page.expect_request(f"**{path}"):
        page.clock.run_for(31_000)
    expect(state).to_have_text("Live")


@pytest.fixture
def guarded(gateway: PageGateway) -> PageGateway:
    gateway.token = TOKEN
    return gateway


def test_a_token_is_asked_for_and_kept_for_the_tab_alone(
    open_page: Open, guarded: PageGateway, allowed: list[str]
) -> None:
    allowed.append("401")
    page = open_page(f"{guarded.url}#/queue")
    dialog = page.get_by_role("dialog", name="Sign in")
    expect(dialog).to_contain_text("The gateway asks for a token.")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Token").fill("a-wrong-one")
    dialog.get_by_role("button", name="Sign in").click()
    expect(dialog).to_contain_text("The gateway does not accept this token.")
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator("ol.cards li")).to_have_count(3)
    assert TOKEN not in page.url
    assert page.evaluate("JSON.stringify({...localStorage})").find(TOKEN) == -1
    page.reload()
    expect(page.locator("ol.cards li")).to_have_count(3)
    page.goto(f"{guarded.url}#/dead")
    expect(page.locator("#content li.card")).to_have_count(2)
    page.goto(f"{guarded.url}#/queue")
    page.get_by_role("button", name="Sign out").click()
    expect(dialog).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    expect(page.locator("#content")).to_have_text("Waiting for data.")
    expect(page.locator("#cell-name")).to_have_text("")
    expect(page.locator("#views")).not_to_contain_text("3")
    page.goto(f"{guarded.url}#/dead")
    expect(page.locator("#content")).to_contain_text("The letters are not available")


def test_a_reader_with_partial_rights_is_told(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    view = small.view() | {"is_partial": True}
    view["nodes"][0][3] = [-1] * 8
    page = open_page(gateway.url)
    expect(page.locator("#connection")).to_have_text("Live")
    expect(page.locator("#partial")).to_be_hidden()
    gateway.send(view, event="view")
    expect(page.locator("#partial")).to_contain_text("You see a part of this cell")
    page.goto(f"{gateway.url}#/node/{small.layout['nodes'][0][0]}")
    expect(page.locator("#content")).to_contain_text("a job that is not visible to you")


def test_names_and_sentences_stay_text(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    n = small.add_job(name=HOSTILE, namespace="<b>team")
    small.wait(n, f"it waits {HOSTILE}")
    small.faults.append(
        {"at_ms": small.at_ms, "node": -1, "place": HOSTILE, "level": HOSTILE, "sentence": HOSTILE, "jobs": [n]}
    )
    gateway.documents["dead"][0] |= {"reason": HOSTILE, "code": HOSTILE, "subject": HOSTILE}
    gateway.documents["cell"]["problems"] = [HOSTILE]
    page = open_page(f"{gateway.url}#/queue")
    for view in ("queue", "faults", "dead", "services", "jobs"):
        page.goto(f"{gateway.url}#/{view}")
        expect(page.locator("#content")).to_contain_text("<img src=x")
        assert page.locator("#content img, #content b").count() == 0
    page.get_by_role("combobox", name="Search").fill("<img")
    page.get_by_role("option").first.click()
    expect(page.locator("#panel-title")).to_have_text(f"Job <b>team/{HOSTILE}")
    expect(page.locator("#content .callout")).to_contain_text(HOSTILE)
    page.reload()
    expect(page.locator("#panel-title")).to_have_text(f"Job <b>team/{HOSTILE}")
    assert page.locator("img").count() == 0
    assert page.title() != "broken"


def test_signs_that_turn_the_text_or_are_not_seen_are_escaped(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    hidden = "a\u202e\u2066\u200b\x9b\u2028b"
    n = small.add_job(name=hidden, namespace="team")
    small.wait(n, f"it waits {hidden}")
    page = open_page(f"{gateway.url}#/queue")
    words = r"a\u{202e}\u{2066}\u{200b}\u{9b}\u{2028}b"
    expect(page.locator("#content")).to_contain_text(f"it waits {words}")
    page.get_by_text(f"team/{words}").first.click()
    expect(page.locator("#panel-title")).to_have_text(f"Job team/{words}")
    assert words in page.title()
