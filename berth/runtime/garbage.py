"""Garbage collection of a process that must not pause: a full collection of millions of objects takes seconds."""

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, Protocol

_YOUNG: Final = 0


class Garbage(Protocol):
    """Collection of what a process no longer uses; an event loop that several processes share has one of its own."""

    def short_collections(self) -> AbstractContextManager[None]:
        """Keep collections short while a block runs."""

    def collect(self) -> None:
        """Collect everything, now."""


class ProcessGarbage:
    """Garbage of this process."""

    def short_collections(self) -> AbstractContextManager[None]:
        """See :func:`short_collections`."""
        return short_collections()

    def collect(self) -> None:
        """See :func:`gc.collect`."""
        gc.collect()


class SharedGarbage:
    """Garbage of a process that several services share: nothing is left out of collections.

    A service that lets another one's objects be left out would keep cycles among them for good.
    """

    def short_collections(self) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def collect(self) -> None:
        """See :func:`gc.collect`."""
        gc.collect()


@contextmanager
def short_collections() -> Iterator[None]:
    """Keep collections short while the block runs: what survives one is left out of all later ones.

    It is frozen (:func:`gc.freeze`), and still freed with its last reference. A cycle among such objects is not found
    before the block has ended, so the block must not be longer than the life of what it holds.
    """
    gc.callbacks.append(_freeze)
    try:
        yield
    finally:
        gc.callbacks.remove(_freeze)
        gc.unfreeze()


def _freeze(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] > _YOUNG:
        gc.freeze()
