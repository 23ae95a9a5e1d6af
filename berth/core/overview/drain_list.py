"""Drains as programs see them: what is drained, and which jobs are there."""

import numpy as np

from berth.core.overview.fault_log import MayRead, jobs_on
from berth.core.state.cell import State
from berth.schemas.fault_facts import DrainSeen
from berth.schemas.programs.lists import NAMES_MAX, Drain


def known_drains(state: State) -> dict[str, DrainSeen]:
    """Drains in their order, each by the cursor after it."""
    return {f"{kind}/{name}": state.table.drains.known[kind, name] for kind, name in sorted(state.table.drains.known)}


def drain_of(state: State, drain: DrainSeen, may_read: MayRead, *, with_author: bool) -> Drain:
    """A drain as a reader may see it.

    Args:
        state: The cell.
        drain: The drain.
        may_read: Whether the reader may read a namespace.
        with_author: Whether the reader may know who asked for it.
    """
    names = nodes_at(state, drain)
    jobs, more = jobs_on(state, names, may_read)
    return Drain(
        kind=drain.kind,
        name=drain.name,
        since_ms=drain.since_ms,
        grace_ms=drain.grace_ms,
        by=drain.by if with_author else "",
        reason=drain.reason,
        asked_ms=drain.at_ms,
        force=drain.force,
        nodes=len(names),
        names=names[:NAMES_MAX],
        jobs=jobs,
        more_jobs=more,
    )


def nodes_at(state: State, drain: DrainSeen) -> list[str]:
    """Names of the known nodes that a drain concerns, sorted."""
    table = state.table
    if drain.kind == "node":
        row = table.row_of.get(drain.name)
        return [drain.name] if row is not None and table.present[row] else []
    places, at = (table.leaves, table.leaf) if drain.kind == "leaf" else (table.superpods, table.superpod)
    if drain.name not in places:
        return []
    is_there = table.present[: len(table)] & (at[: len(table)] == places.index(drain.name))
    return sorted(table.names[row] for row in np.flatnonzero(is_there).tolist())
