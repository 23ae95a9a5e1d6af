"""State of a Queue of Volcano in place of its controller, from the PodGroups that name the Queue."""

from collections import Counter
from collections.abc import Callable, Iterable

from berth.formats.kubernetes.objects import PodGroup
from berth.schemas.queues.queue import DEFAULT

Place = tuple[str, str]
"""Namespace and name of a PodGroup."""


class QueueGroups:
    """PodGroups that name Queues.

    Args:
        on_empty: Called when the last PodGroup of a Queue is gone.
    """

    def __init__(self, on_empty: Callable[[], None]) -> None:
        self._on_empty = on_empty
        self._queues: dict[Place, str] = {}
        self._groups: Counter[str] = Counter()

    def set_group(self, group: PodGroup) -> None:
        """Take a new or changed PodGroup."""
        place = (group.metadata.namespace, group.metadata.name)
        self.drop_group(place)
        self._queues[place] = queue = group.spec.queue or DEFAULT
        self._groups[queue] += 1

    def drop_group(self, place: Place) -> None:
        """Take that a PodGroup is gone."""
        queue = self._queues.pop(place, None)
        if queue is None:
            return
        self._groups[queue] -= 1
        if not self._groups[queue]:
            del self._groups[queue]
            self._on_empty()

    def keep_groups(self, places: Iterable[Place]) -> None:
        """Take which PodGroups there are."""
        kept = frozenset(places)
        for place in [place for place in self._queues if place not in kept]:
            self.drop_group(place)

    def state_after(self, queue: str, state: str) -> str:
        """State of a Queue that follows from the one that it has.

        Source: Volcano, ``pkg/controllers/queue/state``.
        """
        if state == "Closing" and not self._groups[queue]:
            return "Closed"
        return state or "Open"
