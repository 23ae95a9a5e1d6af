"""Packed columns: bulk data as little-endian bytes, and sorted tables of names.

A column is ``bytes``: fixed-width unsigned little-endian integers, one per row. A name table is front-coded: each entry
has the number of bytes that it shares with the one before, then the rest; sorted node names take three or four bytes.
Readers with numpy use ``np.frombuffer(column, "<u4")``; the functions here need the standard library only.
"""

import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
NAME_BYTES_MAX: Final = 253
"""Longest name that Kubernetes allows (RFC 1123 subdomain)."""


def pack(values: Iterable[int], width: int) -> bytes:
    """Column of unsigned integers of ``width`` bytes (1, 2, 4 or 8), little-endian.

    Raises:
        OverflowError: A value is negative or does not fit.
    """
    column = array(_CODES[width], values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def unpack(column: bytes, width: int) -> list[int]:
    """Values of a column made by :func:`pack`.

    Raises:
        ValueError: The length is no multiple of ``width``.
    """
    values = array(_CODES[width])
    values.frombytes(column)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()


def pack_names(names: Sequence[str]) -> bytes:
    """Front-coded table of ``names`` in the order given; best when sorted.

    Raises:
        ValueError: A name is longer than 253 bytes.
    """
    out = bytearray()
    last = b""
    for name in names:
        raw = name.encode()
        if len(raw) > NAME_BYTES_MAX:
            raise ValueError(f"name of {len(raw)} bytes: {name[:40]!r}…, at most {NAME_BYTES_MAX} are allowed")
        shared = min(len(last), len(raw))
        while shared and raw[:shared] != last[:shared]:
            shared -= 1
        out.append(shared)
        out.append(len(raw) - shared)
        out += raw[shared:]
        last = raw
    return bytes(out)


def unpack_names(table: bytes, *, most: int = sys.maxsize) -> list[str]:
    """Names of a table made by :func:`pack_names`.

    Args:
        table: The table.
        most: Most names that it may have: two bytes of a table are a name of 253.

    Raises:
        ValueError: The table is cut off, has more names, an entry shares more than the one before it has, or is no
            name.
    """
    names: list[str] = []
    last = b""
    position = 0
    end = len(table)
    while position < end:
        if position + 2 > end:
            raise ValueError("name table is cut off")
        if len(names) >= most:
            raise ValueError(f"name table has more than {most} names")
        shared, rest = table[position], table[position + 1]
        position += 2
        if shared > len(last) or position + rest > end or shared + rest > NAME_BYTES_MAX:
            raise ValueError("name table is damaged")
        last = last[:shared] + table[position : position + rest]
        position += rest
        try:
            names.append(last.decode())
        except UnicodeDecodeError as error:
            raise ValueError(f"name table is damaged: entry {len(names)} is not UTF-8") from error
    return names


def offsets(counts: Iterable[int]) -> list[int]:
    """Start of each of the consecutive runs of lengths ``counts``; one more entry for the end."""
    return [0, *accumulate(counts)]
