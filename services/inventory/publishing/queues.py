"""Queues of Volcano: facts about them where the cell applies them, and elsewhere what Berth does not enforce. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from berth.core.queues.amounts import number_of
from berth.core.queues.tree import Tree, is_tree, tree_of
from berth.formats.kubernetes import policies
from berth.formats.kubernetes.objects import PODGROUP_VERSION
from berth.formats.queues.queue_objects import queue_of_object
from berth.runtime.kube.port import Change
from berth.schemas.facts import is_repeat
from berth.schemas.intake import JobRequest
from berth.schemas.queues.facts import QueueSeen
from berth.schemas.queues.queue import CHIP, CPU, DEFAULT, MEMORY, ROOT, Queue
from berth.schemas.units import UnixMs

QUEUE_IGNORED: Final = "QueueIgnored"
"""Reason of the Event about a job whose queue would hold it back under Volcano."""
_NOT_APPLIED: Final = "the cell does not apply queues of Volcano, the job is scheduled all the same"
_NAMES_SHOWN: Final = 5


class Queues:
    """All queues; nothing is said of them before they are listed, or where the server has none.

    Args:
        are_applied: They are the queues of the cell, and published as facts.

    Attributes:
        are_applied: Likewise.
        is_changed: Facts may be due.
    """

    def __init__(self, *, are_applied: bool) -> None:
        self.are_applied = are_applied
        self._queues: dict[str, Queue] | None = None
        self._published: dict[str, QueueSeen] = {}
        self._declared: dict[str, Queue] = {}
        """Queues that persons declared with ``berth queues apply``."""
        self.is_changed = False

    def note_published(self, fact: QueueSeen) -> None:
        """Take a fact that is stored: of this run or an earlier one, or of a person.

        Args:
            fact: The newest fact about its queue.
        """
        name = fact.queue.name
        self._declared.pop(name, None)
        if fact.source == "kubernetes" and not fact.gone:
            self._published[name] = fact
        else:
            self._published.pop(name, None)
            if not fact.gone:
                self._declared[name] = fact.queue
        self.is_changed = True

    def replace(self, objects: Sequence[policies.Queue]) -> None:
        """Take all queues."""
        self._queues = {found.name: found for one in objects if (found := queue_of_object(one)) is not None}
        self.is_changed = True

    def change(self, changes: Sequence[tuple[Change, policies.Queue]]) -> None:
        """Take changes of queues."""
        queues = self._queues if self._queues is not None else {}
        for change, one in changes:
            before = queues.pop(one.metadata.name, None)
            found = queue_of_object(one) if change != "DELETED" else None
            if found is not None:
                queues[found.name] = found
            self.is_changed = self.is_changed or found != before
        self._queues = queues

    def missing(self) -> list[str]:
        """Queues that Volcano's scheduler makes when it starts, and that do not exist; none before they are listed."""
        return [name for name in (ROOT, DEFAULT) if self._queues is not None and name not in self._queues]

    def conflict(self) -> str:
        """Why queues of the API server are not published, as a sentence: persons declare queues too; empty if not."""
        wanted = self._wanted()
        if not self._declared or not wanted:
            return ""
        return (
            f"{_some(self._declared)} are declared by berth queues apply, and {_some(wanted)} by Queues of Volcano;"
            " delete the former with berth queues delete, or the latter with kubectl delete"
        )

    def due(self, at_ms: UnixMs) -> list[QueueSeen]:
        """Facts that differ from the published ones, in the order of names; none while queues are declared twice."""
        if self._queues is None and self.are_applied:
            return []
        wanted = self._wanted()
        facts = [
            QueueSeen(Queue(name), "kubernetes", gone=True, at_ms=at_ms)
            for name in sorted(self._published)
            if name not in wanted
        ]
        if not self._declared:
            seen = (QueueSeen(wanted[name], "kubernetes", at_ms=at_ms) for name in sorted(wanted))
            facts += [fact for fact in seen if not is_repeat(self._published.get(fact.queue.name), fact)]
        self.is_changed = bool(facts)
        return facts

    def _wanted(self) -> Mapping[str, Queue]:
        """Queues of which there is a fact; none where there are only those without amounts that Volcano makes."""
        queues = self._queues or {}
        return queues if self.are_applied and is_tree(queues.values()) else {}

    def tree(self) -> Tree | None:
        """The tree of the queues, whoever declares them; None where they do nothing, or before they are listed."""
        queues = self._wanted() or self._declared
        return tree_of(queues.values()) if is_tree(queues.values()) else None

    def warning(self, name: str, requested: Callable[[], Counter[str]]) -> str:
        """Why the queue of a job would hold it back under Volcano, as a sentence; empty when it would not.

        Args:
            name: The queue.
            requested: Returns what all jobs of the queue request, as :func:`amounts` has it.
        """
        if self._queues is None or self.are_applied:
            return ""
        queue = self._queues.get(name)
        if queue is None:
            return "" if name == DEFAULT else f"queue {name} does not exist: {_NOT_APPLIED}"
        if queue.state in {"Closed", "Closing"}:
            return f"queue {name} is {queue.state.lower()}: {_NOT_APPLIED}"
        wrong = next((text for text in queue.wrong if text.startswith("spec.capability")), "")
        if wrong:
            return f"queue {name}: {wrong}"
        for resource, most in queue.capability.items():
            amount = requested()[resource]
            if amount > most:
                return (
                    f"queue {name} is over its capability, its jobs request {number_of(resource, amount)} of"
                    f" {number_of(resource, most)} {resource}: {_NOT_APPLIED}"
                )
        return ""


def new_queue(name: str) -> dict[str, object]:
    """A queue as Volcano's scheduler makes it: other work may take back from all but the root.

    Source: Volcano, ``pkg/scheduler/cache``.
    """
    return {
        "apiVersion": PODGROUP_VERSION,
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "reclaimable": name != ROOT},
    }


def amounts(requests: Iterable[JobRequest]) -> dict[str, Counter[str]]:
    """What jobs request, by queue, in the amounts of queues."""
    found: dict[str, Counter[str]] = {}
    for request in requests:
        amount = found.setdefault(request.queue, Counter())
        for task in request.tasks:
            amount[CPU] += task.replicas * task.cpu_milli
            amount[MEMORY] += task.replicas * task.memory_mib
            if task.chips:
                amount[request.resource] += task.replicas * task.chips * CHIP
    return found


def _some(names: Iterable[str]) -> str:
    known = sorted(names)
    more = f" and {len(known) - _NAMES_SHOWN} more" if len(known) > _NAMES_SHOWN else ""
    return f"{', '.join(known[:_NAMES_SHOWN])}{more}"
