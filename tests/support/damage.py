"""Damage to messages: the values of a tree replaced, cut, doubled or left out, so that it still is msgpack."""

from typing import TypeAlias

import msgspec
from hypothesis import strategies as st

Tree: TypeAlias = "list[Tree] | dict[str, Tree] | bytes | str | int | float | bool | None"
"""A msgpack value. Maps of the messages have texts as keys."""
_VALUES: st.SearchStrategy[Tree] = (
    st.none()
    | st.booleans()
    | st.integers(-2, 300)
    | st.sampled_from([1 << 31, 1 << 62, (1 << 64) - 1, -(1 << 63)])
    | st.binary(max_size=12)
    | st.text(max_size=4)
    | st.just([])
    | st.just({})
)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """A msgpack value of which one to three pieces are something else."""
    tree: list[Tree] = [msgspec.msgpack.decode(data)]
    for _ in range(draw(st.integers(1, 3))):
        _damage(draw, tree)
    return msgspec.msgpack.encode(tree[0]) if tree else b""


def _damage(draw: st.DrawFn, tree: list[Tree]) -> None:
    place: list[Tree] | dict[str, Tree] = tree
    while place:
        if isinstance(place, list):
            at = draw(st.integers(0, len(place) - 1))
            inner = place[at]
            if _is_end(draw, inner):
                place[at] = draw(_VALUES | st.one_of(_changed(inner)))
                return
        else:
            key = draw(st.sampled_from(sorted(place)))
            inner = place[key]
            if _is_end(draw, inner):
                place[key] = draw(_VALUES | st.one_of(_changed(inner)))
                return
        assert isinstance(inner, list | dict)
        place = inner


def _is_end(draw: st.DrawFn, inner: Tree) -> bool:
    return not isinstance(inner, list | dict) or not inner or not draw(st.integers(0, 5))


def _changed(value: Tree) -> list[st.SearchStrategy[Tree]]:
    """What is like a value, and not quite."""
    if isinstance(value, bytes | str | list) and value:
        cut = st.integers(0, len(value)).map(lambda end: value[:end])
        twice = value + value  # type: ignore[operator]  # both are of one kind
        return [cut, st.just(twice), *([_flipped(value)] if isinstance(value, bytes) else [])]
    if isinstance(value, int) and not isinstance(value, bool):
        return [
            st.sampled_from([value - 1, value + 1, -value]).map(
                lambda number: max(-(1 << 63), min(number, (1 << 64) - 1))
            )
        ]
    return []


def _flipped(value: bytes) -> st.SearchStrategy[bytes]:
    return st.tuples(st.integers(0, len(value) - 1), st.integers(0, 7)).map(
        lambda at: value[: at[0]] + bytes([value[at[0]] ^ 1 << at[1]]) + value[at[0] + 1 :]
    )
