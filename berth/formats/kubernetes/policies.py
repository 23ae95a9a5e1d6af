"""Objects by which administrators order jobs: PriorityClasses of Kubernetes and Queues of Volcano, as lean structs.

Source: Kubernetes, scheduling.k8s.io/v1; Volcano, scheduling.volcano.sh/v1beta1.
"""

from typing import Any

from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.whole_numbers import Int32


class PriorityClass(Lean, frozen=True):
    """A priority by name."""

    metadata: Meta = Meta()
    value: Int32 = 0
    global_default: bool = False
    """It is the class of pods that name none."""
    preemption_policy: str = ""
    """``Never`` if its pods end no others."""


class Queue(Lean, frozen=True):
    """A queue of Volcano; its parts are read by :mod:`berth.formats.queues`, which tells what is wrong with each."""

    metadata: Meta = Meta()
    spec: Any = None
    status: Any = None
