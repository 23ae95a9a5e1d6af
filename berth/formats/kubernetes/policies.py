"""Objects by which jobs are ordered and spared, as lean structs: PriorityClasses, disruption budgets, Volcano's queues.

Source: Kubernetes, scheduling.k8s.io/v1 and policy/v1; Volcano, scheduling.volcano.sh/v1beta1.
"""

from typing import Any

from berth.formats.kubernetes.lean import LabelSelector, Lean, Meta
from berth.formats.whole_numbers import Int32


class PriorityClass(Lean, frozen=True):
    """A priority by name."""

    metadata: Meta = Meta()
    value: Int32 = 0
    global_default: bool = False
    """It is the class of pods that name none."""
    preemption_policy: str = ""
    """``Never`` if its pods end no others."""


class BudgetSpec(Lean, frozen=True):
    """Which pods a disruption budget counts."""

    selector: LabelSelector | None = None


class BudgetStatus(Lean, frozen=True):
    """What a disruption budget allows, as its controller has worked it out."""

    disruptions_allowed: Int32 = 0


class DisruptionBudget(Lean, frozen=True):
    """A PodDisruptionBudget."""

    metadata: Meta = Meta()
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class Queue(Lean, frozen=True):
    """A queue of Volcano; its parts are read by :mod:`berth.formats.queues`, which tells what is wrong with each."""

    metadata: Meta = Meta()
    spec: Any = None
    status: Any = None
