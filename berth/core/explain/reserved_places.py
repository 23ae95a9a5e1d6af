"""Reserved places: chips that no pod uses because a job that recovers from a fault gets them, or gets them back."""

from berth.core.explain.evidence import Reserved
from berth.core.pod_shares import PodShare
from berth.core.state.cell import State


def reserved_places(state: State) -> dict[str, list[Reserved]]:
    """Reserved chips by node; those of a node by job."""
    found: dict[str, list[Reserved]] = {}
    for holding in state.fold.holdings.values():
        if holding.moves:
            _add(found, f"{holding.namespace}/{holding.name}", holding.reserved())
    for held in state.fold.held.values():
        _add(found, f"{held.namespace}/{held.name}", held.places(), until_ms=held.until_ms)
    return {node: sorted(found[node], key=lambda one: (one.job, one.until_ms, one.ranks)) for node in sorted(found)}


def _add(found: dict[str, list[Reserved]], job: str, places: dict[int, PodShare], *, until_ms: int = 0) -> None:
    by_node: dict[str, list[int]] = {}
    for rank in sorted(places):
        by_node.setdefault(places[rank].node, []).append(rank)
    for node, ranks in by_node.items():
        chips = sorted({chip for rank in ranks for chip in places[rank].chips})
        found.setdefault(node, []).append(Reserved(job, ranks, chips, until_ms))
