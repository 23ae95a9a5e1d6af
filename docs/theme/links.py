"""Hook of mkdocs: pages keep the links of the tree, and the site gets links that work there.

Pages are read in the tree as well, so they link files as they lie there. A link to a page leads to the page of the
site. A link to a file that the site does not hold, such as a source or a manifest, leads to the repository that
``pyproject.toml`` names. Some pages lie at the top of the tree and are pages of the site all the same. In the
navigation, ``folder/*`` stands for all pages of a folder, by title. A bar in code in a table has a backslash before it
in the tree, and none on the site. Pages that are made from the code are on the site alone; mkdocs is started as a
module, from the root of the tree, so that this file finds what makes them.
"""

import os.path
import re
import tomllib
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tests.contract.reference_pages import made_pages

ROOT: Final = Path(__file__).parents[2]
TOP_PAGES: Final = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages at the top of the tree that the site has as well."""
_REPOSITORY: Final = str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Repository"])
_FENCE: Final = re.compile(r"^( *(?:```|~~~)).*?^\1 *$", re.DOTALL | re.MULTILINE)
_CODE_IN_ROW: Final = re.compile(r"`[^`\n]*\\\|[^`\n]*`")
_LINK: Final = re.compile(r"(?<=\]\()([^)\s#]+)(?=[)#])")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of a folder where the navigation names the folder."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the top of the tree, and those that are made from the code."""
    for name in TOP_PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for name, text in made_pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change the links of a page, those in code excepted."""
    source = ROOT / page.file.src_uri if page.file.src_uri in TOP_PAGES else Path(config.docs_dir) / page.file.src_uri

    def change(found: re.Match[str]) -> str:
        return site_link(found[1], source, page.file.src_uri, files, Path(config.docs_dir))

    parts: list[str] = []
    end = 0
    for fence in _FENCE.finditer(markdown):
        parts += [_LINK.sub(change, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return _with_bars("".join([*parts, _LINK.sub(change, markdown[end:])]))


def _with_bars(markdown: str) -> str:
    return "\n".join(
        _CODE_IN_ROW.sub(lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line
        for line in markdown.split("\n")
    )


def site_link(target: str, source: Path, page: str, files: Files, docs: Path) -> str:
    """Target of a link on the site.

    Args:
        target: As the page has it, without an anchor.
        source: File of the page in the tree.
        page: Path of the page in the site's sources.
        files: Files of the site.
        docs: Folder of the site's sources.

    Returns:
        The target, relative to the page, or an address of the repository. A target that is not there is not changed:
        mkdocs reports it.
    """
    if "://" in target or target.startswith("mailto:"):
        return target
    path = Path(os.path.normpath(source.parent / target))
    if not path.is_relative_to(ROOT):
        return target
    inside = path.relative_to(docs).as_posix() if path.is_relative_to(docs) else path.relative_to(ROOT).as_posix()
    if path.is_relative_to(docs) or inside in TOP_PAGES:
        for name in (inside, f"{inside}/README.md"):
            if files.get_file_from_path(name) is not None:
                return os.path.relpath(name, Path(page).parent)
    if not path.exists():
        return target
    kind = "tree" if path.is_dir() else "blob"
    return f"{_REPOSITORY}/{kind}/main/{path.relative_to(ROOT).as_posix()}"


def _expanded(entry: Any, docs: Path) -> Any:  # noqa: ANN401  # YAML of any form
    match entry:
        case list():
            return [_expanded(part, docs) for part in entry]
        case dict():
            return {title: _expanded(part, docs) for title, part in entry.items()}
        case str() if entry.endswith("/*"):
            folder = docs / entry.removesuffix("/*")
            pages = sorted(folder.glob("*.md"), key=lambda path: (path.name != "README.md", _title(path), path.name))
            return [path.relative_to(docs).as_posix() for path in pages]
    return entry


def _title(page: Path) -> str:
    return page.read_text("utf-8").partition("# ")[2].partition("\n")[0].casefold()
