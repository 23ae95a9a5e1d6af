"""Damage to inputs, from a source of random numbers: the same numbers give the same damage."""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import msgspec

from tests.decoders.decoder import INPUT_BYTES_MAX, Form

Tree = Any
"""A value of JSON or msgpack."""
NUMBERS: Final[tuple[str, ...]] = (
    "0", "-0", "-1", "1", "63", "64", "255", "256", "32767", "32768", "65535", "65536", "2147483647", "2147483648",
    "4294967296", "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551616", "1e3", "1e-3",
    "1e30", "1e31", "1e308", "1e999", "-1e999", "1E9999999999", "NaN", "Infinity", ".inf", "-.inf", "0x10", "0o17", "0b1",
    "1_000", "1:30", "190:20:30", "٣", "+1", "1.", ".5", "1.5", "--1", "9" * 30, "9" * 400, "9" * 5_000, "1" + "0" * 4_400,
    "0." + "1" * 5_000, "1" + ":59" * 2_000,
)  # fmt: skip
"""Texts of numbers. Python refuses to convert more than 4,300 digits."""
TEXTS: Final[tuple[str, ...]] = (
    "", " ", "\x00", "\n", "\t", "null", "~", "true", "no", "-", "--", "a", "A", "é", "\u2028", "\U0001f600", "\ufeff", "\x1b[31m",
    "x" * 64, "x" * 254, "x" * 5_000, "Ascend910-0", "Ascend910-64", "npu-99", "In", "Gt", "Exists", "*", "%s", "{index}",
    "../../etc", "berth/v1", "500m", "16Gi", "1h30m", "-1", "2001-01-01", "2001-01-01T00:00:00Z", "!!python/none", "&a", "*a",
)  # fmt: skip
_NESTINGS: Final = (16, 65, 1_100, 20_000)
_PIECES: Final[tuple[bytes, ...]] = (
    b"\x00", b"\xff", b"\xfe\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r\n", b"\n", b"\t", b" ", b"\"", b"'", b"\\", b"\\u0000",
    b"\\ud800", b"\\udc00\\ud800", b"\\ud83d\\ude00", b"{", b"}", b"[", b"]", b",", b":", b"=", b";", b"#", b"%", b"@", b"`", b"---\n",
    b"...\n", b"&a ", b"*a", b"<<: *a", b"!!int ", b"!!binary ", b"!!float ", b"!!timestamp ", b"!!set ", b"!!omap ", b"!!python/object:os.x ",
    b"? ", b"| \n", b"> \n", b"\x80", b"\x90", b"\xc0", b"\xc1", b"\xc4\xff", b"\xc6\xff\xff\xff\xff", b"\xd9\xff", b"\xdb\xff\xff\xff\xff",
    b"\xdc\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", b"\xd3\x80\0\0\0\0\0\0\0",
    b"\xcb\x7f\xf0\0\0\0\0\0\0", b"\xc7\x08\x05", b"\xd6\xff\0\0\0\0",
)  # fmt: skip


def mutated(rng: Random, seeds: Sequence[bytes], form: Form) -> bytes:
    """One of the seeds after one to five pieces of damage, at most 64 KiB."""
    data = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        data = rng.choice(_DAMAGES[form])(rng, data, seeds)[:INPUT_BYTES_MAX]
    return data


Damage = Callable[[Random, bytes, Sequence[bytes]], bytes]


def _range(rng: Random, length: int) -> tuple[int, int]:
    """A part of so many bytes, mostly a short one."""
    first = rng.randint(0, length)
    most = rng.choice((1, 4, 16, 256, length))
    return first, min(length, first + rng.randint(0, most))


def _flip(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _cut(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    first, end = _range(rng, len(data))
    return data[:first] + data[end:]


def _truncate(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: rng.randint(0, len(data))]


def _repeat(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    first, end = _range(rng, len(data))
    times = min(rng.choice((1, 1, 2, 3, 100, 5_000)), INPUT_BYTES_MAX // max(1, end - first))
    return data[:first] + data[first:end] * (times + 1) + data[end:]


def _insert(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    first, end = _range(rng, len(data))
    if rng.random() < 0.5:
        end = first
    return data[:first] + rng.choice(_PIECES) + data[end:]


def _splice(rng: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    other = rng.choice(seeds)
    first, end = _range(rng, len(other))
    at, till = _range(rng, len(data))
    return data[:at] + other[first:end] + data[till:]


def _nest(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    depth = rng.choice(_NESTINGS)
    opened, closed = rng.choice(
        ((b"[", b"]"), (b'{"a":', b"}"), (b"{a: ", b"}"), (b"\x91", b""), (b"\x81\xa1a", b""), (b"- ", b""))
    )
    first, end = _range(rng, len(data))
    inside = data[first:end] if rng.random() < 0.5 else b"1"
    return data[:first] + opened * depth + inside + closed * depth + data[end:]


def _tokens(data: bytes) -> list[tuple[int, int]]:
    """Places of words and numbers in a text."""
    found: list[tuple[int, int]] = []
    start = -1
    for at, byte in enumerate(data):
        if chr(byte).isalnum() or byte in b"._+-/":
            start = at if start < 0 else start
        elif start >= 0:
            found.append((start, at))
            start = -1
    return [*found, (start, len(data))] if start >= 0 else found


def _token(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    places = _tokens(data[: 16 << 10])
    if not places:
        return data
    first, end = rng.choice(places)
    digits = [place for place in places if data[place[0] : place[1]].strip(b".-+").isdigit()]
    if digits and rng.random() < 0.5:
        first, end = rng.choice(digits)
    other = rng.choice(places)
    words = rng.choice((NUMBERS, TEXTS))
    new = data[other[0] : other[1]] if rng.random() < 0.2 else rng.choice(words).encode()
    return data[:first] + new + data[end:]


def _line(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            lines.insert(at, lines[other])
        case 1:
            del lines[at]
        case 2:
            lines[at] = b"  " + lines[at]
        case _:
            lines[at], lines[other] = lines[other], lines[at]
    return b"\n".join(lines)


def _value(rng: Random) -> Tree:  # noqa: PLR0911 - one for each kind
    """A value that is mostly not expected."""
    match rng.randrange(10):
        case 0:
            return None
        case 1:
            return rng.random() < 0.5
        case 2 | 3:
            return rng.choice(
                (0, -1, 1, 2, 7, 63, 64, 255, 256, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 53, (1 << 63) - 1, 1 << 63,
                 (1 << 64) - 1, -(1 << 31), -(1 << 63))
            )  # fmt: skip
        case 4:
            return rng.choice((0.5, -0.5, 1e300, 1e-300, float("inf"), float("nan"), 8.0))
        case 5 | 6:
            return rng.choice(rng.choice((TEXTS, NUMBERS)))
        case 7:
            return rng.choice(([], {}, [None], [[]], {"a": None}, {"": ""}, [{}]))
        case 8:
            return bytes(rng.randrange(256) for _ in range(rng.choice((1, 2, 3, 4, 8, 16, 40))))
        case _:
            return [rng.choice((0, "", None))] * rng.choice((2, 100, 3_000))


def _places(tree: Tree) -> list[tuple[Tree, Any]]:
    """Every place in a tree: its container, and its key or index."""
    found: list[tuple[Tree, Any]] = []
    left = [tree]
    while left and len(found) < 20_000:
        one = left.pop()
        keys: Sequence[Any] = list(one) if isinstance(one, dict) else range(len(one))
        for key in keys:
            found.append((one, key))
            if isinstance(one[key], dict | list):
                left.append(one[key])
    return found


def _changed(rng: Random, value: Tree) -> Tree:  # noqa: PLR0911 - likewise
    """A value that is like another, and not quite."""
    match value:
        case bool():
            return not value
        case int():
            return value + rng.choice((-1, 1, 1 << 8, 1 << 16, 1 << 32))
        case bytes() if value:
            return _cut(rng, value, ()) if rng.random() < 0.5 else _flip(rng, value, ())
        case str() if value:
            at = rng.randrange(len(value))
            new = rng.choice((*TEXTS, *NUMBERS))
            return rng.choice((value[:at], value + value, value[:at] + new + value[at + 1 :], value.upper(), new))
        case list() if value:
            return rng.choice((value[:-1], value + value, value[::-1], [value], value[0]))
        case dict() if value:
            key = rng.choice(sorted(value, key=str))
            return rng.choice(
                ({k: v for k, v in value.items() if k != key}, {**value, key + "x": value[key]}, [value], value[key])
            )
        case _:
            pass
    return _value(rng)


def _tree(rng: Random, tree: Tree) -> Tree:
    top = [tree]
    container, key = rng.choice(_places(top))
    match rng.randrange(4):
        case 0:
            container[key] = _value(rng)
        case 1 if isinstance(container, dict):
            new = rng.choice(TEXTS)
            container[new] = container.pop(key)
        case 2:
            _, (other, at) = rng.choice(_places(top)), rng.choice(_places(top))
            container[key] = json.loads("null") if other is container else other[at]
        case _:
            container[key] = _changed(rng, container[key])
    return top[0]


def _json(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    try:
        tree = json.loads(data.decode())
        return json.dumps(_tree(rng, tree), default=lambda value: bytes(value).decode("latin-1")).encode()
    except (ValueError, RecursionError, MemoryError):
        return _token(rng, data, ())


def _inner_json(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Damage to a text of JSON inside a text of JSON, as annotations and ConfigMaps have it."""
    try:
        tree = json.loads(data.decode())
        places = [
            (box, key) for box, key in _places([tree]) if isinstance(box[key], str) and box[key][:1] in {"{", "["}
        ]
        if not places:
            return _json(rng, data, ())
        box, key = rng.choice(places)
        damage = rng.choice((_json, _token, _insert, _nest, _truncate, _repeat))
        box[key] = damage(rng, box[key].encode("utf-8", "surrogatepass"), ()).decode("utf-8", "replace")
        return json.dumps(tree).encode()
    except (ValueError, RecursionError, MemoryError):
        return _token(rng, data, ())


def _msgpack(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Damage to a message in its envelope, or to any other msgpack."""
    try:
        tree = msgspec.msgpack.decode(data, strict=False)
        return msgspec.msgpack.encode(_tree(rng, tree))
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, TypeError):
        return _flip(rng, data, ())


_BYTES: Final[tuple[Damage, ...]] = (_flip, _flip, _cut, _truncate, _repeat, _insert, _splice, _nest)
_TEXT: Final[tuple[Damage, ...]] = (
    _flip,
    _cut,
    _truncate,
    _repeat,
    _insert,
    _insert,
    _splice,
    _nest,
    _token,
    _token,
    _token,
    _line,
    _line,
)
_DAMAGES: Final[dict[Form, tuple[Damage, ...]]] = {
    "bytes": _BYTES,
    "text": _TEXT,
    "json": (*_TEXT, *[_json] * 8, *[_inner_json] * 8),
    "msgpack": (*_BYTES, *[_msgpack] * 12),
}
