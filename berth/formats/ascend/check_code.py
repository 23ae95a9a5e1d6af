"""CheckCode: the checksum of a report in a ConfigMap.

It is the SHA-256 of one object in the compact JSON of Go's ``encoding/json``. The reader rebuilds that object from the
fields that it knows; unknown fields are not part of the sum.

Source: docs/reference/kubernetes.md, "CheckCode".
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

GoValue: TypeAlias = (
    "bool | int | str | list[GoValue] | tuple[GoValue, ...] | Mapping[str, GoValue] | msgspec.Struct | None"
)
"""Values that can be encoded. None is a nil slice or map in Go; the sum never has fractions."""

_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED: Final = re.compile('["\\\\\x00-\x1f<>&\u2028\u2029]')
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "\ufffd"
_WORDS: Final = {None: "null", True: "true", False: "false"}


def check_code(value: GoValue) -> str:
    """Lower-case hexadecimal SHA-256 of the JSON of ``value`` as Go writes it."""
    return hashlib.sha256(go_json(value).encode()).hexdigest()


def go_json(value: GoValue) -> str:
    """Compact JSON as Go's ``encoding/json`` writes it.

    Fields of a struct come in the order of their declaration, keys of a map sorted by their bytes. ``<``, ``>``, ``&``,
    U+2028 and U+2029 are escaped; other characters beyond ASCII are not; half a surrogate pair, which is invalid
    in Go, becomes U+FFFD. Backspace and form feed are written as before Go 1.22, with ``u`` and four digits.

    Raises:
        TypeError: The value, or a part of it, has a type that is not allowed.
    """
    match value:
        case None | bool():
            return _WORDS[value]
        case int():
            return str(int(value))
        case str():
            return _string(value)
        case msgspec.Struct():
            fields = msgspec.structs.fields(value)
            return _object([(field.encode_name, getattr(value, field.name)) for field in fields])
        case Mapping():
            return _object([(key, value[key]) for key in sorted(value)])  # by code points, as the bytes of UTF-8 are
        case list() | tuple():
            return f"[{','.join(map(go_json, value))}]"
    raise TypeError(f"{type(value).__name__} has no place in a sum: {value!r}")


def _object(members: list[tuple[str, GoValue]]) -> str:
    return f"{{{','.join(f'{_string(key)}:{go_json(item)}' for key, item in members)}}}"


def _string(text: str) -> str:
    safe = _SURROGATE.sub(_REPLACEMENT, text)
    return f'"{_ESCAPED.sub(_escape, safe)}"'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return _SHORT.get(char) or f"\\u{ord(char):04x}"
