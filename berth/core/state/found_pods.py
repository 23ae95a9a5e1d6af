"""Places of pods as facts show them.

The ledger does not know these pods: another scheduler placed them, or a record that is lost.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from berth.core.chips.picking import ids_of
from berth.core.cluster.node_table import NodeTable
from berth.core.state.holdings.holding import PodShare
from berth.core.state.holdings.pod_phases import ENDED
from berth.core.superpods.model import superpod_key
from berth.core.switches.occupancy.leaf_states import LARGE, NORMAL
from berth.schemas.columns import pack, pack_names, unpack, unpack_names
from berth.schemas.facts import PodsSeen
from berth.schemas.placement import BlockPart, Placement, Run, SwitchPart

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
    return Placement(
        nodes=pack_names(names),
        node_index=fact.node_index,
        runs=runs,
        chips=bytes(taken),
        resource=fact.resource,
        switch=_switch_of(fact, runs),
        block=_block_of(table, fact, [names[index] for index in unpack(fact.node_index, 4)], runs),
    )


def _switch_of(fact: PodsSeen, runs: Sequence[Run]) -> SwitchPart | None:
    """States of leaf switches from the annotations of adopted pods; None without any.

    Pods whose job alone bears the label, not they, have the states all the same.
    """
    given = fact.leaf_states or bytes(len(runs))
    states = bytes(state if run.chips else 0 for run, state in zip(runs, given, strict=True))
    label = fact.tor_affinity if fact.tor_affinity in {NORMAL, LARGE} else ""
    pods = sum(1 for run in runs if run.chips)
    if not pods or not (label or any(states)):
        return None
    return SwitchPart(label, pods, states=states)


def _block_of(table: NodeTable, fact: PodsSeen, nodes: Sequence[str], runs: Sequence[Run]) -> BlockPart | None:
    """Blocks and inference service from the annotations of adopted pods; None without any.

    The SuperPoD of a pod with a block is that of its node, as far as it is known. What is not known of the job, its
    variant and the size of a block, stays open.
    """
    numbers = unpack(fact.blocks, _INDEX_BYTES) or [0] * len(runs)
    numbers = [number if run.chips else 0 for run, number in zip(runs, numbers, strict=True)]
    if not any(run.chips for run in runs) or not (fact.service or any(numbers)):
        return None
    homes = [_superpod(table, node) if number else "" for node, number in zip(nodes, numbers, strict=True)]
    blocks = sorted({number - 1 for number in numbers if number})
    block_at = {block: place for place, block in enumerate(blocks, start=1)}
    superpods = sorted({home for home in homes if home}, key=superpod_key)
    superpod_at = {home: place for place, home in enumerate(superpods, start=1)}
    return BlockPart(
        variant="",
        size=0,
        blocks=blocks,
        phases=[""] * len(blocks),
        superpods=superpods,
        block_index=pack([block_at.get(number - 1, 0) for number in numbers], _INDEX_BYTES),
        superpod_index=pack([superpod_at.get(home, 0) for home in homes], _INDEX_BYTES),
        service=fact.service,
    )


def _superpod(table: NodeTable, node: str) -> str:
    """SuperPoD of a node as it is known now; empty without one."""
    row = table.row_of.get(node)
    index = -1 if row is None else int(table.superpod[row])
    return table.superpods[index] if index >= 0 else ""
