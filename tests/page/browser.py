"""Chromium of the system, as tests, pictures and the bench of the page start it."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page, sync_playwright

_ARGUMENTS: Final = (
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_AXE: Final = "berth/page/axe-core-4.10.3/axe.min.js"
_MISSING: Final = "{} is missing, expected it here: make test-page installs it"


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for the block."""
    path = next((found for name in _NAMES if (found := shutil.which(name)) is not None), None)
    assert path is not None, _MISSING.format(" or ".join(_NAMES))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


def axe_source() -> str:
    """Source of axe-core, which ``tests/page/assets.sh`` has put into the cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")  # noqa: TID251  # as assets.sh reads it
    file = cache / _AXE
    assert file.is_file(), _MISSING.format(file)
    return file.read_text("utf-8")


def violations(page: Page, axe: str) -> list[str]:
    """What axe-core reports on a page: the rule, and where it is violated."""
    page.evaluate(axe)
    report: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{found['id']}: {', '.join(str(node['target']) for node in found['nodes'][:5])}"
        for found in report["violations"]
    ]


def overflow(page: Page) -> int:
    """Pixels by which the document is wider than its window."""
    found: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return found
