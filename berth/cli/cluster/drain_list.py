"""Drains of a cell, folded from its facts and records."""

from berth.cli.cluster.drain_rows import KINDS, DrainedJobRow, DrainRow, HeldRow
from berth.core.overview.drain_list import nodes_at
from berth.core.requests.gangs import is_unowned
from berth.core.state.cell import State
from berth.core.state.ledger import Holding, pods_of
from berth.schemas.fault_facts import DrainKind, DrainSeen


def drains_of(state: State) -> list[DrainRow]:
    """All drains, those that began first at the beginning."""
    known = sorted(state.table.drains.known.values(), key=lambda one: (one.since_ms, KINDS.index(one.kind), one.name))
    return [row_of(state, one) for one in known]


def row_of(state: State, drain: DrainSeen) -> DrainRow:
    """A drain, with the nodes that it concerns and the jobs there."""
    nodes = nodes_at(state, drain)
    return DrainRow(
        kind=drain.kind,
        name=drain.name,
        since_ms=drain.since_ms,
        grace_ms=drain.grace_ms,
        by=drain.by,
        reason=drain.reason,
        asked_ms=drain.at_ms,
        nodes=nodes,
        jobs=_jobs_on(state, nodes),
        force=drain.force,
    )


def known_names(state: State) -> dict[DrainKind, set[str]]:
    """Names of nodes and of the places where nodes are."""
    table = state.table
    found: dict[DrainKind, set[str]] = {kind: set() for kind in KINDS}
    for row in range(len(table)):
        if table.present[row]:
            leaf, superpod = int(table.leaf[row]), int(table.superpod[row])
            found["node"].add(table.names[row])
            if leaf >= 0:
                found["leaf"].add(table.leaves[leaf])
            if superpod >= 0:
                found["superpod"].add(table.superpods[superpod])
    return found


def _is_unowned(state: State, holding: Holding) -> bool:
    job = state.jobs.get((holding.namespace, holding.name))
    return job is not None and job.uid == holding.uid and job.request is not None and is_unowned(job.request)


def _jobs_on(state: State, nodes: list[str]) -> list[DrainedJobRow]:
    named = set(nodes)
    found: list[DrainedJobRow] = []
    for holding in state.fold.holdings.values():
        gone = set(holding.gone)
        places = [
            (rank, share.node)
            for rank, share in enumerate(pods_of(holding.placement))
            if share.node in named and rank not in gone
        ]
        if places:
            outcome = state.outcome_of(holding)
            found.append(
                DrainedJobRow(
                    holding.namespace,
                    holding.name,
                    holding.uid,
                    holding.attempt,
                    [rank for rank, _ in places],
                    sorted({node for _, node in places}),
                    moves=bool(holding.ending or holding.leaving()),
                    held=[HeldRow(one.rank, one.reason) for one in outcome.held] if outcome is not None else [],
                    unowned=_is_unowned(state, holding),
                )
            )
    return sorted(found, key=lambda job: (job.namespace, job.name, job.attempt))
