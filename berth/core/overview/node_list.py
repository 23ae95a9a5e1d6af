"""Nodes as programs see them: their chips, and in detail what runs there and what is broken."""

from bisect import bisect_right
from collections.abc import Iterator

import msgspec
import numpy as np

from berth.core.chips.picking import ids_of
from berth.core.overview.fault_log import FaultLog, MayRead, holdings_on
from berth.core.state.cell import State
from berth.core.state.ledger import Holding
from berth.schemas.facts import NodeHealth
from berth.schemas.programs.replies import JobOnNode, NodeDetails, NodeState
from berth.schemas.programs.requests import NodesRequest


class NodeList:
    """Nodes of a cell by name; the order is kept until a node comes, goes or moves.

    Args:
        state: The cell.
        faults: Faults of its nodes.
    """

    def __init__(self, state: State, faults: FaultLog) -> None:
        self._state = state
        self._faults = faults
        self._revision = -1
        self._names: list[str] = []

    def entries(self, asked: NodesRequest, may_read: MayRead) -> Iterator[tuple[str, NodeState | None]]:
        """Nodes as a reader may see them, by name, each after its name; None for one that is not asked for.

        Args:
            asked: Which ones, and with what.
            may_read: Whether the reader may read a namespace.
        """
        table = self._state.table
        names = sorted(set(asked.names)) if asked.names else self._all()
        for name in names[bisect_right(names, asked.after) :]:
            row = table.row_of.get(name, -1)
            node = None
            if row >= 0 and table.present[row] and self._is_asked(row, asked):
                node = node_state(self._state, row)
                if asked.details:
                    node = msgspec.structs.replace(node, details=self._details(row, may_read))
            yield name, node

    def _is_asked(self, row: int, asked: NodesRequest) -> bool:
        table = self._state.table
        leaf, superpod = table.leaf.item(row), table.superpod.item(row)
        return (
            (not asked.product or table.classes[table.node_class.item(row)].product == asked.product)
            and (not asked.leaf or (leaf >= 0 and table.leaves[leaf] == asked.leaf))
            and (not asked.superpod or (superpod >= 0 and table.superpods[superpod] == asked.superpod))
        )

    def _all(self) -> list[str]:
        table = self._state.table
        if table.layout_revision != self._revision:
            self._names = sorted(table.names[row] for row in np.flatnonzero(table.present[: len(table)]).tolist())
            self._revision = table.layout_revision
        return self._names

    def _details(self, row: int, may_read: MayRead) -> NodeDetails:
        table = self._state.table
        name, rack = table.names[row], table.rack.item(row)
        held, more = holdings_on(self._state, [name], may_read)
        return NodeDetails(
            rack=table.racks[rack] if rack >= 0 else "",
            labels=dict(table.classes[table.node_class.item(row)].labels),
            cpu_milli=table.cpu.item(row),
            cpu_free_milli=table.cpu_free.item(row),
            memory_mib=table.memory.item(row),
            memory_free_mib=table.memory_free.item(row),
            unnamed=table.chips_others.item(row),
            jobs=[_job_on(self._state, one, name) for one in held],
            more_jobs=more,
            faults=self._faults.of_node(name),
        )


def node_state(state: State, row: int) -> NodeState:
    """A node without details.

    Args:
        state: The cell.
        row: Its row of the node table; it is there.
    """
    table = state.table
    key = table.classes[int(table.node_class[row])]
    shares = state.shares.nodes.get(row)
    leaf, superpod, own = int(table.leaf[row]), int(table.superpod[row]), int(table.chips[row])
    return NodeState(
        name=table.names[row],
        product=key.product,
        resource=key.resource,
        domain=table.domains[int(table.domain[row])],
        leaf=table.leaves[leaf] if leaf >= 0 else "",
        superpod=table.superpods[superpod] if superpod >= 0 else "",
        level=NodeHealth(int(table.level[row])).name.lower().replace("_", "-"),
        ready=key.ready,
        cordoned=key.cordoned,
        chips=list(ids_of(own)),
        free=list(ids_of(int(table.free[row]))),
        used=list(ids_of(int(table.used[row]))),
        shared=list(ids_of(shares.mask)) if shares is not None else [],
        releasing=list(ids_of(int(table.releasing[row]))),
        unhealthy=list(ids_of(int(table.unhealthy[row]) & own)),
        network_unhealthy=list(ids_of(int(table.network[row]) & own)),
        withheld=list(ids_of(int(table.withheld[row]) & own)),
        drained_ms=table.drained_ms.get(row, 0),
    )


def _job_on(state: State, holding: Holding, node: str) -> JobOnNode:
    owned = [(rank, pod) for rank, pod in enumerate(state.owned(holding.key)) if pod.node == node]
    mask = 0
    for pod in (*(pod for _, pod in owned), *holding.reserved().values()):
        mask |= pod.mask if pod.node == node else 0
    return JobOnNode(
        namespace=holding.namespace,
        name=holding.name,
        uid=holding.uid,
        ranks=[rank for rank, _ in owned],
        chips=list(ids_of(mask)),
    )
