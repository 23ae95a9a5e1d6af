"""A recording in one HTML file: slider, play, speed, timelines, and no network."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Page, expect

from berth.page.files import recording_page
from tests.page.browser import overflow, violations
from tests.page.conftest import Open
from tests.page.synthetic import SyntheticCell, recording

STEPS = 120


@pytest.fixture
def recorded() -> dict[str, Any]:
    """120 changes of a cell with 12 nodes, seven seconds apart."""
    return recording(SyntheticCell(12), STEPS)


def stored(folder: Path, data: object) -> str:
    """Address of a file with a recording."""
    file = folder / "recording.html"
    file.write_bytes(recording_page(msgspec.json.encode(data)))
    return file.as_uri()


def move(page: Page, slider_ms: int) -> None:
    """Puts the slider to a time after the begin, as a reader does."""
    page.get_by_label("Time", exact=True).evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', {bubbles: true})); }",
        str(slider_ms),
    )


def waiting_at(recorded: dict[str, Any], index: int) -> list[str]:
    """Names of the jobs in the queue after so many changes."""
    names = {job["n"]: job["name"] for job in recorded["view"]["jobs"]}
    queue = recorded["view"]["queue"]
    for change in recorded["changes"][:index]:
        names |= {job["n"]: job["name"] for job in change["jobs"]}
        queue = change["queue"]
    return [names[n] for n in queue]


def shown(page: Page) -> list[str]:
    return [text.rpartition("/")[2] for text in page.locator("ol.cards a.name").all_inner_texts()]


def test_the_slider_shows_every_time_forwards_and_backwards(
    open_page: Open, recorded: dict[str, Any], tmp_path: Path
) -> None:
    page = open_page(stored(tmp_path, recorded) + "#/queue")
    expect(page.locator("#connection")).to_have_text("Recording")
    length = recorded["end_ms"] - recorded["begin_ms"]
    for index in (0, 3, STEPS, 110, 60, 59, 101, 1):
        move(page, 7_000 * index if index < STEPS else length)
        want = waiting_at(recorded, index)
        expect(page.locator("ol.cards li")).to_have_count(len(want))
        assert shown(page) == want
    assert page.get_by_label("Time", exact=True).get_attribute("aria-valuetext") == "14:13:27 UTC (7 s of 14 min)"


def test_a_recording_plays_and_pauses(open_page: Open, recorded: dict[str, Any], tmp_path: Path) -> None:
    page = open_page(stored(tmp_path, recorded))
    page.get_by_label("Speed").select_option(value="60")
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.locator("output.time")).to_have_text(re.compile(r"\([1-9] min"))
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    # While it played the address may have got a time; the one that is shown comes a moment after the pause.
    at_ms = page.get_by_label("Time", exact=True).evaluate(
        "(slider, begin) => Math.round(begin + Number(slider.value))", recorded["begin_ms"]
    )
    page.wait_for_url(f"**#/?t={at_ms}")
    before = page.locator("output.time").inner_text()
    page.reload()
    expect(page.locator("output.time")).to_have_text(before)


def test_a_recording_plays_to_its_end_and_begins_again(
    open_page: Open, recorded: dict[str, Any], tmp_path: Path
) -> None:
    page = open_page(stored(tmp_path, recorded))
    move(page, recorded["end_ms"] - recorded["begin_ms"] - 10_000)
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    expect(page.locator("output.time")).to_contain_text("(14 min of 14 min)")
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("output.time")).not_to_contain_text("(14 min of 14 min)")


def test_steps_go_from_change_to_change(open_page: Open, recorded: dict[str, Any], tmp_path: Path) -> None:
    page = open_page(stored(tmp_path, recorded) + "#/queue")
    for _ in range(3):
        page.get_by_role("button", name="Next change").click()
    expect(page.locator("output.time")).to_contain_text("(21 s of 14 min)")
    page.get_by_role("button", name="Change before").click()
    expect(page.locator("output.time")).to_contain_text("(14 s of 14 min)")
    expect(page.locator("ol.cards li")).to_have_count(len(waiting_at(recorded, 2)))


def test_the_story_of_a_job_grows_with_the_time(open_page: Open, recorded: dict[str, Any], tmp_path: Path) -> None:
    key, story = next(
        (key, story)
        for key, story in recorded["stories"].items()
        if [event["phase"] for event in story["events"]][:3] == ["accepted", "waiting", "placed"]
        and story["events"][0]["at_ms"] > recorded["begin_ms"]
    )
    namespace, name, _ = key.split("/")
    page = open_page(stored(tmp_path, recorded) + f"#/job/{namespace}/{name}")
    expect(page.locator("#content")).to_contain_text("There is no job")
    move(page, story["events"][1]["at_ms"] - recorded["begin_ms"])
    expect(page.locator(".timeline li")).to_have_count(2)
    expect(page.locator("#content")).not_to_contain_text("Placed")
    why = page.locator("#content .why")
    expect(why).to_have_text(f"The best nodes for {name} are in use.")
    move(page, story["events"][2]["at_ms"] - recorded["begin_ms"])
    expect(page.locator(".timeline li")).to_have_count(3)
    expect(why).to_have_text(f"{name} has the first free nodes that suffice.")


def test_several_timelines_are_a_choice(open_page: Open, recorded: dict[str, Any], tmp_path: Path) -> None:
    other = recording(SyntheticCell(12, seed=7), STEPS, title="With backfill")
    page = open_page(stored(tmp_path, [recorded, other]) + "#/queue")
    assert shown(page) == waiting_at(recorded, 0)
    page.get_by_label("Timeline").select_option("With backfill")
    expect(page.locator("ol.cards li")).to_have_count(len(waiting_at(other, 0)))
    move(page, 70_000)
    # Both times have as many cards: what they show says that they were drawn again.
    names = [re.compile(f"/{name}$") for name in waiting_at(other, 10)]
    expect(page.locator("ol.cards a.name")).to_have_text(names)
    assert shown(page) == waiting_at(other, 10)
    page.wait_for_url(f"**#/queue?t={other['begin_ms'] + 70_000}&timeline=1")  # it had the time before for a moment
    page.reload()
    assert shown(page) == waiting_at(other, 10)


def since_its_start(data: Any, begin_ms: int) -> Any:  # noqa: ANN401  # JSON
    """A recording with times that begin at 0, as those of a simulation."""
    if isinstance(data, dict):
        return {
            name: value - begin_ms if name.endswith("_ms") and value else since_its_start(value, begin_ms)
            for name, value in data.items()
        }
    return [since_its_start(one, begin_ms) for one in data] if isinstance(data, list) else data


def test_timelines_of_other_times_keep_the_time_since_the_start(
    open_page: Open, recorded: dict[str, Any], tmp_path: Path
) -> None:
    other = since_its_start(recorded, recorded["begin_ms"]) | {"title": "Simulated"}
    page = open_page(stored(tmp_path, [recorded, other]) + "#/queue")
    time = page.locator("output.time")
    move(page, 70_000)
    expect(time).to_have_text("14:14:30 UTC (1 min 10 s of 14 min)")
    page.get_by_label("Timeline").select_option("Simulated")
    expect(time).to_have_text("1 min 10 s of 14 min")
    expect(page.locator("ol.cards li")).to_have_count(len(waiting_at(other, 10)))
    assert shown(page) == waiting_at(other, 10)
    page.get_by_label("Timeline").select_option("Synthetic cell")
    expect(time).to_have_text("14:14:30 UTC (1 min 10 s of 14 min)")


def test_the_time_is_part_of_every_address(open_page: Open, recorded: dict[str, Any], tmp_path: Path) -> None:
    address, begin_ms = stored(tmp_path, [recorded, recorded | {"title": "Other"}]), recorded["begin_ms"]
    page = open_page(f"{address}#/queue")
    time = page.locator("output.time")
    move(page, 70_000)
    page.wait_for_url(f"**#/queue?t={begin_ms + 70_000}")
    page.get_by_role("link", name="Jobs").click()
    page.wait_for_url(f"**#/jobs?t={begin_ms + 70_000}")
    move(page, 140_000)
    page.get_by_role("link", name="Faults").click()
    page.wait_for_url(f"**#/faults?t={begin_ms + 140_000}")
    page.go_back()
    page.go_back()
    expect(time).to_contain_text("(1 min 10 s of")
    page.goto(f"{address}#/queue?timeline=1&t={begin_ms + 21_000}")
    expect(time).to_contain_text("(21 s of")
    expect(page.get_by_label("Timeline")).to_have_value("1")
    expect(page.locator("ol.cards li")).to_have_count(len(waiting_at(recorded, 3)))
    assert shown(page) == waiting_at(recorded, 3)


def test_a_recording_needs_no_network_and_its_texts_stay_text(
    open_page: Open, recorded: dict[str, Any], tmp_path: Path, axe: str
) -> None:
    hostile = "</script><script>document.title = 'broken'</script><!-- <script>"
    recorded["view"]["jobs"][-1]["sentence"] = hostile
    recorded["title"] = hostile
    page = open_page(stored(tmp_path, recorded) + "#/queue")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.reload()
    expect(page.locator("#content")).to_contain_text(hostile)
    expect(page.locator(".recording-title")).to_have_text(hostile)
    assert page.title() == "Queue - Berth"
    assert [url.partition(":")[0] for url in requests if not url.startswith("data:")] == ["file"]
    assert violations(page, axe) == []


def test_a_recording_fits_a_telephone(open_page: Open, recorded: dict[str, Any], tmp_path: Path) -> None:
    page = open_page(stored(tmp_path, recorded), viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    assert overflow(page) <= 0
