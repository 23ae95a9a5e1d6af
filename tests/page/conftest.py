"""A browser for all tests of the page, and a page for each; what the console reports as an error fails the test."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page.browser import axe_source, chromium
from tests.page.gateway import PageGateway, running
from tests.page.synthetic import SyntheticCell
from tests.support.waiting import SLACK

expect.set_options(timeout=int(5_000 * SLACK))
Open = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def axe() -> str:
    return axe_source()


@pytest.fixture
def small() -> SyntheticCell:
    """12 nodes."""
    return SyntheticCell(12)


@pytest.fixture
def gateway(small: SyntheticCell) -> Iterator[PageGateway]:
    with running(PageGateway(small)) as started:
        yield started


@pytest.fixture
def allowed() -> list[str]:
    """Parts of console errors that a test causes itself, such as by stopping the server."""
    return []


@pytest.fixture
def open_page(
    browser: Browser,
    allowed: list[str],
    gateway: PageGateway,  # noqa: ARG001  # named for the order of the ends
) -> Iterator[Open]:
    """Opens pages, with the options of a browser context; ends them, and judges their consoles.

    The gateway ends after the pages: an open page asks again on its own, and a refused connection is an error.
    """
    contexts = []
    errors: list[str] = []

    def opened(address: str, **options: object) -> Page:
        usual: dict[str, object] = {"viewport": {"width": 1280, "height": 800}, "timezone_id": "UTC"}
        context = browser.new_context(**(usual | options))  # type: ignore[arg-type]  # the options of a context
        context.set_default_timeout(10_000 * SLACK)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [error for error in errors if not any(part in error for part in allowed)] == []
