"""Which objects on an API server are nodesim's own: it marks what it makes, and leaves what others have made. Pure.

A cluster in which nodesim is tried may have real nodes, and controllers of the same kinds: neither the name nor the
labels of an object say whose it is.
"""

from collections.abc import Mapping
from typing import Any, Final

from berth.formats.kubernetes.lean import Lean, Meta

MADE_BY: Final = "berth/made-by"
"""Annotation of each object that nodesim makes."""
_NODESIM: Final = "nodesim"


class Owned(Lean, frozen=True):
    """An object of any kind, of which only the metadata is read."""

    metadata: Meta = Meta()


def marked(body: Mapping[str, Any], *, uid: str = "") -> dict[str, Any]:
    """Body of an object with the mark, and with the uid that the object must have; empty for any."""
    metadata = body.get("metadata") or {}
    own = {"annotations": {**(metadata.get("annotations") or {}), MADE_BY: _NODESIM}} | ({"uid": uid} if uid else {})
    return {**body, "metadata": {**metadata, **own}}


def is_made(meta: Meta) -> bool:
    """Whether nodesim has made an object."""
    return meta.annotation(MADE_BY) == _NODESIM
