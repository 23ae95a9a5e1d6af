"""The SuperPoDs as they are drawn: their nodes, the blocks on them, and what is left above the reserve."""

from collections.abc import Iterable, Mapping

import numpy as np

from berth.core.text import pluralize
from berth.core.topologies.blocks.explanation import seats_of, superpods_of, users
from berth.core.topologies.blocks.model import CandidatePool
from berth.core.topologies.blocks.superpod_map import SuperpodMap
from berth.core.topologies.layouts import JobPods, SuperpodUser
from berth.core.topologies.maps import DrawnCell, NodeKind, NodeRow, SuperpodRow, SuperpodsShown, place_kind

_BlockKey = tuple[str, int]
"""Job and block."""


def superpods_shown(index: SuperpodMap, cell: DrawnCell) -> SuperpodsShown:
    """All SuperPoDs in their order."""
    settings = cell.settings
    pool = index.pool(np.ones(len(cell.table), np.bool_))
    jobs = users(cell.table, superpods_of(cell.table, index), cell.jobs)
    blocks = _blocks(cell.jobs)
    return SuperpodsShown(
        super_pod_size=settings.super_pod_size,
        reserve_nodes=settings.reserve_nodes,
        total=len(pool.ids),
        superpods=[_superpod(cell, pool, at, jobs.get(at, []), blocks) for at in range(len(pool.ids))],
    )


def _blocks(jobs: Iterable[JobPods]) -> dict[str, _BlockKey]:
    """Job and block on each node with a block; of several jobs the first by name."""
    found: dict[str, _BlockKey] = {}
    for taken in jobs:
        for pod, seat in zip(taken.owned, seats_of(taken.placement), strict=True):
            if pod.mask and seat is not None:
                found.setdefault(pod.node, (taken.job, seat.block))
    return found


def _superpod(
    cell: DrawnCell, pool: CandidatePool, at: int, jobs: list[SuperpodUser], blocks: Mapping[str, _BlockKey]
) -> SuperpodRow:
    table, settings = cell.table, cell.settings
    rows = pool.rows[pool.starts[at] : pool.starts[at + 1]].tolist()
    kinds = {row: _kind(cell, row) for row in rows}
    free = [row for row in rows if kinds[row] == "free"]
    above = max(len(free) - settings.reserve_nodes, 0)
    kinds |= dict.fromkeys(free[above:], "reserved")  # nodes are selected in this order: the last ones are the reserve
    racks = pool.racks[pool.starts[at] : pool.starts[at + 1]]
    warning = f"it has {pluralize(len(rows), 'node')}, more than the {settings.super_pod_size} of super_pod_size"
    return SuperpodRow(
        id=pool.ids[at],
        free=len(free),
        nodes=len(rows),
        above=above,
        used=int(np.count_nonzero(table.used[rows] | table.releasing[rows])),
        warning=warning if len(rows) > settings.super_pod_size else "",
        jobs=jobs,
        places=[
            NodeRow(
                table.names[row],
                table.racks[table.rack[row]] if table.rack[row] >= 0 else "",
                kinds[row],
                *blocks.get(table.names[row], ("", -1)),
            )
            for row in (rows[place] for place in np.argsort(racks, kind="stable").tolist())
        ],
    )


def _kind(cell: DrawnCell, row: int) -> NodeKind:
    kind = place_kind(cell.table, cell.table.names[row])
    return "unusable" if kind == "none" else kind
