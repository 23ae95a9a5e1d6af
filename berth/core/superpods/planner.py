"""Where the pods of a gang with SuperPoD affinity go: blocks are selected on counts, then their nodes are drawn.

Source: docs/reference/superpods.md, "Before the selection", "Selection of blocks" and
"Ranks and annotations of blocks".
"""

from collections.abc import Sequence

import numpy as np

from berth.core.errors import InvariantError
from berth.core.superpods import block_selection
from berth.core.superpods.block_selection import Ask
from berth.core.superpods.model import BlockPlan, Grant, NoBlocks, Rows, Rules, Want, Yard, closest


def plan_blocks(yard: Yard, want: Want, rules: Rules) -> BlockPlan | NoBlocks:
    """Where each rank of a gang without racks goes of which no pod has a node yet.

    Args:
        yard: SuperPoDs with the candidates of the gang.
        want: What it asks; ``replicas`` is a multiple of ``block``.
        rules: Reserve, size and parity.

    Raises:
        InvariantError: The gang asks for racks, which :mod:`berth.core.superpods.racks` plans.
    """
    if want.variant == "rack":
        raise InvariantError("racks are no matter of the three queues", subject=f"a gang of {want.replicas}")
    ground = candidates(yard, want)
    counts = ground.counts
    if len(ground.rows) < want.replicas:
        return not_enough_nodes(ground, want)
    grants = block_selection.select(ground.ids, counts, ask_of(want), rules)
    return grants if isinstance(grants, NoBlocks) else drawn(ground, grants, want.replicas)


def decisions_of(yard: Yard, want: Want, rules: Rules) -> tuple[str, ...]:
    """Documented decisions that change the plan of a gang."""
    ground = candidates(yard, want)
    if len(ground.rows) < want.replicas:
        return ()
    return block_selection.decisions_of(ground.ids, ground.counts, ask_of(want), rules)


def ask_of(want: Want) -> Ask:
    """All blocks of a gang, for the selection."""
    return Ask(
        want.variant,
        want.block,
        range(want.blocks),
        want.replicas,
        want.blocks,
        soft=want.soft,
        is_partial=want.is_partial,
    )


def candidates(yard: Yard, want: Want) -> Yard:
    """Nodes that a gang looks at: a gang of one pod goes where the fewest chips are idle, and to a healthy node if any.

    With racks health plays no part.

    Source: docs/reference/superpods.md, "Before the selection".
    """
    if want.replicas != 1 or not len(yard.rows):
        return yard
    if yard.idle is not None:
        yard = yard.without(yard.idle > yard.idle.min())
    return yard if want.variant == "rack" or yard.ill.all() else yard.without(yard.ill)


def not_enough_nodes(yard: Yard, want: Want) -> NoBlocks:
    """There are fewer candidates than pods.

    Source: docs/reference/superpods.md, "Before the selection".
    """
    return NoBlocks(
        lack="nodes",
        block=want.block,
        blocks_need=want.blocks,
        blocks_have=int((yard.counts // want.block).sum()),
        nodes_need=want.replicas,
        nodes_have=len(yard.rows),
        closest=closest(yard.ids, yard.counts, want.block),
    )


def drawn(yard: Yard, grants: Sequence[Grant], replicas: int) -> BlockPlan:
    """Nodes of each rank, taken from each SuperPoD in its order, grant after grant.

    Ranks walk the blocks by their number, each as long as it is.

    Source: docs/reference/superpods.md, "Ranks and annotations of blocks".

    Args:
        yard: SuperPoDs whose nodes are free to be taken.
        grants: How many each block gets from where; a SuperPoD has all that it gives.
        replicas: Ranks; nodes beyond them serve nobody, ranks beyond the nodes get none.
    """
    vids, pods, nodes = (np.fromiter((grant[field] for grant in grants), np.int64, len(grants)) for field in (0, 1, 2))
    walk = np.argsort(vids, kind="stable")
    lengths = nodes[walk]
    ends = np.cumsum(lengths)
    places = np.repeat(_begins(yard, pods, nodes)[walk] - ends + lengths, lengths) + np.arange(lengths.sum())
    return BlockPlan(
        _ranks(yard.rows[places], replicas),
        _ranks(np.repeat(vids[walk], lengths), replicas),
        _ranks(np.repeat(pods[walk], lengths), replicas),
        tuple(grants),
    )


def _begins(yard: Yard, pods: Rows, nodes: Rows) -> Rows:
    """Place in the yard of the first node of each grant: behind what the SuperPoD gave before."""
    order = np.argsort(pods, kind="stable")
    by_pod, before = pods[order], np.cumsum(nodes[order]) - nodes[order]
    is_first = np.ones(len(pods), np.bool_)
    is_first[1:] = by_pod[1:] != by_pod[:-1]
    begins = np.empty(len(pods), np.int64)
    begins[order] = yard.starts[by_pod] + before - np.maximum.accumulate(np.where(is_first, before, 0))
    return begins


def _ranks(values: Rows, replicas: int) -> Rows:
    found = np.full(replicas, -1, np.int64)
    found[: len(values)] = values[:replicas]
    return found
