"""Chips that more than one live pod names, from the facts about pods: nobody is evicted for that."""

import msgspec

from berth.core.state.cell import State
from berth.core.state.holdings.pod_phases import ENDED
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.facts import PodsSeen


class NamedTwice(msgspec.Struct, frozen=True):
    """A chip that more than one pod names."""

    chip: int
    pods: list[str]
    """``namespace/pod`` of another scheduler, or ``namespace/job rank 3``; sorted."""


def named_twice(state: State) -> dict[str, list[NamedTwice]]:
    """Chips that more than one pod names, ascending, by node. Chips that pods share by quota are left out."""
    pods: dict[tuple[str, int], list[str]] = {}
    for fact in state.pods.values():
        _add(pods, fact)
    shared = {state.table.names[row] for row, node in state.shares.nodes.items() if node.enabled}
    found: dict[str, list[NamedTwice]] = {}
    for (node, chip), names in sorted(pods.items()):
        if len(names) > 1 and node not in shared:
            found.setdefault(node, []).append(NamedTwice(chip, sorted(names)))
    return found


def _add(pods: dict[tuple[str, int], list[str]], fact: PodsSeen) -> None:
    nodes = unpack_names(fact.nodes)
    columns = (unpack(fact.rank, 4), unpack(fact.node_index, 4), fact.phase, unpack(fact.chips, 8))
    for rank, index, phase, mask in zip(*columns, strict=True):
        name = f"{fact.namespace}/{fact.gang.removeprefix('pod/')}"
        for chip in range(mask.bit_length() if phase not in ENDED else 0):
            if mask >> chip & 1:
                pods.setdefault((nodes[index], chip), []).append(name if fact.foreign else f"{name} rank {rank}")
