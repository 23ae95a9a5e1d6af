"""Choices of volumes: what claims get that wait for their first pod, by the ledger and by the pods of a round.

A claim keeps its choice while an attempt that names it holds its nodes. So two gangs never get one volume, whatever
facts show of it by then.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.constraints.topology import Topology
from berth.core.constraints.volumes import Volumes
from berth.schemas.placement import ClaimVolume
from berth.schemas.pod_constraints import PodProfile
from berth.schemas.usage_facts import ClaimName
from berth.schemas.volume_facts import VolumeSeen


class DecidedClaim(NamedTuple):
    """What a placement in the ledger says of a claim."""

    name: ClaimName
    uid: str
    volume: str
    """Empty: one is made for the node."""
    row: int
    """Row of the node."""


class _Choice(NamedTuple):
    volume: str
    row: int


class VolumeChoices:
    """Choices at a moment of a round.

    Args:
        volumes: Facts about volumes.
        topology: The nodes.
        decided: What the ledger says, the oldest placement first.

    Attributes:
        taken: Volumes that some claim gets.
    """

    def __init__(self, volumes: Volumes, topology: Topology, decided: Iterable[DecidedClaim]) -> None:
        self._volumes = volumes
        self._topology = topology
        self._choices: dict[ClaimName, _Choice] = {}
        self.taken: dict[str, None] = {}
        self._former: dict[ClaimName, None] = {}
        for one in decided:
            self._former[one.name] = None
            if one.volume:
                self.taken[one.volume] = None
            claim = volumes.claims.get(one.name)
            if claim is not None and claim.uid == one.uid:
                self._choices.setdefault(one.name, _Choice(one.volume, one.row))

    def has(self, name: ClaimName) -> bool:
        """Whether something is chosen for a claim, or was for another one of its name."""
        return name in self._choices or name in self._former

    def home(self, name: ClaimName) -> Fits | None:
        """Nodes from which the chosen volume of a claim can be used, shape (rows,); None where nothing is chosen."""
        choice = self._choices.get(name) if self._volumes.waits(name) else None
        if choice is None:
            return None
        found: Fits = np.arange(self._topology.rows) == choice.row
        if choice.volume:
            volume = self._volumes.volumes.get(choice.volume)
            found = np.zeros_like(found) if volume is None else self._reaches(volume)
        failure = self._volumes.failure(name)
        if failure is not None:
            if choice.volume in failure.volumes:
                return np.zeros_like(found)
            for node in failure.nodes if not choice.volume else ():
                found &= ~self._topology.named(node)
        return found

    def choose(self, pod: PodProfile, row: int) -> list[ClaimName]:
        """Choose for the claims of a pod that is placed on a row and was allowed there.

        Returns:
            The claims for which nothing was chosen before.
        """
        found = []
        for name in in_order(self._volumes, (ClaimName(pod.namespace, claim) for claim in pod.constraints.claims)):
            if name not in self._choices:
                choices = self._volumes.of_claim(name, self._topology, skips_failed=True).choices
                chosen = first_volume(choices, self.taken, row, self._reaches)
                self._choices[name] = _Choice(chosen.name if chosen is not None else "", row)
                if chosen is not None:
                    self.taken[chosen.name] = None
                found.append(name)
        return found

    def forget(self, names: Iterable[ClaimName]) -> None:
        """Forget what was chosen for some claims."""
        for name in names:
            self.taken.pop(self._choices.pop(name).volume, None)

    def _reaches(self, volume: VolumeSeen) -> Fits:
        return self._topology.matching(tuple(volume.affinity))

    def of_gang(self, pods: Sequence[PodProfile]) -> list[ClaimVolume]:
        """Claims of a placed gang that are not bound, and their volumes.

        Args:
            pods: Pods of the gang by rank.
        """
        found: dict[ClaimName, ClaimVolume] = {}
        for rank, pod in enumerate(pods):
            for claim in pod.constraints.claims:
                name = ClaimName(pod.namespace, claim)
                if name not in found and self._volumes.is_open(name):
                    choice = self._choices.get(name) if self._volumes.waits(name) else None
                    volume = choice.volume if choice is not None else ""
                    found[name] = ClaimVolume(claim, self._volumes.claims[name].uid, rank, volume)
        return list(found.values())


def in_order(volumes: Volumes, names: Iterable[ClaimName]) -> list[ClaimName]:
    """Those of some claims that wait for their first pod, in the order in which they choose: the smallest first."""
    waiting = (name for name in names if volumes.waits(name))
    return sorted(waiting, key=lambda name: (volumes.claims[name].size, name.namespace, name.name))


def first_volume(
    choices: Iterable[VolumeSeen], taken: Container[str], row: int, reaches: Callable[[VolumeSeen], Fits]
) -> VolumeSeen | None:
    """First volume that is not taken and can be used from a row; None without one.

    Args:
        choices: Volumes.
        taken: Names of those that are taken.
        row: Row of the node.
        reaches: Nodes from which a volume can be used.
    """
    return next((volume for volume in choices if volume.name not in taken and reaches(volume)[row]), None)
