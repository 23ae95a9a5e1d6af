"""The first view answers without a click: what waits and why, what is broken, how full, what changed lately."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Locator, Page, expect

from berth.page.files import recording_page
from tests.page.browser import overflow, violations
from tests.page.conftest import Open
from tests.page.gateway import PageGateway
from tests.page.synthetic import BEGIN_MS, SyntheticCell, recording


def part(page: Page, name: str) -> Locator:
    return page.get_by_role("region", name=name, exact=True)


def rows(table: Locator) -> list[list[str]]:
    found: list[list[str]] = table.evaluate(
        "(table) => [...table.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((one) => one.textContent))"
    )
    return found


def waiting(small: SyntheticCell, *jobs: tuple[str, str, int]) -> None:
    """These jobs wait, and no others: code, sentence and chips."""
    for n in small.queue:
        del small.jobs[n]
    small.queue.clear()
    for code, sentence, chips in jobs:
        small.wait(
            small.add_job(code=code, chips=chips, submitted_ms=small.at_ms - 60_000 * len(small.queue)), sentence
        )
        small.jobs[small.queue[-1]]["code"] = code


def test_reasons_that_differ_in_numbers_alone_are_one(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    waiting(
        small,
        ("no-room", "2 of 48 nodes of module910bx8 fit, needs 16", 16),
        ("no-room", "2 of 48 nodes of module910bx8 fit, needs 1,024", 1_024),
        ("queue-limit", "queue llm-2 holds 8 of 8 chips; the job asks for 4", 4),
    )
    page = open_page(gateway.url)
    answers = part(page, "What waits, and why")
    expect(answers).to_contain_text("3 jobs wait for 1,044 chips.")
    assert rows(answers.get_by_role("table")) == [
        ["2 of 48 nodes of module910bx8 fit, needs 16 to 1,024", "2", "1,040", "1 min"],
        ["queue llm-2 holds 8 of 8 chips; the job asks for 4", "1", "4", "2 min"],
    ]
    answers.get_by_role("link", name="queue llm-2").click()
    expect(page.locator("#content")).to_contain_text("1 job with 4 chips, with the reason queue-limit")
    page.get_by_role("button", name="Any reason").click()
    expect(page.locator("#content")).to_contain_text("3 jobs with 1,044 chips")


def test_a_cell_in_which_nothing_waits_or_is_broken_says_so(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    waiting(small)
    small.faults.clear()
    page = open_page(gateway.url)
    expect(part(page, "What waits, and why")).to_contain_text("Nothing waits.")
    expect(part(page, "What is broken")).to_contain_text("no faults")


def fault(small: SyntheticCell, row: int, level: str, age_ms: int, **values: Any) -> dict[str, Any]:  # noqa: ANN401
    name = small.layout["nodes"][row][0]
    usual = {"at_ms": 0, "node": row, "place": name, "kind": level, "sentence": "", "jobs": [], "chips": []}
    return usual | {"level": level, "since_ms": small.at_ms - age_ms} | values


def test_faults_are_grouped_by_place_with_the_worst_first(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    n = small.add_job(name="hit", namespace="team-a", phase="running")
    small.faults = [
        fault(small, 8, "sub-healthy", 5_000),
        fault(small, 0, "not-ready", 60_000, jobs=[n]),
        fault(small, 1, "not-ready", 7_200_000),
        fault(small, 4, "unhealthy", 0, since_ms=0, chips=[3], place="a2-4 chip 3"),
    ]
    page = open_page(gateway.url)
    found = rows(part(page, "What is broken").get_by_role("table"))
    assert [row[:2] for row in found] == [
        ["leaf-02 of 4 nodes", "✕ not readyteam-a/hit"],
        ["a2-4", "✕ unhealthy: 1 chip"],
        ["a2-8", "◥ sub-healthy"],
    ]
    assert [row[2] for row in found] == ["2 h", "unknown", "5 s"]
    badge = page.get_by_role("navigation", name="Views").get_by_role("link", name="Faults").locator(".amount")
    expect(badge).to_have_class("amount bad")
    gateway.send(small.change() | {"faults": small.faults[:1]})
    expect(badge).to_have_class("amount warn")


def test_how_full_it_is_by_product_and_namespace_and_what_is_free_as_a_whole(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    waiting(small)
    small.jobs.clear()
    small.nodes = [["ok", 0, 0, [0] * 8, 0, 0, 0, 0, 0, 0] for _ in small.nodes]
    n = small.add_job(name="a", namespace="team-a", chips=8, phase="running")
    small.place(n, [0])
    small.nodes[4][1] = 2  # cordoned: nothing new starts there
    page = open_page(gateway.url)
    full = part(page, "How full it is")
    expect(full).to_contain_text("Free as a whole: 10 nodes, 1 leaf switch.")
    assert rows(full.get_by_role("table", name="Chips in use by product")) == [["module910bx8", " 8 / 96"]]
    assert rows(full.get_by_role("table", name="Chips in use by namespace")) == [["team-a", " 8 / 96"]]


def test_a_group_has_the_worst_state_of_its_nodes(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    small.nodes = [["ok", 0, 0, [0] * 8, 0, 0, 0, 0, 0, 0] for _ in small.nodes]
    small.nodes[0][1] = 2
    small.nodes[1][1] = small.nodes[2][1] = 1
    page = open_page(gateway.url)
    states = [row[3] for row in rows(page.get_by_role("table", name="Groups of nodes"))]
    assert states == ["✕ 2 nodes not ready", "ok", "ok"]


def test_the_last_hour_has_lines_counts_and_events(
    open_page: Open, gateway: PageGateway, small: SyntheticCell, axe: str
) -> None:
    at_ms = small.at_ms
    event = {"namespace": "", "name": "", "place": "", "nodes": 0, "level": "", "sentence": ""}
    gateway.documents["hour"] = {
        "begin_ms": at_ms - 1_800_000,
        "at_ms": at_ms,
        "chips": 96,
        "points": [[at_ms - 1_800_000, 48, 0], [at_ms - 60_000, 72, 3]],
        "counts": {"placed": 2, "fault": 1, "left": 4},
        "events": [
            event | {"at_ms": at_ms - 1_000, "what": "fault", "place": "leaf-1", "nodes": 4, "level": "not-ready"},
            event | {"at_ms": at_ms - 2_000, "what": "left", "place": "a2-99", "nodes": 4},
            event | {"at_ms": at_ms - 3_000, "what": "placed", "namespace": "team-a", "name": "<b>x</b>"},
            *(
                event | {"at_ms": at_ms - 9_000 - n, "what": "placed", "namespace": "t", "name": f"j{n}"}
                for n in range(20)
            ),
        ],
    }
    page = open_page(gateway.url)
    hour = part(page, "What changed in the last hour")
    expect(hour.get_by_role("img", name="Chips in use: from 48 to 72, 75 % now")).to_be_visible()
    expect(hour.get_by_role("img", name="Jobs that wait: from 0 to 3, 3 now, at most 3")).to_be_visible()
    expect(hour).to_contain_text("Known for 30 min.")
    expect(hour).to_contain_text("2 placed, 1 fault, 4 nodes left")
    lines = hour.locator(".feed li")
    expect(lines).to_have_count(12)
    expect(lines.nth(0)).to_contain_text("not ready leaf-1: 4 nodes")
    expect(lines.nth(1)).to_contain_text("left a2-99 and 3 others")
    expect(lines.nth(2)).to_contain_text("team-a/<b>x</b>")
    hour.get_by_role("button", name="Show 11 more").click()
    expect(lines).to_have_count(23)
    assert violations(page, axe) == []


def test_without_the_last_hour_the_rest_is_there(open_page: Open, gateway: PageGateway, allowed: list[str]) -> None:
    allowed.append("503")
    gateway.failing.add("/api/v1/view/hour")
    page = open_page(gateway.url)
    expect(part(page, "What changed in the last hour")).to_contain_text("NATS does not answer, expected it soon")
    expect(part(page, "How full it is")).to_contain_text("Free as a whole")


def test_it_fits_every_screen(open_page: Open, gateway: PageGateway, small: SyntheticCell) -> None:
    waiting(small, ("x" * 90, "x" * 300, 1))
    small.jobs[small.queue[0]]["namespace"] = "n" * 63
    for width in (320, 390, 820, 1280, 1920):
        page = open_page(gateway.url, viewport={"width": width, "height": 800})
        expect(part(page, "What changed in the last hour").get_by_role("img").first).to_be_visible()
        assert overflow(page) == 0, width
        tall = page.evaluate("document.documentElement.scrollHeight - document.documentElement.clientHeight")
        assert (tall > 0) == (width <= 800), "a wide window scrolls in the view alone"
        page.context.close()


def test_the_link_to_the_cell_shows_the_whole_map(open_page: Open, gateway: PageGateway) -> None:
    page = open_page(f"{gateway.url}#/node/a2-4?map=a2-4,90.0")
    expect(page.locator("#connection")).to_have_text("Live")
    for _ in range(2):  # from another view, and from a part of the map in the same one
        page.get_by_role("navigation", name="Views").get_by_role("link", name="Cell").click()
        # The page writes the place 300 ms after the last move; this timer is begun later and is longer.
        address = page.evaluate("new Promise((done) => setTimeout(() => done(location.href), 700))")
        assert address == f"{gateway.url}#/"
        page.locator("#zoom-in").click()
        page.wait_for_url(re.compile("map="))


@pytest.mark.parametrize(
    ("shift_ms", "begin", "end"), [(0, "14:13:20 UTC", "14:27:20 UTC"), (BEGIN_MS, "0 s", "14 min")]
)
def test_a_recording_has_the_hour_before_the_time_that_is_shown(
    open_page: Open, tmp_path: Path, shift_ms: int, begin: str, end: str
) -> None:
    data = recording(SyntheticCell(12), 120)
    moved = msgspec.json.decode(
        re.sub(rb"\b(179\d{10})\b", lambda ms: b"%d" % max(0, int(ms[1]) - shift_ms), msgspec.json.encode(data))
    )
    file = tmp_path / "recording.html"
    file.write_bytes(recording_page(msgspec.json.encode(moved)))
    page = open_page(f"{file.as_uri()}#/?t={moved['end_ms']}")
    hour = part(page, "What changed in the last hour")
    expect(hour.locator(".axis")).to_have_text(begin + end)
    expect(hour).to_contain_text("Known for 14 min.")
    happened = [
        event["phase"] for story in data["stories"].values() for event in story["events"] if event["at_ms"] > BEGIN_MS
    ]
    expect(hour).to_contain_text(f"{happened.count('placed')} placed")
    expect(hour.locator(".feed time").first).to_have_text(re.compile(r"^14:2\d:\d\d$" if not shift_ms else r"^1\d min"))
    waiting = hour.get_by_role("img").nth(1)
    expect(waiting).to_have_attribute("aria-label", re.compile(f", {len(data['changes'][-1]['queue'])} now"))
    page.goto(f"{file.as_uri()}#/?t={moved['begin_ms']}")
    expect(hour).not_to_contain_text(f"{happened.count('placed')} placed")
