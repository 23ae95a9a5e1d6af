"""CheckCode: the checksum of a report in a ConfigMap.

It is the SHA-256 of one object in the compact JSON of Go's ``encoding/json``. The writer takes the sum of all fields
that its release has; a reader that rebuilds the object has only those that it knows. So a sum is right if it fits the
object as it was sent, or the known fields alone: fields of another release make no report unreadable.

Source: docs/reference/kubernetes.md, "CheckCode".
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from berth.formats.ascend.report_error import ReportError

GoValue: TypeAlias = (
    "bool | int | str | list[GoValue] | tuple[GoValue, ...] | Mapping[str, GoValue] | msgspec.Struct | None"
)
"""Values that can be encoded. None is a nil slice or map in Go; the sum never has fractions."""

_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED: Final = re.compile('["\\\\\x00-\x1f<>&\u2028\u2029]')
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "\ufffd"
_WORDS: Final = {None: "null", True: "true", False: "false"}


class _Fraction(msgspec.Struct, frozen=True):
    """A number that is not whole, as it was written."""

    text: str


_AS_SENT: Final = msgspec.json.Decoder(float_hook=_Fraction)


def check_code(value: GoValue) -> str:
    """Lower-case hexadecimal SHA-256 of the JSON of ``value`` as Go writes it."""
    return code_of(go_json(value).encode())


def code_of(text: bytes) -> str:
    """Lower-case hexadecimal SHA-256 of the JSON of an object."""
    return hashlib.sha256(text).hexdigest()


def verify(code: str, sent: bytes, known: Iterable[GoValue], *, field: str, maps: Collection[str] = ()) -> None:
    """Check a CheckCode.

    Args:
        code: The code.
        sent: JSON of the object as it was sent.
        known: The object of its known fields alone; several if its releases differ in them. The first is for the error.
        field: Path of the code, for errors.
        maps: Members of the object that are maps in Go.

    Raises:
        ReportError: The code fits neither the known fields nor the object as it was sent.
    """
    codes = [check_code(value) for value in known]
    if code not in codes and not fits_as_sent(code, sent, maps=maps):
        raise ReportError(field=field, value=code, expected=f"{codes[0]!r} for this content")


def fits_as_sent(code: str, sent: bytes, *, maps: Collection[str] = ()) -> bool:
    """Whether a code is the sum of an object with all its fields; arguments as in :func:`verify`."""
    return any(code_of(form) == code for form in _sent_forms(sent, maps))


def as_sent(text: bytes) -> str:
    """Compact JSON of an object as Go writes it, its fields in the order of the text.

    Raises:
        msgspec.MsgspecError: It is not JSON.
    """
    return _resent(_AS_SENT.decode(text))


def _sent_forms(sent: bytes, maps: Collection[str]) -> Iterator[bytes]:
    """Forms in which the sum of a sent object may have been taken.

    Its bytes; as Go writes it, with the fields in the order of the text; and with all keys sorted, as Go writes a map.
    """
    yield sent
    try:
        tree = _AS_SENT.decode(sent)
        forms = [_resent(tree), _resent(tree, maps), _resent(tree, is_map=True)]
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return  # it is nested too deeply
    yield from (form.encode() for form in forms)


def _resent(tree: object, maps: Collection[str] = (), *, is_map: bool = False) -> str:
    """Compact JSON of a decoded tree as Go writes it.

    Args:
        tree: The tree, with :class:`_Fraction` for numbers that are not whole.
        maps: Keys of its objects that are maps.
        is_map: All objects are maps; their keys are sorted.
    """
    match tree:
        case dict():
            members = sorted(tree.items()) if is_map else tree.items()
            texts = (f"{_string(key)}:{_resent(item, is_map=is_map or key in maps)}" for key, item in members)
            return f"{{{','.join(texts)}}}"
        case list():
            return f"[{','.join(_resent(item, is_map=is_map) for item in tree)}]"
        case str():
            return _string(tree)
        case _Fraction():
            return tree.text
        case bool() | None:
            return _WORDS[tree]
        case _:
            return str(tree)  # a whole number


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
