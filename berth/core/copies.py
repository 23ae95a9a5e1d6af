"""Copies of objects that differ in some attributes."""

import copy
from typing import Any, TypeVar

T = TypeVar("T")


def copied(one: T, **changed: Any) -> T:  # noqa: ANN401  # attributes of any type
    """A shallow copy of an object with other values of some of its attributes.

        >>> from types import SimpleNamespace
        >>> copied(SimpleNamespace(a=1, b=2), b=3)
        namespace(a=1, b=3)

    Raises:
        AttributeError: It has no such attribute.
    """
    other = copy.copy(one)
    for name in changed:
        getattr(other, name)
    vars(other).update(changed)
    return other
