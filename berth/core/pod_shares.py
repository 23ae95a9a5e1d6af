"""What each pod of a placement owns."""

from collections.abc import Iterable

import msgspec

from berth.schemas.placement import Placement


class PodShare(msgspec.Struct, frozen=True, gc=False):
    """What one pod of a placement owns."""

    node: str
    mask: int
    chips: tuple[int, ...]
    cpu_milli: int
    memory_mib: int
    pods: int = 1
    """0 for a rank that gave back what it owned."""


def pods_of(placement: Placement) -> list[PodShare]:
    """What each rank of a placement owns, in rank order."""
    names = placement.names()
    pods: list[PodShare] = []
    start = 0
    for run in placement.runs:
        for _ in range(run.pods):
            chips = tuple(placement.chips[start : start + run.chips])
            start += run.chips
            pods.append(PodShare(names[len(pods)], _mask(chips), chips, run.cpu_milli, run.memory_mib))
    return pods


def pods_at(placement: Placement, ranks: Iterable[int]) -> dict[int, PodShare]:
    """What some ranks of a placement own, by rank: as :func:`pods_of`, for a few ranks of a large gang."""
    names = placement.names()
    pods: dict[int, PodShare] = {}
    left = sorted(ranks, reverse=True)
    first = start = 0
    for run in placement.runs:
        while left and left[-1] < first + run.pods:
            rank = left.pop()
            at = start + (rank - first) * run.chips
            chips = tuple(placement.chips[at : at + run.chips])
            pods[rank] = PodShare(names[rank], _mask(chips), chips, run.cpu_milli, run.memory_mib)
        first, start = first + run.pods, start + run.pods * run.chips
    return pods


def _mask(chips: Iterable[int]) -> int:
    mask = 0
    for chip in chips:
        mask |= 1 << chip
    return mask
