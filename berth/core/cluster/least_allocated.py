"""Score of a node for a pod without chips: which part of its cpu and memory would stay free.

``score = (cpu + memory) // 2``, each ``10000 * left // given``: what is left on the node with the pod, at least 0, of
all that the node gives, what pods of others use included. A pod that requests no cpu counts 100 m here, and one that
requests no memory 200 MiB, so that such pods spread as well. Scores are 0 to 9999; of nodes with equal scores the first
by name is the best.

A taint with the effect ``PreferNoSchedule`` that the pod does not tolerate takes off more than that, and a preference
of the pod adds to it, each with the weight of its plug-in in kube-scheduler.

See decision plain-pods.
"""

from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from berth.core.cluster.node_classes import unwanted_taints
from berth.core.cluster.node_table import NodeTable
from berth.schemas.offers import Shape

CPU_DEFAULT: Final = 100
"""Thousandths of a CPU that a pod counts which requests none."""
MEMORY_DEFAULT: Final = 200
"""MiB that a pod counts which requests none."""
_WHOLE: Final = 10_000
POINT: Final = _WHOLE // 100
"""What the score of kube-scheduler's plug-in, from 0 to 100, counts for each unit of it."""
TAINT_WEIGHT: Final = 3 * _WHOLE
"""What a node loses for each taint that is to be avoided: the weight of the plug-in TaintToleration."""

Ints = npt.NDArray[np.int64]
Scores = npt.NDArray[np.int32]


class Left(Protocol):
    """What a row has left."""

    cpu_free: int
    memory_free: int
    no_cpu: int
    no_memory: int


def least_allocated(table: NodeTable, shape: Shape) -> Scores:
    """Score of each row for a pod, whether or not the pod fits there.

    Args:
        table: The nodes.
        shape: Shape of the pod; it has no chips.

    Returns:
        Shape (rows,), at most 9999, and at least 0 where no taint is to be avoided.
    """
    rows = table.view()
    cpu_left = table.cpu_free[rows] - table.no_cpu[rows] * np.int64(CPU_DEFAULT)
    memory_left = table.memory_free[rows] - table.no_memory[rows] * np.int64(MEMORY_DEFAULT)
    cpu_given: Ints = table.cpu[rows].astype(np.int64) + table.cpu_others[rows]
    memory_given: Ints = table.memory[rows].astype(np.int64) + table.memory_others[rows]
    cpu = _parts(cpu_left - (shape.cpu_milli or CPU_DEFAULT), cpu_given)
    memory = _parts(memory_left - (shape.memory_mib or MEMORY_DEFAULT), memory_given)
    scores = ((cpu + memory) // 2).astype(np.int32)
    unwanted = [unwanted_taints(shape, key) for key in table.classes]
    if any(unwanted):
        scores -= TAINT_WEIGHT * np.array(unwanted, np.int32).take(table.node_class[rows], mode="wrap")
    return scores


def least_allocated_one(table: NodeTable, shape: Shape, row: int, state: Left) -> int:
    """As :func:`least_allocated`, for one row in a given state."""
    cpu_left = state.cpu_free - state.no_cpu * CPU_DEFAULT
    memory_left = state.memory_free - state.no_memory * MEMORY_DEFAULT
    cpu = _part(cpu_left - (shape.cpu_milli or CPU_DEFAULT), int(table.cpu[row]) + int(table.cpu_others[row]))
    memory = _part(
        memory_left - (shape.memory_mib or MEMORY_DEFAULT), int(table.memory[row]) + int(table.memory_others[row])
    )
    unwanted = unwanted_taints(shape, table.classes[table.node_class.item(row)])
    return (cpu + memory) // 2 - TAINT_WEIGHT * unwanted


def _parts(left: Ints, given: Ints) -> Ints:
    found: Ints = np.clip(left, 0, None) * _WHOLE // np.maximum(given, 1)
    return np.where(given > 0, found, 0)


def _part(left: int, given: int) -> int:
    return max(left, 0) * _WHOLE // given if given > 0 else 0
