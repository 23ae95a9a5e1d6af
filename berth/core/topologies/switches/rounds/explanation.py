"""Explains gangs with switch affinity: the leaf switches of a placed gang, or the nearest leaves of a waiting one."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_table import NodeTable
from berth.core.gangs import Gang
from berth.core.topologies.layouts import JobPods, LeafLayout, LeafPart, LeafUser, NearLeaf, Reasons, WaitingGang, unfit
from berth.core.topologies.switches.demand import label_of
from berth.core.topologies.switches.occupancy.leaf_table import LeafTable
from berth.core.topologies.switches.placed import SwitchPlacement
from berth.core.topologies.switches.planner import Plan
from berth.core.topologies.switches.rounds.leaf_round import LeafRound, demand_of
from berth.core.topologies.switches.text import bits_words, lack_words, rule_words, state_words
from berth.schemas.columns import unpack

NEAREST: Final = 3
"""Leaves that are reported for a waiting gang."""


def leaf_users(leaves: LeafTable, jobs: Iterable[JobPods]) -> dict[int, list[LeafUser]]:
    """Jobs with chips below each leaf, by leaf index; the jobs of a leaf in the order of ``jobs``."""
    found: dict[int, list[LeafUser]] = {}
    for job in jobs:
        nodes = [pod.node for pod in job.held if pod.mask]
        for leaf, count in Counter(map(leaves.leaf_of, nodes)).items():
            if leaf >= 0:
                found.setdefault(leaf, []).append(LeafUser(job.job, count, len(nodes)))
    return found


def placed_layout(
    leaves: LeafRound, gang: Gang, part: SwitchPlacement, names: Sequence[str], usable: Fits, *, is_current: bool
) -> tuple[LeafLayout, bool]:
    """Leaf switches of a placement, and whether planning again gives the same nodes.

    Args:
        leaves: Leaf switches as the gang found them.
        gang: The gang.
        part: Record of the switch plan in the placement.
        names: Node of each rank.
        usable: Rows that could take any planned pod of the gang, shape (rows,).
        is_current: The state is the current one, not that of the decision.
    """
    again = leaves.plan(gang, usable)
    nodes = [leaves.leaves.node_names[cell] for cell in again.cells] if isinstance(again, Plan) else []
    above = unpack(part.leaf_index, 2)
    is_same = nodes == [name for name, leaf in zip(names, above, strict=True) if leaf]
    missed = again.missed if isinstance(again, Plan) and is_same and not is_current else None
    layout = LeafLayout(
        tor_affinity=part.tor_affinity,
        kind=demand_of(gang).kind,
        pods=part.pods,
        policy=part.policy,
        rule=part.rule,
        words=rule_words(part.rule, part.policy),
        missed=lack_words(missed) if missed is not None else "",
        leaves=_leaf_parts(part, above),
        annotated=part.annotated,
        warning=part.warning,
    )
    return layout, is_same


def waiting_layout(leaves: LeafRound, table: NodeTable, asked: WaitingGang) -> LeafLayout:
    """The leaves with most usable nodes for a waiting gang.

    Args:
        leaves: Leaf switches as the gang finds them.
        table: The nodes.
        asked: The gang.
    """
    gang, lack = asked.gang, asked.refusal.switch if asked.refusal is not None else None
    layout = LeafLayout(
        tor_affinity=label_of(gang.demand),
        kind=demand_of(gang).kind,
        pods=demand_of(gang).pods,
        policy=lack.policy if lack is not None else leaves.rules.policy,
        rule=lack.rule if lack is not None else "",
        warning=leaves.warning(gang),
    )
    known = leaves.leaves
    if not len(known) or lack is None:
        return layout
    counts = np.count_nonzero(leaves.places_of(asked.usable), axis=1)
    bits = leaves.occupancy().bits()
    users = leaf_users(known, asked.jobs())
    for leaf in np.argsort(-counts, kind="stable")[:NEAREST].tolist():
        layout.nearest.append(
            NearLeaf(
                leaf=known.names[leaf],
                usable=int(counts[leaf]),
                places=known.places,
                lacks=max(lack.need - int(counts[leaf]), 0) if lack.rule == "one-leaf" else 0,
                state=bits_words(int(bits[leaf]), layout.policy),
                unfit=unfit(_reasons(known, table, leaf, asked.reasons)),
                jobs=users.get(leaf, []),
            )
        )
    return layout


def _reasons(leaves: LeafTable, table: NodeTable, leaf: int, reasons: Reasons) -> Reasons:
    """Reasons of the nodes below a leaf."""
    rows = leaves.rows(table)[leaf * leaves.width : (leaf + 1) * leaves.width]
    known = rows[rows >= 0]
    return reasons[known[table.present[known]]]


def _leaf_parts(part: SwitchPlacement, above: list[int]) -> list[LeafPart]:
    """Ranks below each leaf of a plan, in its order."""
    ranks: list[list[int]] = [[] for _ in part.leaves]
    for rank, leaf in enumerate(above):
        if leaf:
            ranks[leaf - 1].append(rank)
    has_states = part.policy == "2.0" and len(part.leaves) > 1
    return [
        LeafPart(leaf, pods=len(below), ranks=below, state=state_words(part.states[below[0]]) if has_states else "")
        for leaf, below in zip(part.leaves, ranks, strict=True)
    ]
