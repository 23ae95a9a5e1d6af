"""New places for pods of a placed gang, while its other pods keep theirs.

A pod that leaves without a fault returns to its own place if that is still usable. Any other pod gets the best node as
in a new gang; nodes of faulty pods of the gang are used only if no other node takes the pod.

What the pods leave stays theirs until they are gone, so no place of another pod is among the new ones.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from berth.core.errors import guarded
from berth.core.placement.gang_placement import RoundParts, raise_errors
from berth.core.placement.near_pods import NearPods
from berth.core.placement.round_demand import NeedMoreError
from berth.core.placement.single_pods import SinglePods
from berth.core.requests.block_requests import mixes_freely
from berth.core.requests.gangs import Gang, tasks_in_order
from berth.core.state.ledger import PodShare, pods_of
from berth.schemas.offers import Shape
from berth.schemas.placement import ClaimVolume, Placement, Run, placement_of
from berth.schemas.pod_constraints import PodProfile
from berth.schemas.refusal import Refusal

Scope = Literal["pod", "rank-block", "superpod", "level", "job"]
_NO_ROWS: Final[frozenset[int]] = frozenset()


class LeavingPods(NamedTuple):
    """Pods of a placed gang that get new places.

    Attributes:
        gang: The gang, of its request and the attempt that is placed.
        placement: Place of each of its ranks: the one that it has, or the one that is reserved for it.
        ranks: Ranks that get new places, ascending, at least one.
        faulty: Those of them that are faulty: their nodes are avoided.
        released: Ranks of the gang that own nothing any more. Those of ``ranks`` have no place to return to, others
            keep none.
        scope: What of the gang may move, for gangs with SuperPoD affinity or levels.
        steps: Number of levels by which the scope ``level`` grows around a lost pod.
        failed_nodes: Nodes that failed for the gang before; they are avoided like those of faulty pods.
    """

    gang: Gang
    placement: Placement
    ranks: Sequence[int]
    faulty: Collection[int] = ()
    released: Collection[int] = ()
    scope: Scope = "pod"
    steps: int = 0
    failed_nodes: Collection[str] = ()


class NoPlaces(NamedTuple):
    """Why leaving pods get no places.

    Attributes:
        refusal: The numbers: ``pods_need`` of the pods that leave, ``pods_have`` found a place before the first did
            not.
        ranks: Ranks that keep their places and would have to leave as well, ascending; empty if that is not known to
            help.
    """

    refusal: Refusal
    ranks: Sequence[int] = ()


class _Place(NamedTuple):
    """Node and chips of a rank."""

    row: int
    chips: tuple[int, ...]


def plan_replacements(parts: RoundParts, leaving: LeavingPods, *, missing: Sequence[int] = ()) -> Placement | NoPlaces:
    """New places of leaving pods, in the order of their ranks, or why there are none.

    What the places have is taken from the round; ``parts.roll_back()`` returns it, before anything else is placed. An
    error is returned as the refusal ``internal``.

    Args:
        parts: The round; all shapes of the gang are among its views.
        leaving: The pods.
        missing: Shards that did not answer.

    Raises:
        NeedMoreError: The candidates end before the pods are placed.
    """
    parts.begin_gang()
    return guarded(
        lambda: _planned(parts, leaving, missing),
        lambda error: NoPlaces(parts.returned(leaving.gang, error)),
        passes=(NeedMoreError,),
    )


def replacement_counts(
    leaving: Sequence[LeavingPods], counts: Mapping[Shape, int], *, full: int = 0
) -> dict[Shape, int]:
    """Candidates that a round may need of each shape when leaving pods get new places before its gangs.

    Args:
        leaving: Pods that leave.
        counts: Candidates that the gangs of the round may need (``candidate_counts``).
        full: Nodes that take no further pod, whatever it is.
    """
    pods = sum(len(one.ranks) for one in leaving)
    avoided = max((len(one.faulty) + len(one.failed_nodes) for one in leaving), default=0)
    found = {shape: count + pods if count else 0 for shape, count in counts.items()}
    for shape in dict.fromkeys(shape for one in leaving for shape, _ in one.gang.request_class):
        found[shape] = 0 if shape.needs_marks else max(found.get(shape, 0), pods + avoided + full)
    return found


def _planned(parts: RoundParts, leaving: LeavingPods, missing: Sequence[int]) -> Placement | NoPlaces:
    """As :func:`plan_replacements`.

    Raises:
        Exception: The error with which the scoring of a shape ended.
    """
    gang = leaving.gang
    raise_errors(gang, parts.views)
    if any(shape.is_planned for shape in _shapes(leaving)):
        return _none(parts, leaving, 0, 0, missing)
    chooser = _Chooser(parts, leaving)
    places: dict[int, _Place] = {}
    wanted = frozenset(leaving.ranks)
    for index, ranks in tasks_in_order(gang, plain_last=parts.nodes.scorer.settings.plain_pods):
        shape = gang.request_class[index][0]
        profile = gang.profiles[index] if parts.constrained is not None and gang.profiles else None
        for rank in (rank for rank in ranks if rank in wanted):
            place = chooser.place(rank, shape, profile)
            if place is None:
                parts.roll_back()
                return _none(parts, leaving, index, len(places), missing)
            places[rank] = place
    if any(shape.share is not None for shape, _ in gang.request_class):
        parts.nodes.end_soft_share()
    return _placement(parts, leaving, places)


class _Chooser:
    """Places of the pods of one gang, one by one."""

    def __init__(self, parts: RoundParts, leaving: LeavingPods) -> None:
        self._nodes = parts.nodes
        self._scorer = parts.nodes.scorer
        self._constrained = parts.constrained
        self._leaving = leaving
        self._old: list[PodShare] = pods_of(leaving.placement)
        row_of = self._scorer.table.row_of
        avoided = [self._old[rank].node for rank in sorted(leaving.faulty)] + sorted(leaving.failed_nodes)
        self._avoided = frozenset(row_of[name] for name in avoided if name in row_of)
        self._single = parts.single
        is_full = self._single.is_full
        self._others = SinglePods(
            self._nodes, parts.views, parts.counts, lambda row: row in self._avoided or is_full(row)
        )
        moving = frozenset(leaving.ranks) | frozenset(leaving.released)
        self._with_chips = {
            row_of[pod.node]: None
            for rank, pod in enumerate(self._old)
            if pod.mask and rank not in moving and pod.node in row_of
        }
        self._near: NearPods | None = None

    def place(self, rank: int, shape: Shape, profile: PodProfile | None) -> _Place | None:
        """Place of a rank, with what it takes; None when no node takes it."""
        is_faulty = rank in self._leaving.faulty
        own = None if is_faulty else self._own(rank, shape, profile)
        if own is not None:
            return self._noted(own, shape)
        row = self._best(shape, self._avoided, self._others)
        if row is None and is_faulty:
            own = self._own(rank, shape, profile)
            if own is not None:
                return self._noted(own, shape)
        if row is None and self._avoided:
            row = self._best(shape, _NO_ROWS, self._single)
        if row is None:
            return None
        place = _Place(row, self._nodes.take(row, shape))
        if self._constrained is not None and profile is not None:
            self._constrained.round.add(profile, row)
        return self._noted(place, shape)

    def _noted(self, place: _Place, shape: Shape) -> _Place:
        if shape.chips:
            self._with_chips[place.row] = None
        return place

    def _own(self, rank: int, shape: Shape, profile: PodProfile | None) -> _Place | None:
        """The place that a rank leaves, if its pod can return to it; None otherwise."""
        if rank in self._leaving.released:
            return None
        pod = self._old[rank]
        row = self._scorer.table.row_of.get(pod.node)
        if row is None or not self._nodes.fits_again(row, shape, pod.chips):
            return None
        constrained = self._constrained
        if constrained is not None and profile is not None and not constrained.round.allows_again(profile, shape, row):
            return None
        return _Place(row, pod.chips)

    def _best(self, shape: Shape, avoided: Collection[int], single: SinglePods) -> int | None:
        """Row of the best node for a pod outside of some rows; None when no node takes it."""
        near = self._near_gang(shape)
        if self._constrained is not None and shape.profile is not None:
            groups = near.groups() if near is not None else ()
            return self._constrained.best(shape, None, groups, without=avoided)
        row = near.best(shape) if near is not None else None
        return single.best(shape) if row is None else row

    def _near_gang(self, shape: Shape) -> NearPods | None:
        """Nodes near the pods with chips of the gang, for a pod without chips; None for any other."""
        if shape.chips or not self._with_chips or not mixes_freely(self._scorer.settings):
            return None
        if self._near is None:
            self._near = NearPods(self._nodes, dict(self._with_chips), self._others.is_full)
        return self._near


def runs_of(gang: Gang, ranks: Sequence[int]) -> list[Run]:
    """Runs of some ranks of a gang, ascending; equal neighbours are one run."""
    kinds = [index for index, run in enumerate(gang.runs) for _ in range(run.pods)]
    groups = itertools.groupby(ranks, lambda rank: kinds[rank])
    return [msgspec.structs.replace(gang.runs[index], pods=len(list(group))) for index, group in groups]


def _shapes(leaving: LeavingPods) -> list[Shape]:
    """Shape of each leaving pod."""
    shapes = [shape for shape, pods in leaving.gang.request_class for _ in range(pods)]
    return [shapes[rank] for rank in leaving.ranks]


def _none(parts: RoundParts, leaving: LeavingPods, index: int, placed: int, missing: Sequence[int]) -> NoPlaces:
    refusal = parts.refusals.no_room(leaving.gang, index, placed, missing)
    return NoPlaces(msgspec.structs.replace(refusal, code="no-room", pods_need=len(leaving.ranks)))


def _placement(parts: RoundParts, leaving: LeavingPods, places: Mapping[int, _Place]) -> Placement:
    """Columns of the new places, in the order of ranks."""
    gang, names = leaving.gang, parts.nodes.scorer.table.names
    found = [places[rank] for rank in leaving.ranks]
    return placement_of(
        [names[place.row] for place in found],
        [place.chips for place in found],
        runs_of(gang, leaving.ranks),
        resource=gang.resource,
        share=next((shape.share for shape, _ in gang.request_class if shape.share is not None), None),
        claims=_claims(parts, leaving),
    )


def _claims(parts: RoundParts, leaving: LeavingPods) -> list[ClaimVolume]:
    """Claims of the leaving pods that are not bound, and the volumes that they get."""
    profiles = leaving.gang.pods_in_order()
    if parts.constrained is None or not profiles:
        return []
    return parts.constrained.round.claims_of_gang([profiles[rank] for rank in leaving.ranks])
