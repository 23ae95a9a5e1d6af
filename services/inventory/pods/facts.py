"""Facts of bound pods: columns packed from the state of each rank, and unpacked again. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from berth.schemas.columns import pack, pack_names, unpack, unpack_names
from berth.schemas.facts import PodMarks, PodPhase, PodsSeen
from berth.schemas.fault_facts import joined
from berth.schemas.units import UnixMs
from berth.services.inventory.pod_rows import ENDED, PodRow


class RankState(NamedTuple):
    """Last observed state of a rank.

    ``taken``: 1 after the device plug-in has allocated the pod's chips, or if it needs none. ``leaf_state`` and
    ``block`` (plus one) are those of the pod's annotations. ``exit_code``, ``marks`` and ``rejection`` tell its faults.
    ``step``: that of the recovery for which it was bound.
    """

    node: str
    phase: PodPhase
    chips: int
    taken: int = 1
    leaf_state: int = 0
    block: int = 0
    exit_code: int = 0
    marks: tuple[tuple[str, str], ...] = ()
    step: int = 0
    rejection: int = 0

    @property
    def once_gone(self) -> "RankState":
        """State of the rank after its pod is gone; a finished rank keeps its phase."""
        return self if self.phase in ENDED else self.ended(PodPhase.GONE)

    def ended(self, phase: PodPhase) -> "RankState":
        """State of the rank after its pod is gone: its last phase, or that it is gone and has no faults."""
        if phase == PodPhase.GONE:
            return self._replace(phase=phase, taken=1, exit_code=0, marks=())
        return self._replace(phase=phase, taken=1)


class CommonFields(NamedTuple):
    """Values that all pods of a fact share.

    ``checkpoint_ms``: when their gang last saved its work; 0 if nothing says so. ``budgets``: disruption budgets that
    do not allow that all of them go.
    """

    resource: str = ""
    cpu_milli: int = 0
    memory_mib: int = 0
    tor_affinity: str = ""
    service: str = ""
    steering: Mapping[str, str] = {}
    owner: str = ""
    checkpoint_ms: UnixMs = 0
    budgets: Sequence[str] = ()


def common_fields(rows: Mapping[int, PodRow], published: PodsSeen | None) -> CommonFields:
    """Values that pods share; the published ones where no pod states a value.

    Args:
        rows: Existing pods, by rank.
        published: Published fact of the same attempt.
    """
    known = [rows[rank] for rank in sorted(rows)]
    before = CommonFields()
    if published is not None:
        before = CommonFields(
            published.resource,
            published.cpu_milli,
            published.memory_mib,
            published.tor_affinity,
            published.service,
            published.steering,
            published.owner,
        )
    return CommonFields(
        next((row.resource for row in known if row.resource), before.resource),
        known[0].cpu_milli if known else before.cpu_milli,
        known[0].memory_mib if known else before.memory_mib,
        next((row.tor_affinity for row in known if row.tor_affinity), before.tor_affinity),
        next((row.service for row in known if row.service), before.service),
        joined(row.steering for row in known if row.steering) if known else before.steering,
        next((row.owner for row in known), before.owner),
    )


def pods_fact(
    gang: tuple[str, str],
    attempt: tuple[str, int],
    by_rank: Mapping[int, RankState],
    common: CommonFields,
    *,
    foreign: bool = False,
    job: tuple[str, str] = ("", ""),
    queue: str = "",
    at_ms: UnixMs,
) -> PodsSeen:
    """Fact about pods.

    Args:
        gang: Namespace and name.
        attempt: Uid and attempt.
        by_rank: State of the pods, by rank.
        common: Values that they share.
        foreign: Another scheduler placed them.
        job: Name and uid of the job of which a foreign pod may be; empty without.
        queue: Queue of a foreign pod; empty without.
        at_ms: The time.
    """
    ranks = sorted(by_rank)
    table = sorted({by_rank[rank].node for rank in ranks})
    index = {name: place for place, name in enumerate(table)}
    states = bytes(by_rank[rank].leaf_state for rank in ranks)
    blocks = [by_rank[rank].block for rank in ranks]
    codes = [by_rank[rank].exit_code for rank in ranks]
    steps = [by_rank[rank].step for rank in ranks]
    rejections = bytes(by_rank[rank].rejection for rank in ranks)
    return PodsSeen(
        namespace=gang[0],
        gang=gang[1],
        uid=attempt[0],
        attempt=attempt[1],
        rank=pack(ranks, 4),
        nodes=pack_names(table),
        node_index=pack([index[by_rank[rank].node] for rank in ranks], 4),
        phase=pack([by_rank[rank].phase for rank in ranks], 1),
        chips=pack([by_rank[rank].chips for rank in ranks], 8),
        resource=common.resource,
        cpu_milli=common.cpu_milli,
        memory_mib=common.memory_mib,
        foreign=foreign,
        at_ms=at_ms,
        consumed=bytes(by_rank[rank].taken for rank in ranks),
        tor_affinity=common.tor_affinity,
        leaf_states=states if any(states) else b"",
        service=common.service,
        blocks=pack(blocks, 2) if any(blocks) else b"",
        exit_codes=pack(codes, 4) if any(codes) else b"",
        marks=[PodMarks(rank, dict(by_rank[rank].marks)) for rank in ranks if by_rank[rank].marks],
        steering=dict(common.steering),
        steps=pack(steps, 4) if any(steps) else b"",
        job=job[0],
        job_uid=job[1],
        rejections=rejections if any(rejections) else b"",
        owner=common.owner if any(rejections) else "",
        queue=queue,
        checkpoint_ms=common.checkpoint_ms,
        budgets=list(common.budgets),
    )


def rank_states(seen: PodsSeen) -> list[tuple[int, RankState]]:
    """Ranks of a fact, in its order."""
    table = unpack_names(seen.nodes)
    states = seen.leaf_states or bytes(len(seen.phase))
    blocks = unpack(seen.blocks or bytes(2 * len(seen.phase)), 2)
    codes = unpack(seen.exit_codes or bytes(4 * len(seen.phase)), 4)
    steps = unpack(seen.steps or bytes(4 * len(seen.phase)), 4)
    rejections = seen.rejections or bytes(len(seen.phase))
    marks = {one.rank: tuple(one.values.items()) for one in seen.marks}
    rows = zip(
        unpack(seen.rank, 4),
        unpack(seen.node_index, 4),
        seen.phase,
        unpack(seen.chips, 8),
        states,
        blocks,
        codes,
        steps,
        rejections,
        strict=True,
    )
    return [
        (
            rank,
            RankState(
                table[index],
                PodPhase(phase),
                chips,
                leaf_state=state,
                block=block,
                exit_code=code,
                marks=marks.get(rank, ()),
                step=step,
                rejection=rejection,
            ),
        )
        for rank, index, phase, chips, state, block, code, step, rejection in rows
    ]
