"""Places of pods as facts show them.

The ledger does not know these pods: another scheduler placed them, or a record that is lost.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from berth.core.chips.picking import ids_of
from berth.core.cluster.node_table import NodeTable
from berth.core.pod_shares import PodShare, pods_at, pods_of
from berth.core.state.holdings.holding import Holding
from berth.core.state.holdings.mounted_chips import Claim
from berth.core.state.holdings.pod_phases import ENDED, STEP_MAX, steps_of
from berth.core.state.holdings.steps import RECORD_LOST
from berth.core.topologies.families import family_of
from berth.core.topologies.port import FoundPods
from berth.core.topologies.registry import TOPOLOGIES
from berth.schemas.columns import pack, pack_names, unpack, unpack_names
from berth.schemas.facts import PodPhase, PodsSeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Correction
from berth.schemas.placement import Placement, Run, placement_of
from berth.schemas.recovery import Recovery, Scope

_INDEX_BYTES: Final = 2


def note_short(short: dict[str, None], fact: PodsSeen, pods: Sequence[PodShare]) -> None:
    """Note whether pods of another scheduler hold chips that have another owner, for when these are given back."""
    rows = zip(fact.phase, unpack(fact.chips, 8), pods, strict=True)
    if any(mask & ~pod.mask for phase, mask, pod in rows if phase not in ENDED):
        short[fact.uid] = None
    else:
        short.pop(fact.uid, None)


def placement_of_pods(
    table: NodeTable,
    held: Callable[[str], int],
    fact: PodsSeen,
    given: Iterable[Placement],
    owned: Iterable[PodShare] = (),
) -> Placement:
    """Placement of pods as they were found: without those that have ended, and without chips that others own.

    Args:
        table: The nodes.
        held: Chips of a node that have an owner, as a mask.
        fact: The pods.
        given: What the same record gives owners before.
        owned: What the pods own already.
    """
    names = unpack_names(fact.nodes)
    own: dict[str, int] = {}
    for pod in owned:
        own[pod.node] = own.get(pod.node, 0) | pod.mask
    claimed = {
        (node, chip)
        for placement in given
        for node, chips in zip(placement.names(), placement.chips_by_rank(), strict=True)
        for chip in chips
    }
    runs: list[Run] = []
    taken = bytearray()
    for index, phase, mask in zip(unpack(fact.node_index, 4), fact.phase, unpack(fact.chips, 8), strict=True):
        node = names[index]
        ids: list[int] = []
        if phase not in ENDED:
            mine = mask & ~(held(node) & ~own.get(node, 0))
            ids = [chip for chip in ids_of(mine) if (node, chip) not in claimed]
            claimed.update((node, chip) for chip in ids)
            runs.append(Run(1, len(ids), fact.cpu_milli, fact.memory_mib))
        else:
            runs.append(Run(1, 0))
        taken += bytes(ids)
    nodes = [names[index] for index in unpack(fact.node_index, 4)]
    found = FoundPods(table, fact, nodes, runs)
    groups = [topology.adopted(found) for topology in TOPOLOGIES]
    return Placement(
        nodes=pack_names(names),
        node_index=fact.node_index,
        runs=runs,
        chips=bytes(taken),
        resource=fact.resource,
        groups=[part for part in groups if part is not None],
    )


def asked_by(request: JobRequest) -> list[Task]:
    """What each rank of a job asks for."""
    return [task for task in request.tasks for _ in range(task.replicas)]


def with_lost_ranks(fact: PodsSeen, chips: Sequence[int]) -> PodsSeen | None:
    """A fact with a row for each rank: those of which it has none have a pod that is gone.

    Args:
        fact: Pods of an attempt.
        chips: How many chips each rank asks for.

    Returns:
        None if the fact has ranks that the attempt has not, a rank twice, or a pod with another number of chips.
    """
    ranks, masks = unpack(fact.rank, 4), unpack(fact.chips, 8)
    rows = {rank: row for row, rank in enumerate(ranks)}
    if len(rows) != len(ranks) or any(rank >= len(chips) for rank in ranks):
        return None
    if any(masks[row].bit_count() != chips[rank] for rank, row in rows.items()):
        return None
    whole = _rows_of(fact, [rows.get(rank, 0) for rank in range(len(chips))])
    return msgspec.structs.replace(
        whole,
        phase=bytes(fact.phase[rows[rank]] if rank in rows else PodPhase.GONE for rank in range(len(chips))),
        chips=pack([masks[rows[rank]] if rank in rows else 0 for rank in range(len(chips))], 8),
    )


def claims_of(holding: Holding, owned: Sequence[PodShare], seen: PodsSeen) -> Iterator[Claim]:
    """Ranks of an attempt whose pods live and name chips that they do not own.

    Pods of others that name another number of chips are left out: they are adopted anew. So are pods that name more
    chips than they own, but for those of ranks that own a part of what they name.

    Args:
        holding: The attempt.
        owned: What each rank owns.
        seen: Its pods in the cluster.
    """
    ranks, chips = unpack(seen.rank, 4), unpack(seen.chips, 8)
    if not any(rank < len(owned) and named & ~owned[rank].mask for rank, named in zip(ranks, chips, strict=True)):
        return  # as nearly always
    names, indexes = unpack_names(seen.nodes), unpack(seen.node_index, 4)
    for rank, phase, step, index, named in zip(ranks, seen.phase, steps_of(seen), indexes, chips, strict=True):
        if phase in ENDED or rank >= len(owned) or not holding.step_of(rank) <= step <= holding.step:
            continue
        if not owned[rank].pods:
            continue  # it has given back what it owned
        pod = owned[rank]
        counts = (named.bit_count(), pod.mask.bit_count())
        if names[index] != pod.node or not named & ~pod.mask or (counts[0] > counts[1] and pod.mask & ~named):
            continue
        if not holding.foreign or counts[0] == counts[1]:
            yield Claim(holding.uid, holding.attempt, rank, pod.node, named, pod.mask)


def placement_at(node: str, mask: int) -> Placement:
    """Chips of one node as a placement of one pod."""
    chips = ids_of(mask)
    return placement_of([node], [chips], [Run(1, len(chips))], resource="")


def corrections_of(chips: Mapping[Claim, int]) -> list[Correction]:
    """Entries that give ranks other chips, in the order of gangs."""
    of_gang: dict[tuple[str, int], dict[int, list[int]]] = {}
    for claim, mask in chips.items():
        of_gang.setdefault((claim.uid, claim.attempt), {})[claim.rank] = list(ids_of(mask))
    return [
        Correction(uid, attempt, sorted(of_rank), [of_rank[rank] for rank in sorted(of_rank)])
        for (uid, attempt), of_rank in sorted(of_gang.items())
    ]


def left_before(holding: Holding, seen: PodsSeen) -> list[int]:
    """Ranks that leave, ascending, and whose pod runs that was bound after that: the record of their release is lost.

    Args:
        holding: The attempt.
        seen: Its pods in the cluster.
    """
    leaving = holding.leaving()
    rows = zip(unpack(seen.rank, 4), seen.phase, steps_of(seen), strict=True) if leaving else ()
    return sorted(rank for rank, phase, step in rows if phase not in ENDED and 0 < leaving.get(rank, 0) <= step)


def step_of_pods(
    table: NodeTable,
    held: Callable[[str], int],
    holding: Holding,
    seen: PodsSeen,
    asked: Sequence[int],
    given: Iterable[Placement],
    short: dict[str, None],
    *,
    at_ms: int,
) -> Recovery | None:
    """The first step of a recovery that an attempt does not know, and for which pods of it run, with their places.

    The record of that step is lost. Steps after it are for later records. Chips that others own are not among the
    places; they follow when these give them back.

    Args:
        table: The nodes.
        held: Chips of a node that have an owner, as a mask.
        holding: The attempt.
        seen: Its pods in the cluster.
        asked: How many chips each rank asks for.
        given: What the same record gives owners before.
        short: Gangs (uid) whose pods hold chips of other owners; the gang is added, or removed.
        at_ms: The moment.

    Returns:
        The step; None without one, or if a pod names another number of chips than its rank owns and asks for, or has
        a share of one.
    """
    ranks = unpack(seen.rank, 4)
    rows = _rows_after(holding, ranks, seen)
    if not rows or holding.placement.share is not None:
        return None
    rows.sort(key=ranks.__getitem__)
    ranks, part = [ranks[row] for row in rows], _rows_of(seen, rows)
    base, reserved = pods_at(holding.placement, ranks), holding.reserved()
    named = map(int.bit_count, unpack(part.chips, 8))
    if any(count not in {asked[rank], len(base[rank].chips)} for count, rank in zip(named, ranks, strict=True)):
        return None
    own = [base[rank] for rank in ranks if rank not in holding.gone]
    own += [reserved[rank] for rank in ranks if rank in reserved]
    placement = placement_of_pods(table, held, part, given, own)
    note_short(short, part, pods_of(placement))
    chips = placement.chips_by_rank()
    places = placement_of(
        placement.names(),
        chips,
        [Run(1, len(ids), base[rank].cpu_milli, base[rank].memory_mib) for ids, rank in zip(chips, ranks, strict=True)],
        resource=holding.placement.resource,
        groups=placement.groups,
    )
    cause = "the record of this step is lost; its pods run where they were found"
    return _lost_step(holding, steps_of(seen)[rows[0]], "pod", ranks, cause, places, at_ms)


def restart_of(holding: Holding, step: int, ranks: Sequence[int], *, at_ms: int) -> Recovery:
    """The step that starts a job anew whose record is lost, and of which some pods are gone since.

    Args:
        holding: The attempt.
        step: Number of the step.
        ranks: The ranks of these pods, ascending.
        at_ms: The moment.
    """
    cause = "its record is lost, and some of its pods were deleted since"
    return _lost_step(holding, step, "job", ranks, cause, None, at_ms)


def _lost_step(
    holding: Holding, step: int, scope: Scope, ranks: Sequence[int], cause: str, places: Placement | None, at_ms: int
) -> Recovery:
    return Recovery(
        namespace=holding.namespace,
        name=holding.name,
        uid=holding.uid,
        attempt=holding.attempt,
        step=step,
        kind=RECORD_LOST,
        cause=cause,
        scope=scope,
        how="force",
        ranks=list(ranks),
        faulty=[],
        since_ms=at_ms,
        placement=places,
    )


def _rows_after(holding: Holding, ranks: Sequence[int], seen: PodsSeen) -> list[int]:
    """Rows of the pods that run for the first step after the newest of their attempt."""
    pods = holding.placement.pods()
    rows = enumerate(zip(ranks, seen.phase, steps_of(seen), strict=True))
    newer = [
        (step, row)
        for row, (rank, phase, step) in rows
        if holding.step < step <= STEP_MAX and rank < pods and phase not in ENDED
    ]
    first = min(newer, default=(0, 0))[0]
    return [row for step, row in newer if step == first]


def _rows_of(fact: PodsSeen, rows: Sequence[int]) -> PodsSeen:
    """A fact about some of its pods, in the order given."""
    leaf_states, blocks = fact.leaf_states, unpack(fact.blocks, _INDEX_BYTES)
    indexes, chips = unpack(fact.node_index, 4), unpack(fact.chips, 8)
    return msgspec.structs.replace(
        fact,
        rank=pack(range(len(rows)), 4),
        node_index=pack([indexes[row] for row in rows], 4),
        phase=bytes(fact.phase[row] for row in rows),
        chips=pack([chips[row] for row in rows], 8),
        leaf_states=bytes(leaf_states[row] for row in rows) if leaf_states else b"",
        blocks=pack([blocks[row] for row in rows], _INDEX_BYTES) if blocks else b"",
        steps=b"",
    )


def properties_of(
    pods: Sequence[PodShare], placement: Placement
) -> tuple[dict[str, str], list[tuple[str, int, int, int, list[tuple[str, int, int]]]]]:
    """Properties of adopted pods: labels of topologies, and those of each pod; empty ones are left out.

    Their groups are not among them: nodes define these, now and later.
    """
    groups = [(family_of(part.topology), part) for part in placement.groups]
    parts = [(family, part.states, part.parts, unpack(part.part_index, _INDEX_BYTES)) for family, part in groups]

    def seats(rank: int) -> list[tuple[str, int, int]]:
        found = [
            (family, states[rank] if states else 0, numbers[index[rank] - 1] if index and index[rank] else -1)
            for family, states, numbers, index in parts
        ]
        return [seat for seat in found if seat[1:] != (0, -1)]

    rows = [
        (pod.node, pod.mask, pod.cpu_milli, pod.memory_mib, seats(rank) if pod.mask else [])
        for rank, pod in enumerate(pods)
        if pod.mask or pod.cpu_milli or pod.memory_mib
    ]
    return {family: part.label for family, part in groups if part.label}, rows
