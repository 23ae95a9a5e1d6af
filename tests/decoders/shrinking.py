"""Making a failing input shorter: parts are left out, and bytes made plain, as long as it fails in the same way."""

from collections.abc import Callable
from typing import Final

ATTEMPTS_MAX: Final = 4_000
_PLAIN: Final = (b"0", b"a")


def shortest(data: bytes, fails: Callable[[bytes], bool], *, attempts: int = ATTEMPTS_MAX) -> bytes:
    """A short input that still fails.

    Args:
        data: An input that fails.
        fails: Whether another one does, in the same way.
        attempts: Most calls of it.
    """
    left = attempts

    def still(other: bytes) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(other)

    size = max(len(data) // 2, 1)
    while left > 0:
        before = data
        start = 0
        while start < len(data) and left > 0:
            without = data[:start] + data[start + size :]
            if still(without):
                data = without
            else:
                start += size
        if size > 1:
            size //= 2
        elif data == before:
            break
    return _plainer(data, still)


def _plainer(data: bytes, still: Callable[[bytes], bool]) -> bytes:
    for at in range(len(data)):
        for plain in _PLAIN:
            other = data[:at] + plain + data[at + 1 :]
            if data[at : at + 1] not in _PLAIN and still(other):
                data = other
                break
    return data
