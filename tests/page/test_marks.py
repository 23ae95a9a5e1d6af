"""Marks of conditions are seen on nodes in full use, and numbers on every chip."""

import re
from typing import Final

from playwright.sync_api import expect

from berth.page.files import STYLE, page_files
from tests.page.conftest import Open
from tests.page.gateway import PageGateway
from tests.page.synthetic import SyntheticCell

_SEEN: Final = """([side, ground]) => {
  const canvas = document.getElementById("map");
  const from = (length) => Math.round((length - side) / 2);
  const { data } = canvas.getContext("2d").getImageData(from(canvas.width), from(canvas.height), side, side);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((value) => value / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const ratio = (a, b) => Math.max(light(a), light(b)) / Math.min(light(a), light(b));
  let most = 0;
  for (let at = 0; at < data.length; at += 4) most = Math.max(most, ratio([...data.slice(at, at + 3)], ground));
  return most >= 3;
}"""
"""Whether a pixel in the middle of the map has a contrast of 3 to 1 to a colour."""
_DRAWN: Final = (
    "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done))))"
)
_REST: Final = ([-1] * 8, 0, 0, 0, 0, 0, 0)
_FLAGGED: Final = {
    "corner": ["ok", 2, 0, *_REST],
    "lines": ["no-new-work", 0, 0, *_REST],
    "cross": ["evict", 0, 0, *_REST],
}


def palettes() -> list[dict[str, tuple[int, ...]]]:
    """Colours of the light theme, and of the dark one as it is written twice."""
    blocks = re.findall(r"--ground:.*?--is-dark", page_files()[STYLE].content.decode(), re.DOTALL)
    return [
        {name: tuple(bytes.fromhex(value)) for name, value in re.findall(r"--([\w-]+): #(\w{6});", block)}
        for block in blocks
    ]


def contrast(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    def light(color: tuple[int, ...]) -> float:
        shares = [value / 255 for value in color]
        r, g, b = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)  # sRGB
        return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05

    dark, bright = sorted((light(one), light(other)))
    return bright / dark


def test_numbers_of_chips_of_hidden_jobs_can_be_read() -> None:
    light, *dark = palettes()
    assert dark == [dark[0]] * 2
    for palette in (light, dark[0]):
        assert contrast(palette["mark"], palette["hidden"]) >= 4.5  # WCAG, for small text
        assert contrast(palette["hidden"], palette["free"]) >= 3  # WCAG, for shapes


def test_conditions_are_seen_on_small_nodes_in_full_use(
    open_page: Open, gateway: PageGateway, small: SyntheticCell
) -> None:
    small.nodes[4:8] = [["ok", 0, 0, *_REST], *_FLAGGED.values()]
    page = open_page(gateway.url, color_scheme="light")
    expect(page.locator("#connection")).to_have_text("Live")
    first, asked = 4, [6, palettes()[0]["use-4"]]
    for row, view in enumerate(("queue", "jobs", "faults", "dead"), first):
        page.goto(f"{gateway.url}#/{view}?map=a2-{row},10.0")
        expect(page.locator("#views [aria-current]")).to_have_attribute("href", f"#/{view}")
        page.evaluate(_DRAWN)
        is_seen = "true" if row > first else "false"
        page.wait_for_function(f"(asked) => ({_SEEN})(asked) === {is_seen}", arg=asked)
