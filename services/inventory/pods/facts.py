"""Facts of bound pods: columns made of what is known rank by rank, and read back. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from berth.schemas.columns import pack, pack_names, unpack, unpack_names
from berth.schemas.facts import PodPhase, PodsSeen
from berth.schemas.units import UnixMs
from berth.services.inventory.pods.rows import ENDED, Row


class PodEntry(NamedTuple):
    """A rank as it was last seen.

    ``taken``: 1 once the device plug-in has given the pod its chips, or needs not; ``leaf_state`` and ``block``, plus one:
    of the pod's annotations.
    """

    node: str
    phase: PodPhase
    chips: int
    taken: int = 1
    leaf_state: int = 0
    block: int = 0

    @property
    def once_gone(self) -> "PodEntry":
        """The rank when its pod is not there any more: one that ended stays as it ended."""
        return self if self.phase in ENDED else self._replace(phase=PodPhase.GONE, taken=1)


class Alike(NamedTuple):
    """What all pods of a fact have in common."""

    resource: str = ""
    cpu_milli: int = 0
    memory_mib: int = 0
    tor_affinity: str = ""
    service: str = ""


def alike(rows: Mapping[int, Row], said: PodsSeen | None) -> Alike:
    """What pods, by rank, have in common; as it was said before where none of them tells.

    Args:
        rows: The pods that there are.
        said: What was said last of the same attempt.
    """
    known = [rows[rank] for rank in sorted(rows)]
    before = Alike()
    if said is not None:
        before = Alike(said.resource, said.cpu_milli, said.memory_mib, said.tor_affinity, said.service)
    return Alike(
        next((row.resource for row in known if row.resource), before.resource),
        known[0].cpu_milli if known else before.cpu_milli,
        known[0].memory_mib if known else before.memory_mib,
        next((row.tor_affinity for row in known if row.tor_affinity), before.tor_affinity),
        next((row.service for row in known if row.service), before.service),
    )


def pods_fact(
    gang: tuple[str, str],
    attempt: tuple[str, int],
    told: Mapping[int, PodEntry],
    common: Alike,
    *,
    foreign: bool = False,
    at_ms: UnixMs,
) -> PodsSeen:
    """Fact of pods.

    Args:
        gang: Namespace and name.
        attempt: Uid and attempt.
        told: The pods, by rank.
        common: What they have in common.
        foreign: Another scheduler placed them.
        at_ms: The time.
    """
    ranks = sorted(told)
    table = sorted({told[rank].node for rank in ranks})
    index = {name: place for place, name in enumerate(table)}
    states = bytes(told[rank].leaf_state for rank in ranks)
    blocks = [told[rank].block for rank in ranks]
    return PodsSeen(
        namespace=gang[0],
        gang=gang[1],
        uid=attempt[0],
        attempt=attempt[1],
        rank=pack(ranks, 4),
        nodes=pack_names(table),
        node_index=pack([index[told[rank].node] for rank in ranks], 4),
        phase=pack([told[rank].phase for rank in ranks], 1),
        chips=pack([told[rank].chips for rank in ranks], 8),
        resource=common.resource,
        cpu_milli=common.cpu_milli,
        memory_mib=common.memory_mib,
        foreign=foreign,
        at_ms=at_ms,
        consumed=bytes(told[rank].taken for rank in ranks),
        tor_affinity=common.tor_affinity,
        leaf_states=states if any(states) else b"",
        service=common.service,
        blocks=pack(blocks, 2) if any(blocks) else b"",
    )


def entries_of(seen: PodsSeen) -> list[tuple[int, PodEntry]]:
    """Ranks of a fact, in its order."""
    table = unpack_names(seen.nodes)
    states = seen.leaf_states or bytes(len(seen.phase))
    blocks = unpack(seen.blocks or bytes(2 * len(seen.phase)), 2)
    rows = zip(
        unpack(seen.rank, 4),
        unpack(seen.node_index, 4),
        seen.phase,
        unpack(seen.chips, 8),
        states,
        blocks,
        strict=True,
    )
    return [
        (rank, PodEntry(table[index], PodPhase(phase), chips, leaf_state=state, block=block))
        for rank, index, phase, chips, state, block in rows
    ]
