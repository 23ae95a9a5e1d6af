"""Queues of Volcano, and what Berth does not enforce of them. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from berth.formats.kubernetes.pods import amount_of
from berth.formats.kubernetes.policies import Queue
from berth.formats.quantities import QuantityError
from berth.formats.shortened import shortened
from berth.runtime.kube.port import Change
from berth.schemas.intake import JobRequest
from berth.schemas.queues.queue import DEFAULT, ROOT

QUEUE_IGNORED: Final = "QueueIgnored"
"""Reason of the Event about a job whose queue would hold it back under Volcano."""
_NO_QUOTAS: Final = "Berth has no quotas, the job is scheduled all the same"


class Queues:
    """All queues; nothing is said of them before they are listed, or where the server has none."""

    def __init__(self) -> None:
        self._queues: dict[str, Queue] | None = None

    def replace(self, queues: Sequence[Queue]) -> None:
        """Take all queues."""
        self._queues = {queue.metadata.name: queue for queue in queues}

    def change(self, changes: Sequence[tuple[Change, Queue]]) -> None:
        """Take changes of queues."""
        queues = self._queues if self._queues is not None else {}
        for change, queue in changes:
            if change == "DELETED":
                queues.pop(queue.metadata.name, None)
            else:
                queues[queue.metadata.name] = queue
        self._queues = queues

    def missing(self) -> list[str]:
        """Queues that Volcano's scheduler makes when it starts, and that do not exist; none before they are listed."""
        return [name for name in (ROOT, DEFAULT) if self._queues is not None and name not in self._queues]

    def warning(self, name: str, requested: Callable[[], Counter[str]]) -> str:
        """Why the queue of a job would hold it back under Volcano, as a sentence; empty when it would not.

        Args:
            name: The queue.
            requested: Returns what all jobs of the queue request, as :func:`amounts` has it.
        """
        if self._queues is None:
            return ""
        queue = self._queues.get(name)
        if queue is None:
            return "" if name == DEFAULT else f"queue {name} does not exist: {_NO_QUOTAS}"
        if queue.status.state in {"Closed", "Closing"}:
            return f"queue {name} is {queue.status.state.lower()}: {_NO_QUOTAS}"
        for resource, written in sorted((queue.spec.capability or {}).items()):
            try:
                most = amount_of(resource, written)
            except QuantityError as error:
                return f"queue {name}: spec.capability.{resource} is {shortened(written)}, expected {error.expected}"
            amount = requested()[resource]
            if amount > most:
                unit = {"cpu": "m", "memory": " MiB"}.get(resource, "")
                return (
                    f"queue {name} is over its capability, its jobs request {amount}{unit} of {most}{unit} {resource}:"
                    f" {_NO_QUOTAS}"
                )
        return ""


def new_queue(name: str) -> dict[str, object]:
    """A queue as Volcano's scheduler makes it: other work may take back from all but the root.

    Source: Volcano, ``pkg/scheduler/cache``.
    """
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "reclaimable": name != ROOT},
    }


def amounts(requests: Iterable[JobRequest]) -> dict[str, Counter[str]]:
    """What jobs request, by queue: chips by resource name, ``cpu`` in thousandths, ``memory`` in MiB."""
    found: dict[str, Counter[str]] = {}
    for request in requests:
        amount = found.setdefault(request.queue, Counter())
        for task in request.tasks:
            amount["cpu"] += task.replicas * task.cpu_milli
            amount["memory"] += task.replicas * task.memory_mib
            if task.chips:
                amount[request.resource] += task.replicas * task.chips
    return found
