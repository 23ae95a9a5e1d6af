"""Chips that more than one live pod names, from the facts about pods: nobody is evicted for that."""

from berth.core.chips.picking import named_by_several
from berth.core.explain.evidence import NamedTwice
from berth.core.state.cell import State
from berth.core.state.holdings.pod_phases import ENDED
from berth.schemas.columns import unpack, unpack_names
from berth.schemas.facts import PodsSeen


def named_twice(state: State) -> dict[str, list[NamedTwice]]:
    """Chips that more than one pod names, ascending, by node. Chips that pods share by quota are left out."""
    pods: dict[str, dict[tuple[str, int], int]] = {}
    for fact in state.pods.values():
        _add(pods, fact)
    shared = {state.table.names[row] for row, node in state.shares.nodes.items() if node.enabled}
    found = {node: named_by_several(named) for node, named in sorted(pods.items()) if node not in shared}
    return {
        node: [NamedTwice(chip, sorted(name for name, _ in who)) for chip, who in chips]
        for node, chips in found.items()
        if chips
    }


def _add(pods: dict[str, dict[tuple[str, int], int]], fact: PodsSeen) -> None:
    """Add the chips that live pods of a fact name, by node, by their names and rows."""
    nodes = unpack_names(fact.nodes)
    columns = (unpack(fact.rank, 4), unpack(fact.node_index, 4), fact.phase, unpack(fact.chips, 8))
    for row, (rank, index, phase, mask) in enumerate(zip(*columns, strict=True)):
        name = f"{fact.namespace}/{fact.gang.removeprefix('pod/')}"
        if mask and phase not in ENDED:
            pods.setdefault(nodes[index], {})[name if fact.foreign else f"{name} rank {rank}", row] = mask
