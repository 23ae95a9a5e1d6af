"""Nodes of a cell, folded from its facts and records."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from berth.cli.cluster.node_rows import NodeRow, row_from
from berth.core.cluster.node_packing import unpack_health
from berth.core.explain.chips_twice import named_twice
from berth.core.explain.evidence import NamedTwice, Reserved
from berth.core.explain.reserved_places import reserved_places
from berth.core.overview.node_list import node_state
from berth.core.state.cell import State
from berth.runtime.bus.port import Bus
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.facts import HealthSeen
from berth.schemas.nodes import NodeCondition
from berth.schemas.subjects import StreamName


class Judged(msgspec.Struct, frozen=True):
    """Health of one node according to the health fact of its domain."""

    condition: NodeCondition
    source: str


async def health_facts(bus: Bus) -> list[bytes]:
    """Latest health fact of each domain.

    Raises:
        TransientError: The bus did not answer.
    """
    return [stored.data for stored in await bus.read(StreamName.LATEST, filters=(bus.subjects.facts("health"),))]


async def judged_nodes(bus: Bus) -> dict[tuple[str, str], Judged]:
    """Latest health by domain and node; facts that do not decode are skipped."""
    return judged_in(await health_facts(bus))


def judged_in(facts: Iterable[bytes]) -> dict[tuple[str, str], Judged]:
    """As :func:`judged_nodes`, of facts that were read already."""
    found: dict[tuple[str, str], Judged] = {}
    for data in facts:
        try:
            fact = decode(data, HealthSeen)
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
    node = node_state(state, row)
    health = of_nodes.judged.get((node.domain, node.name))
    return msgspec.structs.replace(
        row_from(node),
        reason=health.condition.reason if health is not None else "",
        health_source=health.source if health is not None else "",
        updated_ms=health.condition.updated_ms if health is not None else 0,
        reserved=of_nodes.reserved.get(node.name, []),
        unnamed=int(state.table.chips_others[row]),
        twice=of_nodes.twice.get(node.name, []),
    )
