"""New places that turns of a scheduler give to lost pods: a gang runs, its nodes break, its pods leave.

A line that turns cannot meet is left out: see :func:`is_met`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from berth.core.placement.replacements import NoPlaces
from berth.core.topologies.blocks.placed import BlockPlacement
from berth.core.topologies.switches.placed import SwitchPlacement
from berth.formats.ascend.switch_annotations import state_of
from berth.schemas.facts import Leaf, NodeHealth, TopologySeen
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Round, Settings, Verdict
from berth.schemas.nodes import NodeCondition
from berth.schemas.placement import Placement, Run, placement_of
from tests.golden.harness import Line
from tests.golden.live_plans import PRODUCTS, Damaged, new_places
from tests.golden.switches import LEVELS, STAGES
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS
from tests.support.fault_cells import GRACE, PODS_FIRST, FaultCell
from tests.support.placed_parts import groups_of
from tests.support.replacements import holding_of

LATER_MS: Final = 20_000
"""When gangs break: nodes that are gone count, and no gang waits for its healthy nodes any more."""

LIMIT_POD: Final = {"huawei.com/recover_policy_path": "pod"}
"""Not even rank 0 takes others with it."""


class Standing(NamedTuple):
    """A job that is placed before the first turn."""

    request: JobRequest
    nodes: Sequence[str]
    switch: SwitchPlacement | None = None
    block: BlockPlacement | None = None


def is_met(line: Line, settings: Settings) -> bool:
    """Turns can come to what a line of a family describes.

    Nodes that have failed take no pods while others of the gang run. No place of a healthy pod stays in use while the
    job restarts, because all are held for it until its pods are gone; under parity nothing is held, and a whole job
    returns nowhere (decision held-places). Under parity a job that does not run yet leaves no trace on its leaves; one
    that recovers runs.
    """
    job = line.get("reschedule")
    if job is None:
        return not settings.reference_parity or line["job"]["status"] in STAGES
    if job["scheduling_tasks"] < line["tasks"]:
        return not job["fault_nodes_still_candidates"]
    return not (settings.reference_parity or job["unreleased_node"])


def stand(cell: FaultCell, job: Standing) -> None:
    """Let a job stand where a line says, and run."""
    request = job.request
    cell.ask(request)
    chips = request.tasks[0].chips
    placement = placement_of(
        list(job.nodes),
        [tuple(range(chips))] * len(job.nodes),
        [Run(len(job.nodes), chips)],
        resource=request.resource,
        groups=groups_of(job.switch, job.block),
    )
    fold = cell.state.fold
    verdict = Verdict(request.namespace, request.name, request.uid, 1, placement)
    record = Round(1, fold.head, cell.state.facts_seq, cell.now_ms, fold.rounds + 1, verdicts=[verdict])
    folded = cell.state.apply_record(fold.head + 1, fold.encoded(record))
    assert not folded.void
    cell.scheduler.follow(folded)
    cell.bind(request.name)


def recovered(cell: FaultCell, damaged: Damaged, failed: Sequence[str], candidates: Sequence[str]) -> Placement | None:
    """Places that lost pods get, in the order of their ranks; None where there are none.

    Args:
        cell: The cluster in which the gang runs.
        damaged: The gang.
        failed: Nodes that break.
        candidates: Those of them on which pods may be placed again.
    """
    name = damaged.request.name
    is_whole = len(damaged.ranks) == len(damaged.nodes)
    cell.group(name, GRACE if is_whole else PODS_FIRST, {} if is_whole else LIMIT_POD)
    assert cell.turns() == [], "nothing has broken yet"
    cell.now_ms += LATER_MS
    for node in failed:
        cell.conditions[node] = NodeCondition(node, level=NodeHealth.EVICT, updated_ms=cell.now_ms)
    cell.publish()
    step, *others = cell.turns()
    assert step.scope == ("job" if is_whole else "pod")
    assert all(one.how == "place" for one in others), "ranks that find no places together may find some one by one"
    if not is_whole:
        assert step.ranks == sorted(damaged.ranks)
        return step.placement
    for node in candidates:
        cell.conditions.pop(node, None)
    cell.publish()
    cell.remove(name)
    cell.turns()
    return holding_of(cell.state, name).placement if cell.phase(name) == "placed" else None


def agreed(damaged: Damaged, live: Placement | None) -> Placement | NoPlaces:
    """What turns gave to lost pods, which is what a round gives; why there are no places is told by the round alone."""
    expected = new_places(damaged)
    if isinstance(expected, NoPlaces):
        assert live is None, f"turns find {live} where a round finds nothing"
        return expected
    assert live is not None, "turns find no places where a round finds some"
    return live


def places_in_superpods(line: Line, damaged: Damaged) -> Placement | NoPlaces:
    """Places for the gang of a line of ``superpod_resched``."""
    job = line["reschedule"]
    product, _ = PRODUCTS[line["policy"]]
    own, nodes = set(damaged.nodes), []
    for superpod in line["super_pods"]:
        for position, name in enumerate(superpod["nodes"]):
            is_open = name in superpod["free_nodes"] or name in own
            where = {"superpod": str(superpod["id"]), "position": position}
            nodes.append(a_node(name, product, cordoned=not is_open, **where))
    settings = damaged.settings
    cell = FaultCell(
        nodes,
        reference_parity=settings.reference_parity,
        super_pod_size=settings.super_pod_size,
        reserve_nodes=settings.reserve_nodes,
        hold_places_ms=0 if settings.reference_parity else 60_000,
    )
    stand(cell, Standing(damaged.request, damaged.nodes, block=damaged.block))
    candidates = job["fault_nodes"] if job["fault_nodes_still_candidates"] else ()
    return agreed(damaged, recovered(cell, damaged, job["fault_nodes"], candidates))


def places_below_leaves(line: Line, damaged: Damaged) -> Placement | NoPlaces:
    """Places for the gang of a line of ``switch_partial``."""
    candidates = {name for name in line["candidates"] if name}
    at = {
        name: (leaf["switch"], index) for leaf in line["topology"] for index, name in enumerate(leaf["nodes"]) if name
    }
    busy = {name for job in line["existing"] for name in job["nodes"]} | set(damaged.nodes)
    assert not busy & candidates
    nodes = []
    for name in sorted({*at, *busy, *candidates}):
        leaf, position = at.get(name, ("", 0))
        nodes.append(a_node(name, cordoned=name not in candidates | busy, leaf=leaf, position=position))
    settings = damaged.settings
    cell = FaultCell(
        nodes,
        reference_parity=settings.reference_parity,
        plan_before_delete=not settings.reference_parity,
        nslb_version=settings.nslb_version,
        shared_tor_num=settings.shared_tor_num,
    )
    cell.fact(SUBJECTS.fact_topology("switch"), topology_of(line))
    for job in line["existing"]:
        labels = {"tor-affinity": job["type"]}
        request = a_job(job["job"], chips=8, replicas=len(job["nodes"]), labels=labels)
        stand(cell, Standing(request, job["nodes"], switch_of(job)))
    request = a_job(damaged.request.name, chips=8, replicas=len(damaged.nodes), labels=damaged.request.labels)
    stand(cell, Standing(request, damaged.nodes, damaged.switch))
    lost = [damaged.nodes[rank] for rank in damaged.ranks]
    return agreed(damaged, recovered(cell, damaged._replace(request=request), lost, ()))


def topology_of(line: Line) -> TopologySeen:
    """Leaf switches of a line."""
    leaves = [
        Leaf(leaf["switch"], leaf["switch"], leaf["nodes"], leaf.get("slice_ids", [])) for leaf in line["topology"]
    ]
    return TopologySeen("switch", leaves, level=LEVELS.get(line["version"], ""), places=line["tor_count"])


def switch_of(job: Mapping[str, Any]) -> SwitchPlacement:
    """What the pods of another job say of their leaves."""
    states = bytes(state_of(job["annotations"].get(node, {})) for node in job["nodes"])
    return SwitchPlacement(job["type"], len(job["nodes"]), states=states)
