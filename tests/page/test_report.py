"""The report of a simulation in a browser: it fits the window, follows the theme, and axe-core finds nothing."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from berth.cli.simulation.report_page import PageText, write_page
from berth.core.simulation.comparison import rows_of
from berth.core.simulation.conclusion import conclusion_of
from berth.core.simulation.statistics import statistics_of
from tests.page.browser import overflow, violations
from tests.support.timelines import made_up

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report of four columns, with wide tables and a chart that is PNG."""
    columns = [made_up(f"policy {seed}, with a long name", seed=seed, jobs=300, frames=5) for seed in range(4)]
    figures = [statistics_of(column) for column in columns]
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_page(columns, rows_of(figures), PageText("trace on cluster", conclusion_of(figures), ["a note"]), path)
    return path.as_uri()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_it_fits_the_window_and_axe_finds_nothing(
    open_page: Open, axe: str, address: str, width: int, theme: str
) -> None:
    page = open_page(address, viewport={"width": width, "height": 800}, color_scheme=theme)
    assert overflow(page) == 0
    assert violations(page, axe) == []
    is_narrow = width <= 640
    expect(page.locator("svg.at-narrow").first).to_be_visible(visible=is_narrow)
    expect(page.locator("svg.at-wide").first).to_be_visible(visible=not is_narrow)


def test_colours_of_page_and_charts_follow_the_theme(open_page: Open, address: str) -> None:
    found = {}
    for theme in ("light", "dark"):
        page = open_page(address, color_scheme=theme)
        found[theme] = [
            page.evaluate("getComputedStyle(document.body).backgroundColor"),
            page.evaluate("getComputedStyle(document.querySelector('svg.at-wide text')).fill"),
            page.evaluate("document.querySelector('picture img').currentSrc"),
        ]
    assert found["light"][:2] == ["rgb(255, 255, 255)", "rgb(27, 27, 27)"]
    assert found["dark"][:2] == ["rgb(22, 24, 27)", "rgb(230, 230, 230)"]
    assert found["light"][2] != found["dark"][2]


def test_it_can_be_read_without_scripts(open_page: Open, address: str) -> None:
    page = open_page(address, java_script_enabled=False)
    expect(page.get_by_role("heading", name="trace on cluster")).to_be_visible()
    expect(page.get_by_role("img").first).to_be_visible()
    expect(page.get_by_text("jobs were placed").first).to_be_visible()
