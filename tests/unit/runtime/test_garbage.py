"""Collections of a process that must not pause."""

import gc
import weakref

from berth.runtime.garbage import short_collections


class Node:
    """One that refers to itself."""

    def __init__(self) -> None:
        self.me = self


def test_what_survives_a_collection_is_not_looked_at_again_before_the_end() -> None:
    with short_collections():
        node = Node()
        found = weakref.ref(node)
        gc.collect(1)
        assert gc.get_freeze_count() > 0
        del node
        gc.collect()
        assert found() is not None
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert found() is None


def test_young_garbage_and_what_nobody_refers_to_is_freed_all_the_time() -> None:
    with short_collections():
        young = weakref.ref(Node())
        gc.collect(1)
        assert young() is None
        plain = Node()
        plain.me = None  # type: ignore[assignment]  # no cycle any more
        gc.collect(1)
        old = weakref.ref(plain)
        del plain
        assert old() is None
