"""Pictures of the page for the documents: ``python -m tests.page.screenshots`` writes docs/pictures.

The cell is synthetic and always the same, so a picture changes only with the page.
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec
from playwright.sync_api import Browser, Page, expect

from berth.page.files import recording_page
from tests.page.browser import chromium
from tests.page.gateway import PageGateway, running
from tests.page.synthetic import SyntheticCell, recording

PICTURES: Final = Path(__file__).parents[2] / "docs" / "pictures"
_NODES: Final = 300
_LARGE: Final = 10_000
_STEPS: Final = 400
_BYTES_MAX: Final = 200_000
_WIDE: Final = (1280, 800)
_NARROW: Final = (390, 844)


def _opened(browser: Browser, scheme: str, size: tuple[int, int], address: str) -> Page:
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        timezone_id="UTC",
        reduced_motion="reduce",
        is_mobile=size == _NARROW,
        has_touch=size == _NARROW,
    )
    page = context.new_page()
    page.goto(address)
    return page


def _taken(page: Page, name: str, scheme: str) -> None:
    """Store what is shown, when two looks in a row are the same.

    Raises:
        ValueError: The picture is too large for the tree.
    """
    before = b""
    while (now := page.screenshot(animations="disabled")) != before:
        before = now
    path = PICTURES / f"page-{name}-{scheme}.png"
    path.write_bytes(now)
    if len(now) > _BYTES_MAX:
        raise ValueError(f"size of {path.name} is {len(now)} bytes, expected at most {_BYTES_MAX}")
    page.context.close()


def _live(browser: Browser, scheme: str) -> None:
    cell = SyntheticCell(_NODES, seed=3, occupied=0.8)
    placed = max(
        (job for job in cell.jobs.values() if job["phase"] == "running"), key=lambda job: (job["pods"], job["n"])
    )
    waiting = cell.jobs[cell.queue[1]]
    cell.has_queues = True
    for n, job in cell.jobs.items():
        job["queue"] = ("llm", "vision", "default")[n % 3]
    with running(PageGateway(cell)) as gateway:
        gateway.rights = {"read": ["*"], "submit": ["*"], "operate": True}
        for name, address in (
            ("cell", ""),
            ("queue", "queue"),
            ("queues", "queues"),
            ("jobs", "jobs?sort=-chips"),
            ("job", f"job/{placed['namespace']}/{placed['name']}"),
            ("waiting", f"job/{waiting['namespace']}/{waiting['name']}"),
            ("faults", "faults"),
            ("services", "services"),
        ):
            page = _opened(browser, scheme, _WIDE, f"{gateway.url}#/{address}")
            expect(page.locator("#connection")).to_have_text("Live")
            expect(page.locator("#content")).not_to_contain_text("Reading the")
            if address.startswith("job/"):
                expect(page.locator(".timeline")).to_be_visible()
            _taken(page, name, scheme)
        page = _opened(browser, scheme, _NARROW, gateway.url)
        expect(page.locator(".feed")).to_be_visible()
        _taken(page, "phone", scheme)


def _large(browser: Browser, scheme: str) -> None:
    with running(PageGateway(SyntheticCell(_LARGE, seed=2))) as gateway:
        page = _opened(browser, scheme, _WIDE, gateway.url)
        expect(page.locator(".feed")).to_be_visible()
        _taken(page, "10000-nodes", scheme)


def _recorded(browser: Browser, scheme: str, folder: Path) -> None:
    data = recording(SyntheticCell(_NODES, seed=3, occupied=0.8), _STEPS, title="An hour of a synthetic cell")
    file = folder / "recording.html"
    file.write_bytes(recording_page(msgspec.json.encode(data)))
    at_ms = (data["begin_ms"] + 2 * data["end_ms"]) // 3
    page = _opened(browser, scheme, _WIDE, f"{file.as_uri()}#/jobs?t={at_ms}")
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    _taken(page, "recording", scheme)


def main() -> int:
    """Take all pictures, light and dark."""
    PICTURES.mkdir(exist_ok=True)
    with chromium() as browser, tempfile.TemporaryDirectory(prefix="berth-pictures-") as folder:
        for scheme in ("light", "dark"):
            _live(browser, scheme)
            _large(browser, scheme)
            _recorded(browser, scheme, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
