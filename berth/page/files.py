"""Files of the page for a gateway, and one HTML file for a recording.

The page is HTML, a style sheet and ECMAScript modules; nothing builds them. When they are read, the modules are joined
into one script, so that a browser waits for one file and not for a chain of them: each becomes a function that returns
what it exports, in an order in which every module comes after those that it imports. For a recording all of it is one
file, which needs no server and no network.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib import resources
from typing import Final, NamedTuple

CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Header ``Content-Security-Policy`` of the served page: it loads its own files alone, and no frame holds it."""
INDEX: Final = "index.html"
STYLE: Final = "page.css"
SCRIPT: Final = "page.js"
MAIN: Final = "main.js"
_MEDIA_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
_STYLE_LINK: Final = f'<link rel="stylesheet" href="assets/{STYLE}">\n'
_SCRIPT_LINK: Final = f'<script type="module" src="assets/{SCRIPT}"></script>\n'
_IMPORT: Final = re.compile(r'^import \{ ([\w, ]+) \} from "\./([\w-]+\.js)";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ((?:async )?function\*?|class|const) (\w+)", re.MULTILINE)
_MODULE_WORD: Final = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


class PageFile(NamedTuple):
    """A file of the page.

    Attributes:
        content: Its bytes.
        media_type: Value of the header ``Content-Type``.
    """

    content: bytes
    media_type: str


def page_files() -> dict[str, PageFile]:
    """Files of the page by their names: the document, its style sheet and its script.

    A gateway answers ``/`` with ``index.html``, and ``/assets/<name>`` with each of the others.

    Raises:
        ValueError: The modules do not fit each other, see :func:`joined`.
    """
    found = sources()
    texts = {INDEX: found[INDEX], STYLE: found[STYLE], SCRIPT: joined(found, MAIN)}
    return {name: PageFile(text.encode(), _MEDIA_TYPES[name.rpartition(".")[2]]) for name, text in texts.items()}


def sources() -> dict[str, str]:
    """What the page is made of, by the names of the files, in their order."""
    folder = resources.files("berth.page") / "static"
    found = sorted(folder.iterdir(), key=lambda each: each.name)
    return {each.name: each.read_text("utf-8") for each in found if each.name.rpartition(".")[2] in _MEDIA_TYPES}


def recording_page(recording: bytes) -> bytes:
    """One HTML file that shows a recording.

    Args:
        recording: JSON of a recording, or of a list of recordings, which the page offers as timelines.

    Returns:
        The page in UTF-8. Its content policy permits its own script and style by their hashes, and no connection.

    Raises:
        ValueError: The files of the page do not fit each other, see :func:`joined`.
    """
    files = {name: each.content.decode() for name, each in page_files().items()}
    style = f"\n{files[STYLE]}"
    script = f"\n{files[SCRIPT]}"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    # In JSON, "<" stands within texts alone, where it may be escaped; so nothing in the data can end the element.
    data = recording.decode().replace("<", "\\u003c")
    html = files[INDEX]
    for found, wanted in (
        (
            _STYLE_LINK,
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>\n',
        ),
        (
            _SCRIPT_LINK,
            f'<script type="application/json" id="recording">{data}</script>\n<script type="module">{script}</script>\n',
        ),
    ):
        before, line, after = html.partition(found)
        if not line:
            raise ValueError(f"{INDEX} is without the line {found.strip()}, expected it once")
        html = before + wanted + after
    return html.encode()


def joined(modules: Mapping[str, str], main: str) -> str:
    """Modules as one script.

    Args:
        modules: Source of each module by its name.
        main: Name of the module that starts the page.

    Returns:
        The script. ``main`` and all modules that it imports are in it, each after its own imports.

    Raises:
        ValueError: An import or export has another form than the joining reads, a module is missing, or modules import
            each other in a circle.
    """
    order: list[str] = []
    _visit(modules, main, [], order)
    return "".join(_as_function(name, modules[name]) for name in order)


def _visit(modules: Mapping[str, str], name: str, path: list[str], order: list[str]) -> None:
    if name in order:
        return
    if name in path:
        raise ValueError(f"imports are {' -> '.join([*path, name])}, expected no circle")
    if name not in modules:
        raise ValueError(f"import of {path[-1] if path else 'the page'} is {name}, expected one of {sorted(modules)}")
    for match in _IMPORT.finditer(modules[name]):
        _visit(modules, match[2], [*path, name], order)
    order.append(name)


def _as_function(name: str, source: str) -> str:
    exported = [match[2] for match in _EXPORT.finditer(source)]
    body = _IMPORT.sub(lambda match: f"const {{ {match[1]} }} = {_variable(match[2])};", source)
    body = _EXPORT.sub(r"\1 \2", body)
    if (other := _MODULE_WORD.search(body)) is not None:
        raise ValueError(f"line of {name} is {other[0]!r}, expected an import or export in one line")
    return f"const {_variable(name)} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();\n"


def _variable(name: str) -> str:
    return f"module_{name.removesuffix('.js').replace('-', '_')}"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
