"""YAML texts, and values that were decoded elsewhere, as trees."""

from dataclasses import replace
from typing import Final

import yaml

from berth.formats.strict_yaml import StrictLoader
from berth.formats.utf8 import UTF8_TEXT, is_utf8
from berth.formats.yaml_tree import DocumentError, Tree

TEXT_CHARACTERS_MAX: Final = 16_000_000
"""Longest text that is accepted."""


def read_documents(text: str, error: type[DocumentError]) -> list[Tree]:
    """Documents of a YAML text that are not empty, with their numbers in the text.

    Raises:
        DocumentError: Of class ``error``: the text is too long, is not YAML, repeats a key or is nested too deep; the
            number is that of the document where reading stopped. Or a value has half a surrogate pair, which UTF-8
            cannot represent.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        raise error(
            document=0, path="", value=f"{len(text)} characters", expected=f"at most {TEXT_CHARACTERS_MAX} characters"
        )
    trees: list[Tree] = []
    number = 1
    try:
        for value in yaml.load_all(text, Loader=StrictLoader):
            if value is not None:
                tree = Tree(value, "", number, error)
                _check_texts(tree)
                trees.append(tree)
            number += 1
    except DocumentError:
        raise
    except yaml.MarkedYAMLError as broken:
        mark = broken.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise error(
            document=number, path=place, value=f"wrong: {broken.problem or broken.context}", expected="well-formed YAML"
        ) from broken
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as broken:
        # PyYAML lets Python's own errors through for tagged scalars that do not fit their tag, such as `!!int ""`.
        raise error(document=number, path="", value=str(broken).split("\n")[0], expected="well-formed YAML") from broken
    return trees


def plain_tree(value: object, path: str, error: type[DocumentError]) -> Tree:
    """A value that was decoded elsewhere, such as from JSON, as a tree.

    Args:
        value: Mappings, lists, texts, numbers, flags and nothing.
        path: Its path, with which those of its fields begin.
        error: Class of the errors that are raised.

    Raises:
        DocumentError: A text has half a surrogate pair.
    """
    tree = Tree(value, path, 0, error)
    _check_texts(tree)
    return tree


def _check_texts(top: Tree) -> None:
    """Check that all texts can be encoded in UTF-8. Values that an alias repeats are checked once.

    Raises:
        DocumentError: One cannot; the error names it.
    """
    if not _has_wrong_text(top.value):  # as nearly all: no path is needed
        return
    seen: set[int] = set()
    left = [top]
    while left:
        place = left.pop()
        value = place.value
        if isinstance(value, str):
            if not is_utf8(value):
                raise place.wrong(UTF8_TEXT)
        elif isinstance(value, dict | list) and id(value) not in seen:
            seen.add(id(value))
            left += _below(place)


def _has_wrong_text(top: object) -> bool:
    """Whether a text or a key below a value cannot be encoded in UTF-8."""
    seen: set[int] = set()
    left = [top]
    while left:
        value = left.pop()
        if isinstance(value, str):
            if not is_utf8(value):
                return True
        elif isinstance(value, dict | list) and id(value) not in seen:
            seen.add(id(value))
            left += value
            if isinstance(value, dict):
                left += value.values()
    return False


def _below(place: Tree) -> list[Tree]:
    """Values directly below a value, the last one first, without those that contain no text.

    Raises:
        DocumentError: A key cannot be encoded in UTF-8.
    """
    if isinstance(place.value, list):
        return [item for item in reversed(place.items()) if isinstance(item.value, str | dict | list)]
    found: list[Tree] = []
    for key, value in place.value.items() if isinstance(place.value, dict) else ():
        if isinstance(key, str) and not is_utf8(key):
            raise replace(place, value=key).wrong(f"a key that is {UTF8_TEXT}")
        if isinstance(value, str | dict | list):
            found.append(place.child(str(key), value))
    return found[::-1]
