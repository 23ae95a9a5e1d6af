"""Constraints during one round: which rows they leave to one more pod, the pods that the round has placed included."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from berth.core.cluster.bitmaps import Fits
from berth.core.constraints.checks import (
    AffinityCheck,
    AntiAffinityCheck,
    Check,
    PortCheck,
    RepelledCheck,
    ResourceCheck,
    SpreadCheck,
)
from berth.core.constraints.preferences import Preferences, has_preferences
from berth.core.constraints.selectors import NamespaceLabels
from berth.core.constraints.topology import Ints, Topology
from berth.core.constraints.usage_index import UsageIndex
from berth.core.constraints.volume_checks import VolumeCheck, VolumeLimitCheck
from berth.core.constraints.volumes import Volumes
from berth.schemas.offers import Shape
from berth.schemas.pod_constraints import PodProfile
from berth.schemas.refusal import NodeReason

Reasons = npt.NDArray[np.uint8]
Placed = tuple[PodProfile, int, int]
"""A pod, its row, and 1 if it was placed there or -1 if it was taken back."""


class ConstraintView(NamedTuple):
    """Usage and topology that a round starts from; nothing of it changes during the round."""

    usage: UsageIndex
    topology: Topology
    namespaces: NamespaceLabels
    rows: int
    """Rows of the node table."""
    volumes: Volumes
    moved: tuple[Placed, ...] = ()
    """Pods that are counted beside ``usage`` (1), or not counted though they are in it (-1)."""

    def slots(self) -> Ints | None:
        """Pods that each row still takes, shape (rows,); None where no node limits them."""
        slots = self.usage.slots(self.rows)
        if slots is None:
            return None
        slots = slots.copy()
        for _, row, sign in self.moved:
            slots[row] -= sign
        return slots

    def full_nodes(self) -> int:
        """Number of nodes that take no further pod, whatever it is."""
        slots = self.slots()
        return 0 if slots is None else int((slots <= 0).sum())


class _ShapeChecks:
    """Checks of one shape, brought up to date with the pods of the round when they are read."""

    def __init__(self, shape: Shape, pod: PodProfile, view: ConstraintView) -> None:
        self.affinity: AffinityCheck | None = None
        self._checks = list(self._made(shape, pod, view))
        self.preferences: Preferences | None = None
        if has_preferences(pod.constraints):
            self.preferences = Preferences(shape, pod, view.usage, view.topology, view.namespaces)
        self._rows = view.rows
        self._seen = 0
        self._allowed: Fits | None = None

    def _made(self, shape: Shape, pod: PodProfile, view: ConstraintView) -> list[tuple[NodeReason, Check]]:
        index, topology, names, rows, volumes, _ = view
        wanted = pod.constraints
        found: list[tuple[NodeReason, Check]] = [
            (NodeReason.RESOURCE, ResourceCheck(name, need, index, rows))
            for name, need in (wanted.resources if index.limits else ())
        ]
        if wanted.ports:
            found.append((NodeReason.PORT, PortCheck(wanted.ports, index, rows)))
        if wanted.claims and (index.limits or volumes.is_told):
            found += [
                (NodeReason.VOLUME, VolumeCheck(pod, index, volumes, topology)),
                (NodeReason.VOLUME_LIMIT, VolumeLimitCheck(pod, index, volumes, rows)),
            ]
        if wanted.affinity:
            self.affinity = AffinityCheck(wanted.affinity, pod, index, topology, names)
            found.append((NodeReason.AFFINITY, self.affinity))
        if wanted.anti_affinity:
            found.append((NodeReason.ANTI_AFFINITY, AntiAffinityCheck(wanted.anti_affinity, index, topology, names)))
        if pod.is_whole:
            found.append((NodeReason.REPELLED, RepelledCheck(pod, index, topology, names)))
        found += [(NodeReason.SPREAD, SpreadCheck(term, shape, pod, index, topology)) for term in wanted.spread]
        return found

    def follow(self, log: Sequence[Placed]) -> None:
        """Count the pods that were placed or taken back since the last call."""
        for pod, row, sign in log[self._seen :]:
            changed = [check.add(pod, row, sign) for _, check in self._checks]
            if any(changed):
                self._allowed = None
            if self.preferences is not None:
                self.preferences.add(pod, row, sign)
        self._seen = len(log)

    def allowed(self) -> Fits:
        """Rows that all checks allow, shape (rows,)."""
        if self._allowed is None:
            everywhere = np.ones(self._rows, np.bool_)
            self._allowed = np.logical_and.reduce([everywhere, *(check.allowed() for _, check in self._checks)])
        return self._allowed

    def reasons(self, rows: int) -> Reasons:
        """First check that does not allow each row, shape (rows,)."""
        found = np.zeros(rows, np.uint8)
        for reason, check in self._checks:
            np.copyto(found, int(reason), where=~check.allowed() & (found == NodeReason.FITS))
        return found


class ConstraintRound:
    """Constraints of the pods of one round.

    Args:
        view: What the round starts from.
    """

    def __init__(self, view: ConstraintView) -> None:
        self._view = view
        self._log: list[Placed] = []
        self._begun = 0
        self._checks: dict[Shape, _ShapeChecks] = {}
        self._slots = view.slots()
        """Pods that each row still takes; None where no node limits them."""
        self._log += view.moved
        self.begin_gang()

    def begin_gang(self) -> None:
        """Begin with the next gang: what was placed before it stays placed."""
        self._begun = len(self._log)

    def add(self, pod: PodProfile, row: int) -> None:
        """Place a pod of the current gang."""
        self._note(pod, row, 1)

    def roll_back(self) -> None:
        """Take back all pods of the current gang."""
        for pod, row, sign in reversed(self._log[self._begun :]):
            self._note(pod, row, -sign)
        self._begun = len(self._log)

    def _note(self, pod: PodProfile, row: int, sign: int) -> None:
        self._log.append((pod, row, sign))
        if self._slots is not None:
            self._slots[row] -= sign

    def is_full(self, row: int) -> bool:
        """Whether a node takes no further pod, whatever it is."""
        return self._slots is not None and bool(self._slots[row] <= 0)

    def full_rows(self) -> list[int]:
        """Rows that take no further pod."""
        return [] if self._slots is None else np.flatnonzero(self._slots <= 0).tolist()

    def allowed(self, shape: Shape) -> Fits:
        """Rows on which constraints allow one more pod of a shape, shape (rows,)."""
        open_rows: Fits = np.ones(self._view.rows, np.bool_) if self._slots is None else self._slots > 0
        checks = self._of(shape)
        return open_rows if checks is None else open_rows & checks.allowed()

    def preferred(self, shape: Shape, rows: Fits) -> Ints | None:
        """Preference of a shape for each of some rows, the better the higher; None if it has no preferences."""
        checks = self._of(shape)
        return None if checks is None or checks.preferences is None else checks.preferences.scores(rows)

    def allows(self, shape: Shape, row: int) -> bool:
        """Whether constraints allow one more pod of a shape on a row."""
        checks = self._of(shape)
        return not self.is_full(row) and (checks is None or bool(checks.allowed()[row]))

    def reasons(self, shape: Shape) -> Reasons:
        """Why constraints forbid one more pod of a shape on each row, ``FITS`` where they do not, shape (rows,)."""
        rows = self._view.rows
        found = np.zeros(rows, np.uint8)
        found[self.full_rows()] = int(NodeReason.PODS)
        checks = self._of(shape)
        if checks is not None:
            np.copyto(found, checks.reasons(rows), where=found == NodeReason.FITS)
        return found

    def homes(self, shape: Shape) -> Ints | None:
        """Number of the group of nodes that share all topology values of the required pod affinity, by row.

        Only for the first pod of a group that has affinity to itself: all further ones are then near it. None
        otherwise. Shape (rows,); -1 for a node that lacks a label.
        """
        checks = self._of(shape)
        if checks is None or checks.affinity is None:
            return None
        affinity = checks.affinity
        if not (affinity.is_first and affinity.selects_itself):
            return None
        columns = [self._view.topology.values(term.topology_key) for term in affinity.terms]
        _, groups = np.unique(np.stack(columns), axis=1, return_inverse=True)
        lacks = np.logical_or.reduce([column < 0 for column in columns])
        return np.where(lacks, -1, groups.reshape(-1))

    def _of(self, shape: Shape) -> _ShapeChecks | None:
        if shape.profile is None:
            return None
        checks = self._checks.get(shape)
        if checks is None:
            checks = self._checks[shape] = _ShapeChecks(shape, shape.profile, self._view)
        checks.follow(self._log)
        return checks
