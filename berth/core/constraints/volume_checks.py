"""Checks of a shape with PersistentVolumeClaims: access to their volumes, and most volumes of a node."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.constraints.topology import Topology
from berth.core.constraints.usage_index import UsageIndex
from berth.core.constraints.volume_choices import VolumeChoices, first_volume, in_order
from berth.core.constraints.volumes import Disk, Volumes, disks_of
from berth.schemas.pod_constraints import PodProfile
from berth.schemas.usage_facts import ClaimName
from berth.schemas.volume_facts import VolumeSeen


def claims_of(pod: PodProfile) -> list[ClaimName]:
    """Claims of a pod."""
    return [ClaimName(pod.namespace, name) for name in pod.constraints.claims]


class VolumeCheck:
    """Each claim of the pod has a volume that can be used from the node, or gets one.

    A claim whose volume is chosen when a pod is placed gets that of its first pod: the smallest free volume that suits,
    or one that is made for the node. A claim that one pod alone may use is used by no other.

    Args:
        pod: The pod.
        index: Usage of the nodes.
        volumes: Facts about volumes.
        topology: The nodes.
        choices: Volumes that claims get.
    """

    def __init__(
        self,
        pod: PodProfile,
        index: UsageIndex,
        volumes: Volumes,
        topology: Topology,
        choices: VolumeChoices,
    ) -> None:
        self._claims = claims_of(pod)
        self._choices = choices
        self._volumes = volumes
        self._topology = topology
        self._used: Counter[tuple[ClaimName, int]] = Counter()
        names = [name for name in index.claims if name in self._claims or volumes.waits(name)]
        for name in names:
            for row, number in index.claims[name].items():
                self._used[name, row] += number

    def allowed(self) -> Fits:
        """As in :class:`Check`."""
        homes, taken = self._settled()
        used = {name for (name, _), number in self._used.items() if number > 0}
        found = np.ones(self._topology.rows, np.bool_)
        waiting: list[tuple[ClaimName, Sequence[VolumeSeen], Fits]] = []
        for name in self._claims:
            needs = self._volumes.of_claim(name, self._topology, skips_failed=True)
            if self._volumes.is_leaving(name) or (name in used and self._volumes.is_exclusive(name)):
                return np.zeros_like(found)
            if name in homes:
                found &= homes[name]
            elif self._volumes.waits(name):
                choices = [volume for volume in needs.choices if volume.name not in taken]
                waiting.append((name, choices, needs.rows))
                reached = [self._reaches(volume) for volume in choices]
                found &= np.logical_or.reduce([needs.rows, *reached])
            else:
                found &= needs.rows
        if len(waiting) > 1:
            self._keep_apart(found, waiting)
        return found

    def _reaches(self, volume: VolumeSeen) -> Fits:
        return self._topology.matching(tuple(volume.affinity))

    def _keep_apart(self, found: Fits, waiting: Sequence[tuple[ClaimName, Sequence[VolumeSeen], Fits]]) -> None:
        """Clear the rows on which two claims of the pod would need the same volume."""
        needs = {name: (choices, made) for name, choices, made in waiting}
        order = in_order(self._volumes, needs)
        for row in np.flatnonzero(found).tolist():
            taken: dict[str, None] = {}
            for choices, made in (needs[name] for name in order):
                chosen = first_volume(choices, taken, row, self._reaches)
                if chosen is not None:
                    taken[chosen.name] = None
                elif not made[row]:
                    found[row] = False

    def _settled(self) -> tuple[dict[ClaimName, Fits], dict[str, None]]:
        """Nodes that claims in use leave to further pods, and volumes that they take, as their first pods choose.

        What was chosen for a claim counts; without it the choice is derived from the pods that use the claim.
        """
        taken = dict(self._choices.taken)
        homes = {name: home for name in self._claims if (home := self._choices.home(name)) is not None}
        rows: dict[ClaimName, list[int]] = {}
        for (name, row), number in self._used.items():
            if number > 0:
                rows.setdefault(name, []).append(row)
        for name, row in ((name, min(rows[name])) for name in in_order(self._volumes, rows)):
            if self._choices.has(name):
                continue
            needs = self._volumes.of_claim(name, self._topology)
            chosen = first_volume(needs.choices, taken, row, self._reaches)
            if chosen is None:
                homes[name] = np.arange(self._topology.rows) == row  # made for this node
            else:
                taken[chosen.name] = None
                homes[name] = self._reaches(chosen)
        return homes, taken

    def add(self, pod: PodProfile, row: int, sign: int) -> bool:
        """As in :class:`Check`."""
        names = [name for name in claims_of(pod) if name in self._claims or self._volumes.waits(name)]
        for name in names:
            self._used[name, row] += sign
        return bool(names)


class VolumeLimitCheck:
    """The node takes as many volumes of each CSI driver as its limit says; a volume that is there counts once.

    A pod that brings no new volume of a driver is not refused, even if there are more than the limit says by now.
    """

    def __init__(self, pod: PodProfile, index: UsageIndex, volumes: Volumes, rows: int) -> None:
        self._volumes = volumes
        self._own = disks_of(claims_of(pod), volumes)
        self._limits = {driver: index.limit_volumes(driver) for driver, _ in self._own}
        self._on: dict[int, Counter[ClaimName]] = {}
        self._allowed = np.ones(rows, np.bool_)
        for row in {row for limits in self._limits.values() for row in limits}:
            if row < rows:
                self._on[row] = Counter(index.claims_on.get(row, {}))
                self._allowed[row] = self._has_room(row)

    def _has_room(self, row: int) -> bool:
        there: dict[Disk, None] = disks_of(
            (name for name, number in self._on[row].items() if number > 0), self._volumes
        )
        new = Counter(driver for driver, handle in self._own if (driver, handle) not in there)
        attached = Counter(driver for driver, _ in there)
        return all(
            row not in self._limits[driver] or attached[driver] + number <= self._limits[driver][row]
            for driver, number in new.items()
        )

    def allowed(self) -> Fits:
        """As in :class:`Check`."""
        return self._allowed

    def add(self, pod: PodProfile, row: int, sign: int) -> bool:
        """As in :class:`Check`."""
        names = claims_of(pod)
        if not names or row not in self._on:
            return False
        for name in names:
            self._on[row][name] += sign
        now = self._has_room(row)
        if now == bool(self._allowed[row]):
            return False
        self._allowed = self._allowed.copy()
        self._allowed[row] = now
        return True
