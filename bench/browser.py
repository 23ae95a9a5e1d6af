"""A part of ``page``: the page for browsers with 10,000 nodes, in Chromium without a graphics processor.

Each value has the value of a bare page as its limit, from the same server and in the same run: an empty document, a
script that shows each event of the same stream as a text, and a canvas of one rectangle. Needs ``make page-assets``.
"""

import statistics
import time
from typing import Any, Final, NamedTuple

from playwright.sync_api import Browser, Page

from bench.report import Row, row
from tests.page.browser import chromium
from tests.page.gateway import PageGateway, running
from tests.page.synthetic import SyntheticCell

_FIRST_MS: Final = 2_500.0
_UPDATE_MS: Final = 300.0
_FRAME_MS: Final = 50.0
_VIEWPORT: Final = {"width": 1280, "height": 800}
_PAUSE_MS: Final = 150.0

_FRAMES: Final = """
async (zoom) => {
  const canvas = document.querySelector("canvas");
  const box = canvas.getBoundingClientRect();
  const frames = [];
  let last = await new Promise(requestAnimationFrame);
  for (let index = 0; index < 120; index += 1) {
    const deltaY = index < 60 ? -60 : 60;
    const [clientX, clientY] = [box.left + box.width * 0.4, box.top + box.height * 0.4];
    if (zoom) canvas.dispatchEvent(new WheelEvent("wheel", { deltaY, clientX, clientY, cancelable: true, bubbles: true }));
    else {
      const context = canvas.getContext("2d");
      context.fillStyle = index % 2 ? "#fff" : "#000";
      context.fillRect(0, 0, canvas.width, canvas.height);
    }
    const now = await new Promise(requestAnimationFrame);
    frames.push(now - last);
    last = now;
  }
  return frames;
}
"""
_BARE_CANVAS: Final = """
() => {
  document.body.textContent = "";
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [845, 680];
  document.body.append(canvas);
}
"""
_BARE_STREAM: Final = """
() => {
  window.seen = {};
  const place = document.body.appendChild(document.createElement("p"));
  const source = new EventSource("/api/v1/view/changes");
  source.addEventListener("change", (event) => {
    place.textContent = event.data;
    const { version } = JSON.parse(event.data);
    requestAnimationFrame(() => { window.seen[version] = Date.now(); });
  });
  return new Promise((resolve) => source.addEventListener("view", () => resolve(true)));
}
"""
_WATCH: Final = """
() => {
  window.seen = {};
  const content = document.getElementById("content");
  new MutationObserver(() => {
    for (const link of content.querySelectorAll("a.name")) {
      const found = /bench-(\\d+)$/.exec(link.textContent);
      if (found && !window.seen[found[1]]) window.seen[found[1]] = Date.now();
    }
  }).observe(content, { childList: true, subtree: true, characterData: true });
}
"""


class Size(NamedTuple):
    """Size of a run: nodes, first paints, updates, and runs of frames."""

    nodes: int = 10_000
    paints: int = 7
    updates: int = 25
    zooms: int = 5


FULL: Final = Size()
SMALL: Final = Size(nodes=64, paints=1, updates=2, zooms=1)


def rows(size: Size = FULL) -> list[Row]:
    """Measure."""
    with chromium() as browser, running(PageGateway(SyntheticCell(size.nodes))) as gateway:
        first, empty = _first_paints(browser, gateway, size.paints)
        updates, bare = _updates(browser, gateway, size.updates)
        frames, idle = _frames(browser, gateway, size.zooms)
    case = f"in Chromium, {size.nodes:,} nodes"
    return [
        row(case, "first paint of the map", "ms", first, limits=empty, target=_FIRST_MS),
        row(case, "update, from the server to the page", "ms", updates, limits=bare, target=_UPDATE_MS),
        row(case, "slowest update", "ms", [max(updates)], limits=[max(bare)]),
        row(case, "frame while zooming, p95", "ms", frames, limits=idle, target=_FRAME_MS),
    ]


def _opened(browser: Browser) -> Page:
    return browser.new_context(viewport={"width": _VIEWPORT["width"], "height": _VIEWPORT["height"]}).new_page()


def _first_paints(browser: Browser, gateway: PageGateway, paints: int) -> tuple[list[float], list[float]]:
    """From the navigation to the map with all nodes, and to the first paint of a document with one word."""
    shown: list[float] = []
    empty: list[float] = []
    for _ in range(paints):
        page = _opened(browser)
        page.goto(gateway.url)
        page.locator(".figures").wait_for(timeout=60_000)
        shown.append(page.evaluate("performance.getEntriesByName('map')[0].startTime"))
        page.context.close()
        page = _opened(browser)
        page.goto(f"{gateway.url}bare")
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
        empty.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        page.context.close()
    return shown, empty


def _updates(browser: Browser, gateway: PageGateway, updates: int) -> tuple[list[float], list[float]]:
    """From the sending of a change with a new job to its row in the table, and to the text of a bare page."""
    cell = gateway.cell
    page = _opened(browser)
    page.goto(f"{gateway.url}#/jobs")
    page.locator("#content tbody tr").first.wait_for(timeout=60_000)
    page.evaluate(_WATCH)
    other = _opened(browser)
    other.goto(f"{gateway.url}bare")
    other.evaluate(_BARE_STREAM)
    took: list[float] = []
    bare: list[float] = []
    for _ in range(updates):
        n = cell.add_job(name=f"bench-{cell.version + 1}", phase="recovering", submitted_ms=cell.at_ms)
        cell.jobs[n]["since_ms"] = cell.at_ms + cell.version  # the newest comes first
        change = cell.change()
        version = str(change["version"])
        sent_ms = time.time_ns() / 1e6
        gateway.send(change)
        took.append(_seen(page, version) - sent_ms)
        bare.append(_seen(other, version) - sent_ms)
        page.wait_for_timeout(_PAUSE_MS)
    page.context.close()
    other.context.close()
    return took, bare


def _seen(page: Page, version: str) -> float:
    handle: Any = page.evaluate_handle(
        "async (version) => { while (!window.seen[version]) await new Promise((next) => setTimeout(next, 5));"
        " return window.seen[version]; }",
        version,
    )
    seen_ms: float = handle.json_value()
    return seen_ms


def _frames(browser: Browser, gateway: PageGateway, zooms: int) -> tuple[list[float], list[float]]:
    """p95 of the frames of each run: zooming in from the whole cell to chips and out again, and on a bare canvas."""
    zoomed: list[float] = []
    idle: list[float] = []
    for _ in range(zooms):
        page = _opened(browser)
        page.goto(gateway.url)
        page.locator(".figures").wait_for(timeout=60_000)
        page.wait_for_timeout(_PAUSE_MS)
        zoomed.append(_p95(page.evaluate(_FRAMES, True)))  # noqa: FBT003  # an argument of the script
        page.context.close()
        page = _opened(browser)
        page.goto(f"{gateway.url}bare")
        page.evaluate(_BARE_CANVAS)
        idle.append(_p95(page.evaluate(_FRAMES, False)))  # noqa: FBT003  # as above
        page.context.close()
    return zoomed, idle


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]
