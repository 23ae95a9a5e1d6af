"""Base class of the JSON shapes for programs."""

from typing import Annotated

import msgspec
from msgspec import Meta

Text = Annotated[str, Meta(max_length=1_000)]
Whole = Annotated[int, Meta(ge=0)]


class Shape(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A JSON object. Fields are added with defaults; none is renamed, removed or given another type."""


class Sent(Shape, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object that programs send. A field that this release does not know is refused by its name."""


class Request(Sent, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request of a program."""


class Reply(Shape, frozen=True, kw_only=True):
    """Reply to a request. ``ok`` tells whether it was carried out."""

    ok: bool = True
