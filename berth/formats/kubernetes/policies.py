"""Objects by which administrators order jobs: PriorityClasses of Kubernetes and Queues of Volcano, as lean structs.

Source: Kubernetes, scheduling.k8s.io/v1; Volcano, scheduling.volcano.sh/v1beta1.
"""

from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.whole_numbers import Int32


class PriorityClass(Lean, frozen=True):
    """A priority by name."""

    metadata: Meta = Meta()
    value: Int32 = 0
    global_default: bool = False
    """It is the class of pods that name none."""


class QueueSpec(Lean, frozen=True):
    """Spec of a queue; its weight and its guarantees are not read."""

    capability: dict[str, str | int | float] | None = None
    """Most resources that its jobs may have; a resource that is missing has no limit."""


class QueueStatus(Lean, frozen=True):
    """Status of a queue."""

    state: str = ""
    """``Open``, ``Closed``, ``Closing`` or ``Unknown``."""


class Queue(Lean, frozen=True):
    """A queue of Volcano."""

    metadata: Meta = Meta()
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()
