"""Nodes of a cell, folded from its facts and records."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from berth.cli.cluster.node_rows import NodeRow, group_size
from berth.core.chips.picking import ids_of
from berth.core.cluster.node_packing import unpack_health
from berth.core.explain.chips_twice import named_twice
from berth.core.explain.evidence import NamedTwice, Reserved
from berth.core.explain.reserved_places import reserved_places
from berth.core.state.cell import State
from berth.runtime.bus.port import Bus
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.facts import HealthSeen, NodeHealth
from berth.schemas.nodes import NodeCondition
from berth.schemas.subjects import StreamName


class Judged(msgspec.Struct, frozen=True):
    """Health of one node according to the health fact of its domain."""

    condition: NodeCondition
    source: str


async def judged_nodes(bus: Bus) -> dict[tuple[str, str], Judged]:
    """Latest health by domain and node; facts that do not decode are skipped."""
    found: dict[tuple[str, str], Judged] = {}
    for stored in await bus.read(StreamName.LATEST, filters=(bus.subjects.facts("health"),)):
        try:
            fact = decode(stored.data, HealthSeen)
            rows = unpack_health(fact)
        except (DecodeError, ValueError, IndexError):
            continue
        found.update({(fact.domain, row.name): Judged(row, fact.source) for row in rows})
    return found


def rows_of(state: State, judged: Mapping[tuple[str, str], Judged] | None = None) -> list[NodeRow]:
    """All nodes by product and name.

    Args:
        state: State of the cell.
        judged: Result of :func:`judged_nodes`; None omits reasons.
    """
    table = state.table
    of_nodes = _OfNodes(judged or {}, reserved_places(state), named_twice(state))
    found = [_row(state, row, of_nodes) for row in range(len(table)) if table.present[row]]
    return sorted(found, key=lambda node: (node.product, node.name))


class _OfNodes(NamedTuple):
    """What is known of nodes beside their columns."""

    judged: Mapping[tuple[str, str], Judged]
    reserved: Mapping[str, list[Reserved]]
    twice: Mapping[str, list[NamedTwice]]


def _row(state: State, row: int, of_nodes: _OfNodes) -> NodeRow:
    table = state.table
    domain = table.domains[int(table.domain[row])]
    health = of_nodes.judged.get((domain, table.names[row]))
    key = table.classes[int(table.node_class[row])]
    shares = state.shares.nodes.get(row)
    leaf, superpod = int(table.leaf[row]), int(table.superpod[row])
    return NodeRow(
        name=table.names[row],
        product=key.product,
        resource=key.resource,
        domain=domain,
        leaf=table.leaves[leaf] if leaf >= 0 else "",
        superpod=table.superpods[superpod] if superpod >= 0 else "",
        chips=int(table.capacity[row]),
        group_size=group_size(key.product),
        free=list(ids_of(int(table.free[row]))),
        used=list(ids_of(int(table.used[row]))),
        shared=list(ids_of(shares.mask)) if shares is not None else [],
        releasing=list(ids_of(int(table.releasing[row]))),
        unhealthy=list(ids_of(int(table.unhealthy[row]) & int(table.chips[row]))),
        network_unhealthy=list(ids_of(int(table.network[row]) & int(table.chips[row]))),
        level=NodeHealth(int(table.level[row])).name.lower().replace("_", "-"),
        ready=key.ready,
        cordoned=key.cordoned,
        chip_ids=list(ids_of(int(table.chips[row]))),
        withheld=list(ids_of(int(table.withheld[row]) & int(table.chips[row]))),
        reason=health.condition.reason if health is not None else "",
        health_source=health.source if health is not None else "",
        updated_ms=health.condition.updated_ms if health is not None else 0,
        drained_ms=table.drained_ms.get(row, 0),
        reserved=of_nodes.reserved.get(table.names[row], []),
        unnamed=int(table.chips_others[row]),
        twice=of_nodes.twice.get(table.names[row], []),
    )
