"""SVG of matplotlib as an element of a page: smaller, with the fonts of the page, and colours that follow its theme.

Colours of the palette become CSS variables. Coordinates are rounded to a tenth of a unit, and ids that nothing refers
to are dropped; the others get a prefix, because several drawings are on one page.
"""

import re
from html import escape
from typing import Final
from xml.etree import ElementTree as ET

from berth.cli.simulation.palette import DARK, variable

_KEPT: Final = frozenset({"svg", "g", "defs", "path", "use", "text", "tspan", "clipPath", "rect", "image", "pattern"})
_REFERENCE: Final = re.compile(r"#([^)]+)")
_NUMBER: Final = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
_COLOUR: Final = re.compile(r"#[0-9a-f]{6}")
_NO_ROTATION: Final = re.compile(r"rotate\(-?0(?:\.0)? [^)]*\)")
_LINE: Final = re.compile(r"([ML]) (\S+) (\S+)")
_FONT: Final = "font-family"


def inlined(svg: bytes, label: str, *, prefix: str, css_class: str) -> str:
    """An ``<svg>`` element for HTML.

    Args:
        svg: File of matplotlib, with text as text.
        label: What it shows, for those who do not see it.
        prefix: Start of its ids, another one for each drawing of a page.
        css_class: Its class.
    """
    root = ET.fromstring(svg)  # noqa: S314  # our own
    box, width, height = (root.get(name, "") for name in ("viewBox", "width", "height"))
    text = svg.decode()
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    ids = {name: f"{prefix}{number}" for number, name in enumerate(sorted(used))}
    body = "".join(_element(child, ids) for child in root)
    return (
        f'<svg class="{escape(css_class)}" viewBox="{box}" width="{width}" height="{height}" role="img" aria-label="{escape(label)}"'
        f' stroke-linejoin="round">{body}</svg>'
    )


def _element(element: ET.Element, ids: dict[str, str]) -> str:
    """An element and what is in it; empty if it draws nothing."""
    tag = _local(element.tag)
    if tag not in _KEPT:
        return ""
    body = "".join(_element(child, ids) for child in element)
    if tag in {"text", "tspan"}:
        body = escape(element.text or "", quote=False) + body
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in _attributes(element, ids))
    if tag in {"g", "defs"}:
        if not body:
            return ""
        if not attributes and tag == "g":
            return body
    elif tag == "path" and not element.get("d", "").strip():
        return ""
    return f"<{tag}{attributes}>{body}</{tag}>"


def _attributes(element: ET.Element, ids: dict[str, str]) -> list[tuple[str, str]]:
    found = [(_local(name), value) for name, value in element.attrib.items()]
    return [(name, text) for name, value in found if (text := _value(name, value, ids))]


def _value(name: str, value: str, ids: dict[str, str]) -> str:
    """New value of an attribute; empty if it is not needed."""
    match name:
        case "id":
            text = ids.get(value, "")
        case "href" if value.startswith("#"):
            text = f"#{ids[value[1:]]}"
        case "clip-path":
            text = _REFERENCE.sub(lambda match: f"#{ids[match[1]]}", value)
        case "d":
            text = _path(value)
        case "style":
            text = _style(value)
        case "transform":
            text = _rounded(_NO_ROTATION.sub("", value)).strip()
        case "x" | "y" | "width" | "height":
            text = _rounded(value)
        case _:
            text = value
    return text


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _style(text: str) -> str:
    parts = [part.strip() for part in text.split(";")]
    kept = ";".join(part.replace(": ", ":") for part in parts if part and not part.startswith(_FONT))
    return _COLOUR.sub(lambda match: f"var({variable(match[0])})" if match[0] in DARK else match[0], kept)


def _rounded(text: str) -> str:
    return _NUMBER.sub(lambda match: _short(float(match[0])), text)


def _short(value: float) -> str:
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _path(text: str) -> str:
    """A path with rounded coordinates; lines along an axis by one of them, and none to where the pen is."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    parts = []
    here = ("", "")
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            parts.append(_rounded(line))
            here = ("", "")
            continue
        there = (_rounded(match[2]), _rounded(match[3]))
        if match[1] == "M":
            parts.append(f"M{there[0]} {there[1]}")
        elif there[1] == here[1]:
            if there[0] != here[0]:
                parts.append(f"H{there[0]}")
        else:
            parts.append(f"V{there[1]}" if there[0] == here[0] else f"L{there[0]} {there[1]}")
        here = there
    return "".join(parts)
