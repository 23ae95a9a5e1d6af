"""New places for pods of a placed gang, while its other pods keep theirs.

A pod that leaves without a fault returns to its own place if that is still usable. Any other pod gets the best node as
in a new gang; nodes of faulty pods of the gang are used only if no other node takes the pod. Gangs with affinity are
planned first, by their topology.

What the pods leave stays theirs until they are gone, so no place of another pod is among the new ones. Only blocks of
an attempt that has ended, and gangs that start anew and find no places otherwise, may get any place of the gang.

Longer than 400 lines because one plan serves all that leave, and each kind of it rests on the same steps.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.errors import guarded
from berth.core.gangs import Gang, tasks_in_order
from berth.core.parity import differs
from berth.core.placement.gang_placement import raise_errors
from berth.core.placement.near_pods import NearPods
from berth.core.placement.planned_pods import RoundParts
from berth.core.placement.round_demand import NeedMoreError, offered_of
from berth.core.placement.single_pods import SinglePods
from berth.core.state.ledger import PodShare, pods_of
from berth.core.topologies.leaving import LeavingPods, OwnPlaces
from berth.core.topologies.planning import Replaced
from berth.core.topologies.registry import topology_of
from berth.schemas.offers import Shape
from berth.schemas.placement import ClaimVolume, Placement, Run, placement_of
from berth.schemas.pod_constraints import PodProfile
from berth.schemas.refusal import Refusal

__all__ = [
    "LeavingPods",
    "NoPlaces",
    "plan_anew",
    "plan_backup",
    "plan_replacements",
    "plan_restart",
    "replacement_counts",
]

_NO_ROWS: Final[frozenset[int]] = frozenset()


class _Place(NamedTuple):
    """Node and chips of a rank."""

    row: int
    chips: tuple[int, ...]


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


def plan_replacements(parts: RoundParts, leaving: LeavingPods, *, missing: Sequence[int] = ()) -> Placement | NoPlaces:
    """New places of leaving pods, in the order of their ranks, or why there are none; of an error, ``internal``.

    What the places have is taken from the round; ``parts.nodes.roll_back_gang()`` returns it, before anything else is
    placed.

    Args:
        parts: The round; all shapes of the gang are among its views.
        leaving: The pods.
        missing: Shards that did not answer.

    Raises:
        NeedMoreError: The candidates end before the pods are placed.
    """
    _begin(parts, leaving)
    return _guarded(parts, leaving, _own_places(parts, leaving), None, missing)


def plan_restart(parts: RoundParts, leaving: LeavingPods, *, missing: Sequence[int]) -> Placement | NoPlaces:
    """Places for all pods of a gang if it started anew, or why there are none; pods may get what others leave.

    Pods that can return do so, as :func:`plan_replacements` has it. Only if there are no places this way, any pod may
    get any place of the gang.

    Args:
        parts: As in :func:`plan_replacements`.
        leaving: All pods of the gang.
        missing: Shards that did not answer.

    Raises:
        NeedMoreError: As in :func:`plan_replacements`.
    """
    found = plan_replacements(parts, leaving, missing=missing)
    return plan_anew(parts, leaving, found, missing=missing) if isinstance(found, NoPlaces) else found


def plan_anew(
    parts: RoundParts, leaving: LeavingPods, none: NoPlaces, *, missing: Sequence[int]
) -> Placement | NoPlaces:
    """As :func:`plan_restart` if there are no places for pods that return; some of those found are still the gang's.

    Args:
        parts: As in :func:`plan_replacements`.
        leaving: All pods of the gang.
        none: Why there are no places if pods return; the answer if there are none otherwise.
        missing: Shards that did not answer.

    Raises:
        NeedMoreError: As in :func:`plan_replacements`.
    """
    if leaving.gang.share is not None:
        return none
    _begin(parts, leaving)
    own = _own_places(parts, leaving)
    opened = _opened(parts, leaving, own, planned_only=False)
    again = _guarded(parts, opened, own, None, missing)
    return none if isinstance(again, NoPlaces) else again


def plan_backup(parts: RoundParts, leaving: LeavingPods, *, missing: Sequence[int] = ()) -> Placement | NoPlaces:
    """Second place for a pod that leaves once its backup runs, or why there is none.

    It is beside the old one: in the same SuperPoD and rack, in the same group of level 1, or below leaf switches by the
    rules of a replacement. Nodes of faulty pods of the gang are not used.

    Source: docs/reference/faults.md, "Hot switch".

    Args:
        parts: As in :func:`plan_replacements`.
        leaving: The pod, as the only rank; its scope is not read.
        missing: Shards that did not answer.

    Raises:
        NeedMoreError: As in :func:`plan_replacements`.
    """
    leaving = leaving._replace(scope="pod", steps=0, faulty=leaving.ranks)
    _begin(parts, leaving)
    own = OwnPlaces(leaving, parts.nodes.scorer.table.row_of, lambda *_: False)
    rank, near = leaving.ranks[0], None
    demand = own.shapes[rank].demand
    if demand is not None:
        near = parts.planned.of(demand).beside(demand, own.row(rank))
    if near is None:
        near = np.ones(len(parts.nodes.scorer.table), np.bool_)
    near[list(own.avoided)] = False
    found = _guarded(parts, leaving, own, near, missing)
    return found._replace(ranks=()) if isinstance(found, NoPlaces) else found


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
    for shape in dict.fromkeys(shape for one in leaving for shape in offered_of(one.gang.request_class)):
        found[shape] = 0 if shape.needs_marks else max(found.get(shape, 0), pods + avoided + full)
    return found


def _begin(parts: RoundParts, leaving: LeavingPods) -> None:
    """Begin with a gang; its soft-share pods are no strangers to their new neighbours."""
    parts.nodes.begin_gang()
    share = leaving.gang.share
    if share is None:
        return
    row_of, gone = parts.nodes.scorer.table.row_of, frozenset(leaving.released)
    own = (pod for rank, pod in enumerate(pods_of(leaving.placement)) if rank not in gone)
    parts.nodes.leave_out(share, [(row_of[pod.node], chip) for pod in own if pod.node in row_of for chip in pod.chips])


def _guarded(
    parts: RoundParts, leaving: LeavingPods, own: OwnPlaces, near: Fits | None, missing: Sequence[int]
) -> Placement | NoPlaces:
    """As :func:`_found`; an error is returned as the refusal ``internal``.

    Raises:
        NeedMoreError: The candidates end before the pods are placed.
    """
    return guarded(
        lambda: _found(parts, leaving, own, near, missing),
        lambda error: NoPlaces(parts.returned(leaving.gang, error)),
        passes=(NeedMoreError,),
    )


def _found(
    parts: RoundParts, leaving: LeavingPods, own: OwnPlaces, near: Fits | None, missing: Sequence[int]
) -> Placement | NoPlaces:
    """New places of leaving pods, or why there are none.

    Args:
        parts: The round.
        leaving: The leaving pods.
        own: Places of the gang.
        near: Rows for the places, shape (rows,); None for all.
        missing: Shards that did not answer.

    Raises:
        Exception: The error with which the scoring of a shape ended.
    """
    gang = leaving.gang
    raise_errors(gang, parts.views)
    if leaving.have_ended and topology_of(gang.demand).keeps_groups:  # plans of others leave its node to each pod
        leaving = _opened(parts, leaving, own)
    planned = _planned(parts, leaving, own, near, missing)
    if isinstance(planned, NoPlaces):
        parts.nodes.roll_back_gang()
        return planned
    chooser = _Chooser(parts, leaving, own, planned.rows, is_strict=near is not None)
    places: dict[int, _Place] = {}
    wanted = frozenset(leaving.ranks)
    for index, ranks in tasks_in_order(gang):
        shape = gang.request_class[index][0]
        profile = gang.profiles[index] if gang.profiles and not parts.marked.round.is_idle else None
        for rank in (rank for rank in ranks if rank in wanted):
            place = chooser.place(rank, shape, profile)
            if place is None:
                parts.nodes.roll_back_gang()
                return _none(parts, leaving, index, len(places), missing)
            places[rank] = place
    taken = {place.row for place in places.values()}
    for rank, row in own.opened.items():
        if row not in taken:  # others get it once the placement of the gang is recorded
            parts.nodes.hold(row, own.shapes[rank], own.pods[rank].chips)
    if gang.share is not None:
        parts.nodes.end_soft_share()
    placement = _placement(parts, leaving, places, planned)
    parts.planned.add(gang, placement, replaces=True)
    return placement


def _own_places(parts: RoundParts, leaving: LeavingPods) -> OwnPlaces:
    """Places of the gang, and those to which its leaving pods can return."""
    nodes, constraints = parts.nodes, parts.marked.round
    profiles = [] if constraints.is_idle else leaving.gang.pods_in_order()

    def returns(rank: int, row: int, pod: PodShare, shape: Shape) -> bool:
        is_other = shape.share is None and len(pod.chips) != shape.chips  # the job asks for something else by now
        if is_other or not nodes.fits_again(row, shape, pod.chips):
            return False
        if leaving.have_ended or not profiles:
            return constraints.allows(shape, row)
        return constraints.allows_again(profiles[rank], shape, row)

    return OwnPlaces(leaving, nodes.scorer.table.row_of, returns)


def _opened(parts: RoundParts, leaving: LeavingPods, own: OwnPlaces, *, planned_only: bool = True) -> LeavingPods:
    """Let go of places to which pods can return, or only planned ones, so that any pod of the gang may get them.

    Returns:
        The pods, none of which owns anything.
    """
    own.open(planned_only=planned_only)
    for rank, row in own.opened.items():
        parts.nodes.let_go(row, own.shapes[rank], own.pods[rank].chips)
    freed = {rank for rank in leaving.ranks if own.shapes[rank].is_planned or not planned_only}
    return leaving._replace(released=sorted(freed.union(leaving.released)))


def _planned(
    parts: RoundParts, leaving: LeavingPods, own: OwnPlaces, near: Fits | None, missing: Sequence[int]
) -> Replaced | NoPlaces:
    """Plan of the leaving pods with affinity; without rows if there are none."""
    shapes = list(dict.fromkeys(own.shapes[rank] for rank in leaving.ranks if own.shapes[rank].is_planned))
    demand = leaving.gang.demand
    if demand is None or not shapes:
        return Replaced()
    index = next(index for index, (shape, _) in enumerate(leaving.gang.request_class) if shape == shapes[0])
    allowed = parts.marked.allowed(shapes)
    if near is not None:
        allowed = near if allowed is None else near & allowed
    found = parts.planned.of(demand).replace(leaving, own, parts.planned.usable(shapes, allowed))
    if isinstance(found, Replaced):
        return found
    none = _none(parts, leaving, index, 0, missing)
    return NoPlaces(found.of(none.refusal), found.ranks)


def _none(parts: RoundParts, leaving: LeavingPods, index: int, placed: int, missing: Sequence[int]) -> NoPlaces:
    """Refusal, with the nodes by reason.

    Args:
        parts: The round.
        leaving: The leaving pods.
        index: Index of the task whose pods found no room.
        placed: How many of the pods had found a place before.
        missing: Shards that did not answer.
    """
    refusal = parts.refusals.no_room(leaving.gang, index, placed, missing)
    return NoPlaces(msgspec.structs.replace(refusal, code="no-room", pods_need=len(leaving.ranks)))


def _placement(parts: RoundParts, leaving: LeavingPods, places: Mapping[int, _Place], planned: Replaced) -> Placement:
    """Columns of the new places, in the order of ranks."""
    gang, names = leaving.gang, parts.nodes.scorer.table.names
    found = [places[rank] for rank in leaving.ranks]
    return placement_of(
        [names[place.row] for place in found],
        [place.chips for place in found],
        runs_of(gang, leaving.ranks),
        resource=gang.resource,
        share=gang.share,
        groups=list(planned.groups),
        claims=_claims(parts, leaving),
    )


def _claims(parts: RoundParts, leaving: LeavingPods) -> list[ClaimVolume]:
    """Claims of the leaving pods that are not bound, and the volumes that they get."""
    if not any(profile.constraints.claims for profile in leaving.gang.profiles):
        return []
    profiles = leaving.gang.pods_in_order()
    return parts.marked.round.claims_of_gang([profiles[rank] for rank in leaving.ranks])


class _Chooser:
    """Places of the pods of one gang, one by one."""

    def __init__(
        self,
        parts: RoundParts,
        leaving: LeavingPods,
        own: OwnPlaces,
        planned: Mapping[int, int],
        *,
        is_strict: bool,
    ) -> None:
        self._nodes = parts.nodes
        self._marked, self._constraints = parts.marked, parts.marked.round
        self._leaving = leaving
        self._own = own
        self._planned = planned
        self._is_strict = is_strict
        self._single = parts.single
        is_full = parts.single.is_full
        self._others = SinglePods(
            parts.nodes, parts.views, parts.counts, lambda row: row in own.avoided or is_full(row)
        )
        self._with_chips = {own.row(rank): None for rank in own.staying if own.pods[rank].mask and own.row(rank) >= 0}
        self._near: NearPods | None = None

    def place(self, rank: int, shape: Shape, profile: PodProfile | None) -> _Place | None:
        """Place of a rank, with what it takes; None when no node takes it."""
        home = self._own.usable(rank)
        row = self._planned.get(rank) if shape.is_planned else self._row(rank, shape, home)
        if row is None:
            return None
        if shape.chips:
            self._with_chips[row] = None
        constraints = self._constraints
        if row == home:
            if self._leaving.have_ended and profile is not None:
                if not constraints.allows(shape, row):
                    return None
                constraints.add(profile, row)
            return _Place(row, self._own.pods[rank].chips)
        if shape.is_planned and not constraints.allows(shape, row):
            return None
        chips = self._nodes.place(row, shape)
        if profile is not None:
            constraints.add(profile, row)
        return _Place(row, chips)

    def _row(self, rank: int, shape: Shape, home: int | None) -> int | None:
        """Node of a pod that is not planned; its own one first if it is not faulty, otherwise before avoided ones."""
        is_faulty = rank in self._leaving.faulty
        if home is not None and not is_faulty:
            return home
        row = self._best(shape, self._own.avoided, self._others)
        if row is None:
            row = home
        if row is None and self._own.avoided and not self._is_strict:
            row = self._best(shape, _NO_ROWS, self._single)
        return row

    def _best(self, shape: Shape, avoided: Collection[int], single: SinglePods) -> int | None:
        """Row of the best node for a pod outside of some rows; None when no node takes it."""
        near = self._near_gang(shape)
        if shape.is_constrained:
            groups = near.groups() if near is not None else ()
            return self._marked.best(shape, None, groups, without=avoided)
        row = near.best(shape) if near is not None else None
        return single.best(shape) if row is None else row

    def _near_gang(self, shape: Shape) -> NearPods | None:
        """Nodes near the pods with chips of the gang, for a pod without chips; None for any other."""
        if shape.chips or not self._with_chips or not differs(self._nodes.scorer.settings).mixed_pods:
            return None
        if self._near is None:
            self._near = NearPods(self._nodes, dict(self._with_chips), self._others.is_full)
        return self._near


def runs_of(gang: Gang, ranks: Sequence[int]) -> list[Run]:
    """Runs of some ranks of a gang, ascending; equal neighbours are one run."""
    kinds = [index for index, run in enumerate(gang.runs) for _ in range(run.pods)]
    groups = itertools.groupby(ranks, lambda rank: kinds[rank])
    return [msgspec.structs.replace(gang.runs[index], pods=len(list(group))) for index, group in groups]
