"""The documentation site: it builds without a warning, loads nothing from elsewhere, and shows what the pages say.

A page is read in the tree and on the site. Both read Markdown in different ways, such as the blanks before a nested
list, so the structure of each page is compared. Links and anchors between pages are checked by mkdocs itself, which
warns of a page without a place in the navigation, too.
"""

import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest
from rich.markdown import Markdown

pytestmark = pytest.mark.timeout(180)

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
REPOSITORY: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
TOP_PAGES: Final = {"CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
PAGES: Final = sorted(path.relative_to(DOCS) for path in DOCS.rglob("*.md") if "node_modules" not in path.parts) + [
    Path(name) for name in sorted(TOP_PAGES)
]
STRUCTURE: Final = {"table", "tr", "li", "ul", "ol", "pre", "h1", "h2", "h3", "h4", "blockquote", "em", "strong", "img"}
LOADED: Final = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements that a browser loads without being asked, with the attribute that has the address."""


class Seen(HTMLParser):
    """What a page of the site holds."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self._in_article = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        self._in_article |= tag == "article"
        if self._in_article and tag in STRUCTURE:
            self.counts[tag] += 1
        if tag == "a" and own.get("href"):
            self.links.append(str(own["href"]))
        if own.get(LOADED.get(tag, "")):
            self.loaded.append(str(own[LOADED[tag]]))

    def handle_endtag(self, tag: str) -> None:
        self._in_article &= tag != "article"


def built_path(site: Path, page: Path) -> Path:
    return site / (page.parent / "index.html" if page.name == "README.md" else page.with_suffix(".html"))


def seen(path: Path) -> Seen:
    parser = Seen()
    parser.feed(path.read_text("utf-8"))
    return parser


def wanted(text: str) -> Counter[str]:
    """Numbers of elements in a page as it is read in the tree."""
    found: Counter[str] = Counter()
    tokens = list(Markdown(text).parsed)
    while tokens:
        token = tokens.pop()
        tokens += token.children or []
        name = {"fence": "pre", "code_block": "pre", "image": "img"}.get(token.type, token.tag)
        if name in STRUCTURE and (token.nesting == 1 or name in {"pre", "img"}):
            found[name] += 1
    return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(  # noqa: S603  # our own words
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"},  # noqa: TID251  # of a child
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "WARNING" not in done.stdout
    return folder


def test_every_page_shows_the_structure_that_it_has_in_the_tree(site: Path) -> None:
    differing = {}
    for page in PAGES:
        source = ROOT / page if page.name in TOP_PAGES else DOCS / page
        want, found = wanted(source.read_text("utf-8")), seen(built_path(site, page)).counts
        if want != found:
            differing[str(page)] = {name: (want[name], found[name]) for name in STRUCTURE if want[name] != found[name]}
    assert differing == {}, "numbers of elements in the tree, and on the site"


def test_code_in_a_table_shows_a_bar_without_a_backslash(site: Path) -> None:
    pages = [
        page for page in PAGES if "\\|" in (ROOT / page if page.name in TOP_PAGES else DOCS / page).read_text("utf-8")
    ]
    assert pages
    assert [str(page) for page in pages if "\\|" in built_path(site, page).read_text("utf-8")] == []


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    loaded = {address for path in pages for address in seen(path).loaded}
    assert any(address.endswith(".js") for address in loaded)
    assert [address for address in sorted(loaded) if re.match(r"(\w+:)?//", address)] == []
    for path in site.rglob("*.css"):
        assert re.findall(r"(?:@import|url\()[\"' ]*(?:https?:)?//", path.read_text("utf-8")) == [], path


def test_links_to_the_repository_name_files_of_the_tree(site: Path) -> None:
    links = {link for page in PAGES for link in seen(built_path(site, page)).links if link.startswith(REPOSITORY)}
    assert links
    for link in sorted(links):
        kind, _, path = link.removeprefix(f"{REPOSITORY}/").partition("/main/")
        there = ROOT / path
        assert there.is_dir() if kind == "tree" else there.is_file(), link


def test_no_link_of_the_site_leads_out_of_it(site: Path) -> None:
    """Links of the tree that were not rewritten, such as those to ``../schemas``, would."""
    leading_out = []
    for page in PAGES:
        path = built_path(site, page)
        for link in seen(path).links:
            target = link.partition("#")[0]
            if target and not re.match(r"[a-z]+:", target) and not (path.parent / target).resolve().exists():
                leading_out.append((str(page), link))
    assert leading_out == []
