"""Constraints during one round: which rows they leave to one more pod, the pods that the round has placed included."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_table import NodeTable
from berth.core.cluster.view import View
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
from berth.core.constraints.volume_checks import VolumeCheck, VolumeLimitCheck, claims_of
from berth.core.constraints.volume_choices import DecidedClaim, VolumeChoices
from berth.core.constraints.volumes import Volumes
from berth.products.resources import similar_resource
from berth.schemas.offers import Shape
from berth.schemas.placement import ClaimVolume
from berth.schemas.pod_constraints import HostPort, PodProfile
from berth.schemas.refusal import Code, ConstraintCount, NodeReason

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
    decided: tuple[DecidedClaim, ...] = ()
    """Volumes that claims get by the ledger."""
    is_idle: bool = False
    """Nothing can be asked: no usage is known, and no job has constraints."""

    @property
    def checks_claims(self) -> bool:
        """Whether claims are checked: something is known of volumes, or of an API server that would report them."""
        return bool(self.usage.limits) or self.volumes.is_known

    @property
    def full_nodes(self) -> int:
        """Number of nodes that take no further pod, whatever it is."""
        slots = self.usage.slots(self.rows)
        if slots is None:
            return 0
        return int((slots <= 0).sum())


def no_constraints(table: NodeTable) -> ConstraintView:
    """What a round starts from where there is nothing to check."""
    return ConstraintView(UsageIndex(), Topology(table), {}, len(table), Volumes(), is_idle=True)


class Obstacle(NamedTuple):
    """What keeps a shape from all nodes: code and field of the refusal, the value, and what it would have to be."""

    code: Code
    field: str
    value: str
    expected: str


class _Named(NamedTuple):
    """A check with the reason of the nodes that it excludes, and what its constraint names."""

    reason: NodeReason
    check: Check
    names: tuple[str, ...] = ()
    """Host ports, or a resource."""
    keys: tuple[str, ...] = ()
    """Topology keys that a node must have."""


class _ShapeChecks:
    """Checks of one shape, brought up to date with the pods of the round when they are read."""

    def __init__(self, shape: Shape, pod: PodProfile, view: ConstraintView, choices: VolumeChoices) -> None:
        self.affinity: AffinityCheck | None = None
        self._checks = list(self._made(shape, pod, view, choices))
        self.preferences: Preferences | None = None
        if has_preferences(pod.constraints):
            self.preferences = Preferences(shape, pod, view.usage, view.topology, view.namespaces)
        self._rows = view.rows
        self._seen = 0
        self._allowed: Fits | None = None

    def _made(self, shape: Shape, pod: PodProfile, view: ConstraintView, choices: VolumeChoices) -> Iterator[_Named]:
        index, topology, names, rows, volumes, *_ = view
        wanted = pod.constraints
        for name, need in wanted.resources if index.limits else ():
            yield _Named(NodeReason.RESOURCE, ResourceCheck(name, need, index, rows), names=(name,))
        if wanted.ports:
            yield _Named(NodeReason.PORT, PortCheck(wanted.ports, index, rows), names=_ports_of(wanted.ports))
        if wanted.claims and view.checks_claims:
            yield _Named(NodeReason.VOLUME, VolumeCheck(pod, index, volumes, topology, choices))
            yield _Named(NodeReason.VOLUME_LIMIT, VolumeLimitCheck(pod, index, volumes, rows))
        if wanted.affinity:
            self.affinity = AffinityCheck(wanted.affinity, pod, index, topology, names)
            keys = tuple(sorted({term.topology_key for term in wanted.affinity}))
            yield _Named(NodeReason.AFFINITY, self.affinity, keys=keys)
        if wanted.anti_affinity:
            yield _Named(NodeReason.ANTI_AFFINITY, AntiAffinityCheck(wanted.anti_affinity, index, topology, names))
        if pod.is_whole:
            yield _Named(NodeReason.REPELLED, RepelledCheck(pod, index, topology, names))
        for term in wanted.spread:
            spread = SpreadCheck(term, shape, pod, index, topology)
            yield _Named(NodeReason.SPREAD, spread, keys=(term.topology_key,))

    def follow(self, log: Sequence[Placed]) -> None:
        """Count the pods that were placed or taken back since the last call."""
        for pod, row, sign in log[self._seen :]:
            changed = [named.check.add(pod, row, sign) for named in self._checks]
            if any(changed):
                self._allowed = None
            if self.preferences is not None:
                self.preferences.add(pod, row, sign)
        self._seen = len(log)

    def allowed(self) -> Fits:
        """Rows that all checks allow, shape (rows,)."""
        if self._allowed is None:
            everywhere = np.ones(self._rows, np.bool_)
            self._allowed = np.logical_and.reduce([everywhere, *(named.check.allowed() for named in self._checks)])
        return self._allowed

    def reasons(self, rows: int) -> Reasons:
        """First check that does not allow each row, shape (rows,)."""
        found = np.zeros(rows, np.uint8)
        for named in self._checks:
            np.copyto(found, int(named.reason), where=~named.check.allowed() & (found == NodeReason.FITS))
        return found

    def counts(self, fits: Fits, topology: Topology) -> list[ConstraintCount]:
        """How many of the nodes that take a pod of the shape each constraint excludes that names something.

        Args:
            fits: Rows that take a pod, whatever the constraints are, shape (rows,).
            topology: Topology values.
        """
        found = []
        left = fits
        for named in self._checks:
            here = left & ~named.check.allowed()
            left = left & ~here
            names = named.names or named.keys
            if isinstance(named.check, AntiAffinityCheck | RepelledCheck):
                names = named.check.keys_at(here)
            if names and here.any():
                lacks = np.logical_or.reduce([np.zeros_like(here), *(topology.values(key) < 0 for key in named.keys)])
                lacking = int((here & lacks).sum())
                found.append(ConstraintCount(int(named.reason), int(here.sum()), list(names), lacking))
        return found


def _ports_of(ports: Sequence[HostPort]) -> tuple[str, ...]:
    """Numbers and protocols, each once; addresses are left out."""
    return tuple(dict.fromkeys(f"{port.port}/{port.protocol}" for port in ports))


class ConstraintRound:
    """Constraints of the pods of one round.

    Args:
        view: What the round starts from.
        nodes: The view of the round: its marks take pods back.

    Attributes:
        is_idle: Nothing can be asked, so pods that are placed need not be added.
    """

    def __init__(self, view: ConstraintView, nodes: View) -> None:
        self._view = view
        self._nodes = nodes
        self.is_idle = view.is_idle
        self._log: list[Placed] = []
        self._checks: dict[Shape, _ShapeChecks] = {}
        self._choices = VolumeChoices(view.volumes, view.topology, view.decided)
        slots = view.usage.slots(view.rows)
        self._slots: Ints | None = None if slots is None else slots.copy()
        """Pods that each row still takes; None where no node limits them."""

    def add(self, pod: PodProfile, row: int) -> None:
        """Place a pod of the current gang."""
        self._note(pod, row, 1)
        if pod.constraints.claims:
            chosen = self._choices.choose(pod, row)
            self._nodes.note(lambda: self._choices.forget(chosen))

    def claims_of_gang(self, pods: Sequence[PodProfile]) -> list[ClaimVolume]:
        """Claims of the current gang that are not bound, and their volumes; none where nothing is known of volumes.

        Args:
            pods: Pods of the gang by rank, all placed.
        """
        return self._choices.of_gang(pods) if self._view.checks_claims else []

    def obstacle(self, shape: Shape) -> Obstacle | None:
        """First thing that a shape names and that keeps it from all nodes; None without one.

        It is a claim that no pod can use, or a resource that no node offers and whose name is close to a known one.
        """
        if shape.profile is None:
            return None
        if self._view.checks_claims:
            for name in claims_of(shape.profile):
                expected = self._view.volumes.obstacle(name)
                if expected:
                    return Obstacle("no-claim", "claim", name.name, expected)
        usage = self._view.usage
        for resource, _ in shape.profile.constraints.resources if usage.limits else ():
            near = "" if usage.limit_resources(resource) else similar_resource(resource, usage.offered())
            if near:
                return Obstacle("no-resource", "resource", resource, near)
        return None

    def remove(self, pod: PodProfile, row: int) -> None:
        """Do not count a pod that is counted on a row."""
        self._note(pod, row, -1)

    def _note(self, pod: PodProfile, row: int, sign: int) -> None:
        self._count(pod, row, sign)
        self._nodes.note(lambda: self._count(pod, row, -sign))

    def _count(self, pod: PodProfile, row: int, sign: int) -> None:
        self._log.append((pod, row, sign))
        if self._slots is not None:
            self._slots[row] -= sign

    def is_full(self, row: int) -> bool:
        """Whether a node takes no further pod, whatever it is."""
        return self._slots is not None and bool(self._slots[row] <= 0)

    def limits(self, shape: Shape) -> bool:
        """Whether constraints may exclude a row for a shape."""
        return shape.profile is not None or self._slots is not None

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

    def allows_again(self, pod: PodProfile, shape: Shape, row: int) -> bool:
        """Whether constraints allow a pod on the row where it is already, if it were to come anew.

        Args:
            pod: Labels and constraints of the pod.
            shape: Its shape.
            row: Its node.
        """
        with self._nodes.tentative():
            self.remove(pod, row)
            return self.allows(shape, row)

    def reasons(self, shape: Shape) -> Reasons:
        """Why constraints forbid one more pod of a shape on each row, ``FITS`` where they do not, shape (rows,)."""
        rows = self._view.rows
        found = np.zeros(rows, np.uint8)
        found[self.full_rows()] = int(NodeReason.PODS)
        checks = self._of(shape)
        if checks is not None:
            np.copyto(found, checks.reasons(rows), where=found == NodeReason.FITS)
        return found

    def counts(self, shape: Shape, fits: Fits) -> list[ConstraintCount]:
        """How many of the nodes that take a pod each constraint of a shape excludes that names something.

        Args:
            shape: The shape.
            fits: Rows that take a pod of the shape, whatever the constraints are, shape (rows,).
        """
        checks = self._of(shape)
        if checks is None:
            return []
        open_rows = fits if self._slots is None else fits & (self._slots > 0)
        return checks.counts(open_rows, self._view.topology)

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
            checks = self._checks[shape] = _ShapeChecks(shape, shape.profile, self._view, self._choices)
        checks.follow(self._log)
        return checks
