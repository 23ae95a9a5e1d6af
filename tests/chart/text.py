"""YAML with expressions of Helm in it: a tree as the text of a template, and values as a file with comments."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, Final

import yaml

Tree = dict[str, Any]

_WIDE: Final = 1_000_000


@dataclass(frozen=True)
class Value:
    """A text or a number that an expression gives."""

    expression: str


@dataclass(frozen=True)
class Block:
    """A mapping or a list that an expression gives."""

    expression: str


@dataclass(frozen=True)
class Items:
    """More items of a list, or more members of a mapping (its key does not count there); none if there are none.

    Attributes:
        expression: Gives a list or a mapping.
    """

    expression: str


@dataclass(frozen=True)
class Given:
    """A member of a mapping, or an item of a list, that is there if a condition holds.

    Attributes:
        head: ``if`` or ``with`` and an expression; within ``with`` a dot is the value of the expression.
        node: What is there.
    """

    head: str
    node: "Node"


Node = Any
"""A tree of YAML, in which the types above may stand in place of values, members and items."""


def template(node: Node) -> str:
    """Text of a template."""
    return "\n".join(_of_mapping(node, 0)) + "\n"


def _of_mapping(node: Mapping[str, Node], depth: int) -> Iterator[str]:
    for head, members in groupby(node.items(), lambda member: _head(member[1])):
        yield from _guarded(head, depth, (_member(key, _inner(value), depth) for key, value in members))


def _of_list(node: list[Node], depth: int) -> Iterator[str]:
    for head, items in groupby(node, _head):
        yield from _guarded(head, depth, (_item(_inner(value), depth) for value in items))


def _head(node: Node) -> str:
    return node.head if isinstance(node, Given) else ""


def _inner(node: Node) -> Node:
    return node.node if isinstance(node, Given) else node


def _guarded(head: str, depth: int, parts: Iterable[Iterable[str]]) -> Iterator[str]:
    """Neighbours with one condition have it once."""
    if head:
        yield f"{' ' * depth}{{{{- {head} }}}}"
    yield from chain.from_iterable(parts)
    if head:
        yield f"{' ' * depth}{{{{- end }}}}"


def _member(key: str, node: Node, depth: int) -> Iterator[str]:
    start = f"{' ' * depth}{_scalar(key)}:"
    match node:
        case dict() if node:
            yield start
            yield from _of_mapping(node, depth + 2)
        case list() if node:
            yield start
            yield from _of_list(node, depth + 2)
        case Block(expression):
            yield start
            yield _block(expression, depth + 2)
        case Items(expression):
            yield from _more(expression, depth)
        case _:
            yield f"{start} {_scalar(node)}"


def _item(node: Node, depth: int) -> Iterator[str]:
    match node:
        case dict() if node:
            first, *others = _of_mapping(node, depth + 2)
            yield f"{' ' * depth}- {first.lstrip()}"
            yield from others
        case Items(expression):
            yield from _more(expression, depth)
        case _:
            yield f"{' ' * depth}- {_scalar(node)}"


def _more(expression: str, depth: int) -> Iterator[str]:
    yield f"{' ' * depth}{{{{- with {expression} }}}}"
    yield _block("toYaml .", depth)
    yield f"{' ' * depth}{{{{- end }}}}"


def _block(expression: str, depth: int) -> str:
    return f"{' ' * depth}{{{{- {expression} | nindent {depth} }}}}"


def _scalar(node: Node) -> str:
    match node:
        case Value(expression):
            return f"{{{{ {expression} }}}}"
        case "":
            return '""'
        case None | str() | bool() | int() | {} | []:
            first, *_ = yaml.safe_dump(node, width=_WIDE, default_flow_style=True).splitlines()
            return str(first)
        case _:
            raise TypeError(f"{node!r} cannot be written into a template")


def document(tree: Tree, about: Mapping[str, str], leaves: Collection[str]) -> str:
    """Text of a file of values.

    Args:
        tree: The values.
        about: Comment above a value or a group of values, by its path with dots between the names.
        leaves: Paths of values that are one value, also if they are mappings.
    """
    text = "\n".join(_commented(tree, about, leaves, "")).lstrip("\n") + "\n"
    assert yaml.safe_load(text) == tree, "the text of the values means something else"
    return text


def _commented(tree: Tree, about: Mapping[str, str], leaves: Collection[str], prefix: str) -> Iterator[str]:
    indent = "  " * prefix.count(".")
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if not prefix:
            yield ""
        for line in about.get(path, "").splitlines():
            yield f"{indent}# {line}"
        start = f"{indent}{_scalar(key)}:"
        match value:
            case dict() if path not in leaves:
                yield start
                yield from _commented(value, about, leaves, f"{path}.")
            case str() if value.endswith("\n"):
                yield f"{start} |"
                yield from _indented(value, indent)
            case dict() | list() if value:
                yield start
                yield from _indented(_tree(value), indent)
            case _:
                yield f"{start} {_scalar(value)}"


def _tree(value: Tree | list[Any]) -> str:
    """Text of a mapping or a list, with a line for each member or item."""
    is_flat = isinstance(value, dict) and not any(isinstance(one, dict | list) for one in value.values())
    return str(yaml.safe_dump(value, sort_keys=False, width=_WIDE, default_flow_style=False if is_flat else None))


def _indented(text: str, indent: str) -> Iterator[str]:
    return (f"{indent}  {line}" if line else "" for line in text.splitlines())
