"""Namespaces, and the queues of jobs that their annotations name."""

from collections.abc import Callable, Iterable, Mapping

from berth.formats.kubernetes.storage_objects import Namespace
from berth.formats.manifests.queue_names import queue_named
from berth.services.inventory.storage.object_facts import Taker


class NamespaceQueues:
    """Takes namespaces, and passes them on.

    Args:
        facts: Takes them too.
        take: Takes the queue of each namespace that names one, when one names another queue.
    """

    def __init__(self, facts: Taker[Namespace], take: Callable[[Mapping[str, str]], None]) -> None:
        self._facts = facts
        self._take = take
        self._queues: dict[str, str] = {}

    def replace(self, objects: Iterable[Namespace]) -> None:
        """Take all namespaces."""
        listed = list(objects)
        self._facts.replace(listed)
        named = ((one.metadata.name, queue_named(one.metadata.annotations)) for one in listed)
        self._set({name: queue for name, queue in named if queue})

    def put(self, found: Namespace) -> None:
        """Take the current state of a namespace."""
        self._facts.put(found)
        queue = queue_named(found.metadata.annotations)
        others = {name: known for name, known in self._queues.items() if name != found.metadata.name}
        self._set(others | ({found.metadata.name: queue} if queue else {}))

    def drop(self, found: Namespace) -> None:
        """Take that a namespace is gone."""
        self._facts.drop(found)
        self._set({name: queue for name, queue in self._queues.items() if name != found.metadata.name})

    def _set(self, queues: dict[str, str]) -> None:
        if queues != self._queues:
            self._queues = queues
            self._take(queues)
