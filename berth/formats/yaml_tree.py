"""YAML documents as trees whose values have their path, which every error names. ``yaml_documents`` reads them."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from berth.formats.shortened import shortened

MISSING: Final = "missing"
"""Value of an error about a field that is not there."""
_STEP: Final = re.compile(r"\.?([A-Za-z0-9_-]+)|\[(\d+)\]|\['([^']*)'\]")
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_CHARACTERS_MAX: Final = 63
_NAME_CHARACTERS_MAX: Final = 253


class DocumentError(ValueError):
    """An invalid document.

    Attributes:
        document: Number of the document in the text, from 1; 0 for the whole text.
        path: Field, such as ``spec.tasks[0].replicas``; empty for the document itself.
        value: The value, shortened.
        expected: Valid values.
    """

    def __init__(self, *, document: int, path: str, value: str, expected: str) -> None:
        place = f"document {document}" if document else "text"
        super().__init__(f"{place}: {path or '(top)'}: is {value}, expected {expected}")
        self.document = document
        self.path = path
        self.value = value
        self.expected = expected


def nearest(word: str, known: Iterable[str]) -> str:
    """Text with the known word nearest to ``word`` and then all known words, for ``expected`` of an error."""
    words = sorted(known)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    listed = f"one of {', '.join(words)}"
    return f"{close[0]!r}? ({listed})" if close else listed


def shown(value: object) -> str:
    """Short text of a value for an error."""
    match value:
        case None:
            return MISSING
        case dict():
            text = "a mapping"
        case list():
            text = f"a list of {len(value)}"
        case _:
            text = shortened(value)
    return text


@dataclass(frozen=True, slots=True)
class Tree:
    """A value of a YAML text with its path.

    Attributes:
        value: Plain value: mapping, list, text, number, flag or nothing.
        path: Path of the field in the document.
        document: Number of the document, from 1.
        error: Class of the errors that are raised.
    """

    value: object
    path: str
    document: int
    error: type[DocumentError]

    def wrong(self, expected: str) -> DocumentError:
        """Error about this value, to be raised."""
        return self.error(document=self.document, path=self.path, value=shown(self.value), expected=expected)

    def child(self, key: str, value: object) -> "Tree":
        """Another value, at the path of field ``key``."""
        step = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f"[{key!r}]"
        joint = "." if self.path and not step.startswith("[") else ""
        return Tree(value, f"{self.path}{joint}{step}", self.document, self.error)

    def mapping(self) -> dict[str, object]:
        """The value as a mapping.

        Raises:
            DocumentError: It is not a mapping, or a key is not text.
        """
        if not isinstance(self.value, dict):
            raise self.wrong("a mapping")
        for key in self.value:
            if not isinstance(key, str):
                raise self.child(str(key), key).wrong("a key that is text; put it in quotes")
        return self.value

    def find(self, key: str) -> "Tree | None":
        """Field ``key``, or None when it is missing or null."""
        value = self.mapping().get(key)
        return None if value is None else self.child(key, value)

    def dig(self, *keys: str) -> "Tree | None":
        """Nested field, or None if it or a parent is missing or null."""
        place: Tree | None = self
        for key in keys:
            place = place.find(key) if place is not None else None
        return place

    def need(self, key: str, expected: str) -> "Tree":
        """Field ``key``.

        Raises:
            DocumentError: It is missing or null.
        """
        found = self.find(key)
        if found is None:
            raise self.child(key, None).wrong(expected)
        return found

    def fields(self) -> list[tuple[str, "Tree"]]:
        """Keys and fields of the mapping, in their order, without null fields."""
        return [(key, self.child(key, value)) for key, value in self.mapping().items() if value is not None]

    def items(self) -> "list[Tree]":
        """Entries of the value as a list.

        Raises:
            DocumentError: It is not a list.
        """
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return [
            Tree(value, f"{self.path}[{index}]", self.document, self.error) for index, value in enumerate(self.value)
        ]

    def items_of(self, key: str) -> "list[Tree]":
        """Entries of the list in field ``key``; none when it is missing."""
        found = self.find(key)
        return [] if found is None else found.items()

    def only(self, known: Iterable[str]) -> None:
        """Check that the mapping has only ``known`` fields.

        Raises:
            DocumentError: It has another; the error names the nearest known field.
        """
        names = set(known)
        for key, value in self.mapping().items():
            if key not in names:
                child = self.child(key, value)
                raise self.error(
                    document=self.document, path=child.path, value="an unknown field", expected=nearest(key, names)
                )

    def text(self, expected: str = "text") -> str:
        """The value as a text that is not empty.

        Raises:
            DocumentError: It is not such a text.
        """
        if not isinstance(self.value, str) or not self.value:
            raise self.wrong(expected if isinstance(self.value, str) else f"{expected}; put it in quotes")
        return self.value

    def whole(self, *, least: int, most: int) -> int:
        """The value as a whole number from ``least`` to ``most``.

        Raises:
            DocumentError: It is not such a number.
        """
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not least <= self.value <= most:
            raise self.wrong(f"a whole number from {least} to {most}")
        return self.value

    def flag(self) -> bool:
        """The value as ``true`` or ``false``.

        Raises:
            DocumentError: The value is neither ``true`` nor ``false``.
        """
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def choice(self, known: Iterable[str]) -> str:
        """The value as one of the ``known`` words.

        Raises:
            DocumentError: It is another; the error names the nearest.
        """
        words = list(known)
        if not isinstance(self.value, str) or self.value not in words:
            raise self.wrong(nearest(str(self.value), words))
        return self.value

    def strings(self) -> dict[str, str]:
        """Mapping of text to text, such as labels; a null value counts as empty text.

        Raises:
            DocumentError: A key or value is not text.
        """
        out: dict[str, str] = {}
        for key, value in self.mapping().items():
            if value is not None and not isinstance(value, str):
                raise self.child(key, value).wrong("text; put it in quotes")
            out[key] = value or ""
        return out

    def strings_of(self, key: str) -> dict[str, str]:
        """Mapping of text to text in field ``key``; empty when it is missing."""
        found = self.find(key)
        return {} if found is None else found.strings()

    def dns_label(self) -> str:
        """The value as a name of one part, such as that of a namespace.

        Raises:
            DocumentError: It is not an RFC 1123 label.
        """
        value = self.value
        if not isinstance(value, str) or len(value) > _LABEL_CHARACTERS_MAX or not _DNS_LABEL.fullmatch(value):
            raise self.wrong(
                f"an RFC 1123 label: at most {_LABEL_CHARACTERS_MAX} lower-case letters, digits and inner '-'"
            )
        return value

    def dns_name(self) -> str:
        """The value as a name of parts joined by dots, such as that of a node.

        Raises:
            DocumentError: It is not an RFC 1123 subdomain.
        """
        value = self.value
        if not isinstance(value, str) or not is_dns_name(value):
            raise self.wrong(
                f"an RFC 1123 name: at most {_NAME_CHARACTERS_MAX} lower-case letters, digits, inner '-' and '.'"
            )
        return value


def without(tree: Tree, path: str) -> Tree | None:
    """The tree without one of its fields; None if the path is none of a field of a mapping in it.

    Args:
        tree: A whole document.
        path: Path of the field, as errors have it.
    """
    steps = list(_STEP.finditer(path))
    if not steps or "".join(step[0] for step in steps) != path:
        return None
    keys = [int(step[2]) if step[2] else step[1] or step[3] for step in steps]
    value = _without(tree.value, keys)
    return None if value is None else replace(tree, value=value)


def _without(value: object, keys: Sequence[str | int]) -> object | None:
    """A value without a field below it; None if there is no such field."""
    first, *rest = keys
    if isinstance(value, dict) and first in value:
        if not rest:
            return {key: one for key, one in value.items() if key != first}
        below = _without(value[first], rest)
        return None if below is None else value | {first: below}
    if isinstance(value, list) and isinstance(first, int) and first < len(value) and rest:
        below = _without(value[first], rest)
        return None if below is None else [*value[:first], below, *value[first + 1 :]]
    return None


def is_dns_name(name: str) -> bool:
    """Whether ``name`` is an RFC 1123 subdomain of at most 253 characters."""
    return len(name) <= _NAME_CHARACTERS_MAX and all(_DNS_LABEL.fullmatch(part) for part in name.split("."))


def merged(*layers: Mapping[str, str]) -> dict[str, str]:
    """Union of mappings in which earlier layers take precedence."""
    out: dict[str, str] = {}
    for layer in layers:
        for key, value in layer.items():
            out.setdefault(key, value)
    return out
