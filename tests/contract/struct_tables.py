"""Fields of Structs as rows of tables: name, type, default, and the text below the field in its class."""

import json
import re
import textwrap
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import inspect as types

from berth.schemas.programs.documents import field_texts

_CODE: Final = re.compile(r"(`[^`]*`)")
_ROLE: Final = re.compile(r":\w+:`~?(?:[\w.]*\.)?(\w+)`")
_OWN_NAMES: Final = {"Path": "path"}
_WORDS: Final[tuple[tuple[type[types.Type], str], ...]] = (
    (types.BoolType, "boolean"),
    (types.NoneType, "none"),
    (types.AnyType, "anything"),
    (types.RawType, "a message"),
    (types.DateTimeType, "a time"),
)


WRITTEN: Final = "This page is made from the code when the site is built (`make site`)."


class Field(NamedTuple):
    """A field.

    Attributes:
        name: As it is written.
        kind: The type in words.
        default: The default; empty for a field that must be given.
        text: The text below it; empty without one.
        inside: Structs that the field holds.
    """

    name: str
    kind: str
    default: str
    text: str
    inside: list[type[msgspec.Struct]]


def fields_of(struct: type[msgspec.Struct]) -> list[Field]:
    """Fields of a Struct in their order."""
    texts = field_texts(struct)
    info = types.type_info(struct)
    assert isinstance(info, types.StructType)
    return [
        Field(
            name=field.encode_name,
            kind=type_words(field.type),
            default="" if field.required else default_text(_default(field)),
            text=texts.get(field.name, ""),
            inside=structs_in(field.type),
        )
        for field in info.fields
    ]


def _default(field: types.Field) -> object:
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default


def structs_in(node: types.Type) -> list[type[msgspec.Struct]]:
    """Structs in a type, each once, those inside them excepted."""
    match node:
        case types.StructType(cls=cls):
            return [cls]
        case types.UnionType(types=parts) | types.TupleType(item_types=parts):
            return list(dict.fromkeys(cls for part in parts for cls in structs_in(part)))
        case types.DictType(value_type=inner) | types.ListType(item_type=inner) | types.VarTupleType(item_type=inner):
            return structs_in(inner)
        case types.Metadata(type=inner):
            return structs_in(inner)
        case _:
            return []


def type_words(node: types.Type) -> str:  # noqa: C901, PLR0911, PLR0912  # one line for each kind of type
    """A type in words, with its bounds.

    Raises:
        TypeError: There are no words for it here.
    """
    for kind, words in _WORDS:
        if isinstance(node, kind):
            return words
    match node:
        case types.IntType():
            return f"integer{_bounds(node)}"
        case types.FloatType():
            return f"number{_bounds(node)}"
        case types.StrType():
            return f"text{_lengths(node)}"
        case types.BytesType():
            return "bytes"
        case types.LiteralType(values=values):
            return "one of " + ", ".join(f"`{value}`" for value in values)
        case types.EnumType(cls=cls):
            return "one of " + ", ".join(f"{value.value} ({value.name.lower()})" for value in cls)
        case types.UnionType(types=parts):
            # none comes last
            ordered = sorted(parts, key=lambda part: isinstance(part, types.NoneType))
            return " or ".join(type_words(part) for part in ordered)
        case types.ListType(item_type=inner) | types.VarTupleType(item_type=inner):
            return f"list of {type_words(inner)}"
        case types.TupleType(item_types=parts):
            return "[" + ", ".join(type_words(part) for part in parts) + "]"
        case types.DictType(key_type=key, value_type=value):
            return f"table of {type_words(value)}" + (
                "" if isinstance(key, types.StrType) else f" by {type_words(key)}"
            )
        case types.StructType(cls=cls):
            return cls.__name__
        case types.CustomType(cls=cls):
            return _OWN_NAMES.get(cls.__name__, cls.__name__)
        case types.Metadata(type=inner):
            return type_words(inner)
        case _:
            raise TypeError(f"type is {node!r}, expected one that has words here")


def _bounds(node: types.IntType | types.FloatType) -> str:
    low = "" if node.ge is None else f"{node.ge:,} or more"
    low = low if node.gt is None else f"more than {node.gt:,}"
    high = "" if node.le is None else f"at most {node.le:,}"
    high = high if node.lt is None else f"less than {node.lt:,}"
    if node.ge is not None and node.le is not None:
        return f", {node.ge:,} to {node.le:,}"
    found = ", ".join(part for part in (low, high) if part)
    return f", {found}" if found else ""


def _lengths(node: types.StrType) -> str:
    if node.pattern is not None:
        return f" like `{node.pattern}`"
    if node.min_length and node.max_length:
        return f", {node.min_length} to {node.max_length} characters"
    return f", at most {node.max_length:,} characters" if node.max_length else ", not empty" if node.min_length else ""


def default_text(value: object) -> str:  # noqa: PLR0911  # one line for each kind of value
    """A default as it would be written."""
    match value:
        case None:
            return "none"
        case msgspec.Struct():
            return "its defaults"
        case Enum():
            return f"`{value.value}`"
        case Path():
            return f"`{value}`"
        case str():
            return f"`{value}`" if value else '`""`'
        case bytes():
            return "empty"
        case tuple() | list() | dict() | bool():
            return f"`{json.dumps(value, default=str)}`"
        case _:
            return str(value)


def as_markdown(text: str) -> str:
    """Text of a docstring for a page: code in single quotes, and nothing that Markdown or HTML would read otherwise."""
    text = _ROLE.sub(r"``\1``", text).replace("``", "`")
    parts = _CODE.split(text)
    return "".join(
        part if number % 2 else re.sub(r"([*\[\]])", r"\\\1", part.replace("<", "&lt;"))
        for number, part in enumerate(parts)
    )


def row(*cells: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines of a table, and an empty one."""
    return [row(*heads), "|" + "---|" * len(heads), *(row(*cells) for cells in rows), ""]


def struct_table(struct: type[msgspec.Struct], anchors: dict[Any, str] | None = None) -> list[str]:
    """Table of the fields of a Struct; names of Structs in the types link to their sections."""
    rows = []
    for field in fields_of(struct):
        words = field.kind
        for cls in field.inside:
            if anchors is not None and cls in anchors:
                words = re.sub(rf"\b{cls.__name__}\b", f"[{cls.__name__}](#{anchors[cls]})", words)
        rows.append((f"`{field.name}`", words, field.default or "required", as_markdown(field.text)))
    return table(("field", "type", "default", "meaning"), rows)


def filled(text: str) -> list[str]:
    """A paragraph as lines."""
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)
