"""Families ``superpod`` and ``superpod_validate``: which SuperPoDs a gang gets nodes of, and which requests are sound."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any, Final

import numpy as np

from berth.core import superpods
from berth.core.superpod_jobs import SOFT, BadBlocks, BlockRequest, BlockShape, Pods, check_blocks
from berth.core.superpod_terms import BlockPlan, NoBlocks, Rules, Variant, Want, Yard, yard_of
from schemas.ledger import Settings
from tests.golden.harness import Answer, Line, differ

VARIANTS: Final[Mapping[str, tuple[Variant, int]]] = {
    "a3x16": ("a3", 16),
    "a3x8": ("a3", 8),
    "850": ("850", 8),
    "ra64": ("rack", 8),
}
"""Handler and chips of a node, by the word of a line."""
WITHOUT_VIDS: Final = ("850",)
"""Policies whose logical ids are random in the reference."""


def compare_superpod(line: Line, settings: Settings) -> Answer:
    """One arriving gang."""
    expected = line["result"]
    if expected["error"].startswith("PANIC"):
        return Answer(skipped=("D-1",))
    request = request_of(line)
    shape = check_blocks(request)
    if isinstance(shape, BadBlocks):
        return Answer(
            (*differ("ok", expected["ok"], got=False), *differ("reason", expected.get("reason"), shape.reason))
        )
    yard = yard_of_line(line)
    want = Want(request.variant, shape.block, shape.replicas, soft=line["affinity"] == SOFT)
    rules = Rules(line["reserve"], line["super_pod_size"], settings.reference_parity)
    differences = differences_of(line, yard, superpods.plan_blocks(yard, want, rules))
    active = () if rules.parity else superpods.decisions_of(yard, want, rules)
    if (
        differences
        and not active
        and any(not differences_of(line, other, superpods.plan_blocks(other, want, rules)) for other in reordered(yard))
    ):
        return Answer(skipped=("tie",))
    return Answer(differences, active=active)


def request_of(line: Line) -> BlockRequest:
    """What a line's job says."""
    variant, node_chips = VARIANTS[line["policy"]]
    ra_block = line.get("ra_block_npu")
    return BlockRequest(
        variant,
        node_chips,
        str(line["sp_block_npu"]),
        [Pods(line["tasks"], line["chips_per_pod"])],
        size=line["super_pod_size_from_conf" if "super_pod_size_from_conf" in line else "super_pod_size"],
        ra_block=None if ra_block is None else str(ra_block),
    )


def yard_of_line(line: Line) -> Yard:
    """SuperPoDs of a line with the nodes that have enough free chips; rows follow the order of the line."""
    pods, idle, ill = [], [], []
    chips, full, sick = line["chips_per_pod"], VARIANTS[line["policy"]][1], set(line.get("sub_healthy", ()))
    for index, superpod in enumerate(line["super_pods"]):
        free = dict.fromkeys(superpod["free_nodes"], full) | superpod.get("partial", {})
        for name in superpod["nodes"]:
            if free.get(name, 0) >= chips:
                pods.append(index)
                idle.append(free[name])
                ill.append(name in sick)
    return yard_of(
        [str(superpod["id"]) for superpod in line["super_pods"]],
        np.array(pods, np.int64),
        np.arange(len(pods)),
        ill=np.array(ill, np.bool_),
        idle=np.array(idle, np.int64),
    )


def reordered(yard: Yard) -> Iterator[Yard]:
    """The same SuperPoDs in other orders: each two of them first, and by what they have of healthy nodes.

    The reference visits SuperPoDs that are alike for its rules in the order of a hash map. They can differ in what the
    canonical form says all the same: in sub-healthy nodes, and for one pod in nodes with more idle chips. A line of which
    some other order gives the expected answer is an exact tie.
    """
    pods = range(len(yard.ids))
    healthy = [int((~yard.ill[yard.starts[pod] : yard.starts[pod + 1]]).sum()) for pod in pods]
    orders = [[*first, *(pod for pod in pods if pod not in first)] for first in permutations(pods, 2)]
    orders += [sorted(pods, key=lambda pod: sign * healthy[pod]) for sign in (1, -1)]
    of_rows = np.repeat(np.arange(len(pods)), yard.counts)
    for order in orders:
        place = np.empty(len(pods), np.int64)
        place[order] = np.arange(len(pods))
        ids = [yard.ids[pod] for pod in order]
        yield yard_of(ids, place[of_rows], yard.rows, ill=yard.ill, idle=yard.idle)


def differences_of(line: Line, yard: Yard, found: BlockPlan | NoBlocks) -> tuple[tuple[str, str], ...]:
    """Where a plan is not the expected one, in the canonical form."""
    expected = line["result"]
    differences = differ("ok", expected["ok"], isinstance(found, BlockPlan))
    if isinstance(found, NoBlocks):
        return differences
    counts = yard.counts
    if line["stable"]:
        differences += differ("by_phys", sorted(line["canonical"]["by_phys"], key=str), by_phys(yard, found))
    if line["stable_by_vid"] and line["policy"] not in WITHOUT_VIDS:
        by_vid = [[grant.vid, int(counts[grant.pod]), grant.nodes] for grant in found.grants]
        differences += differ("by_vid", sorted(line["canonical"]["by_vid"], key=str), sorted(by_vid, key=str))
    return differences


def by_phys(yard: Yard, plan: BlockPlan) -> list[list[int]]:
    """Candidates, nodes taken, blocks, sub-healthy nodes taken, of each SuperPoD that gives nodes.

    Nodes that blocks got beyond the ranks are the next of their SuperPoD.
    """
    blocks = Counter(grant.pod for grant in plan.grants)
    rows = set(plan.rows.tolist())
    canonical = []
    for pod, count in blocks.items():
        start, end = yard.starts[pod : pod + 2].tolist()
        taken = sum(grant.nodes for grant in plan.grants if grant.pod == pod)
        ranked_first = sorted(range(start, end), key=lambda place: int(yard.rows[place]) not in rows)
        canonical.append([end - start, taken, count, int(yard.ill[ranked_first[:taken]].sum())])
    return sorted(canonical, key=str)


def compare_validate(line: Line, settings: Settings) -> Answer:
    """One request; it is judged alike in both runs."""
    del settings
    found = check_blocks(request_of(line))
    expected: Mapping[str, Any] = line["result"]
    reason = found.reason if isinstance(found, BadBlocks) else ""
    return Answer(
        (
            *differ("pass", expected["pass"], isinstance(found, BlockShape)),
            *differ("reason", expected["reason"], reason),
        )
    )
