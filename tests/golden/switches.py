"""Families ``switch`` and ``switch_trace``: the nodes that a job gets below leaf switches, and what its pods report."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from berth.core.parity import REFERENCE, differs
from berth.core.requests.job_validation import validate
from berth.core.topologies.switches.annotations import switch_annotations
from berth.core.topologies.switches.demand import label_of
from berth.core.topologies.switches.occupancy.leaf_bits import STATE, UNHEALTHY
from berth.core.topologies.switches.occupancy.leaf_states import JobPhase, LeafJob, LeafOccupancy
from berth.core.topologies.switches.occupancy.leaf_table import LeafTable, check_topology, leaf_table
from berth.core.topologies.switches.planner import (
    TOR_AFFINITY,
    Demand,
    LeafPool,
    NoPlan,
    Plan,
    SwitchRules,
    is_annotated,
    plan,
    switch_decisions,
    switch_rules,
)
from berth.formats.ascend.switch_annotations import state_of
from berth.products.model import ANNOTATION_POLICY
from berth.schemas.facts import Leaf, TopologySeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings
from berth.schemas.refusal import Refusal
from tests.golden.harness import Answer, Differences, Line, differ
from tests.golden.leaf_invariants import (
    Said,
    Scenery,
    free_words,
    merged_states,
    on_one_leaf,
    plan_faults,
    scenery_of,
    word_faults,
)

NO_LEAVES: Final = "no-topology"
VERSIONS: Final = {"v1": "1.0", "v2": "2.0"}
LEVELS: Final = {"single": "single_layer"}
STAGES: Final = {"Running": JobPhase.RUNNING, "Unknown": JobPhase.PARTLY}
ERRORS: Final = {
    "tor check failed not enough resource for job": "one-leaf",
    "tor check failed not enough resource for fill job": "one-leaf",
    "logicTor is illegal": "logical-switches",
    "set tor failed by not enough nodes": "idle-and-shared",
    "not enough node for normal job to schedule": "any-leaf",
    "job's task number is bigger than torCount": "leaf-size",
    "cluster basic-tor-node-cm is not imported": NO_LEAVES,
    "tor-affinity label value is": f"labels.{TOR_AFFINITY}",
}
"""Class of each of the reference's texts, by a part of it: the rule that could not be met, or what is wrong."""
WARNINGS: Final = {"logical-switches": "logical-switches"}
"""Rules whose failing the reference tells although it found a way round."""
COMMON: Final = {("logical-switches", "any-leaf"): "logical-switches"}
"""What the reference tells of two rules that failed one after the other, where it is not the second."""

DEMANDS: Final[Mapping[str, Callable[[Scenery, Mapping[str, Any], int], Mapping[str, Any]]]] = {
    "fill-crosses-leaf": on_one_leaf,
    "annotations-in-1.0": free_words,
}
"""What documented decisions demand in the place of an answer of the reference."""


class Scene(NamedTuple):
    """A line's cluster as production sees it."""

    table: LeafTable
    occupancy: LeafOccupancy
    rules: SwitchRules


def scene_of(line: Line, settings: Settings) -> Scene:
    """Leaves and jobs of a line."""
    fact = TopologySeen(
        kind="switch",
        leaves=[
            Leaf(leaf["switch"], leaf["switch"], leaf["nodes"], leaf.get("slice_ids", [])) for leaf in line["topology"]
        ],
        level=LEVELS.get(line["version"], ""),
        places=line["tor_count"],
    )
    check_topology(fact)
    table = leaf_table(fact)
    settings = settings_of(line, settings)
    occupancy = LeafOccupancy(table, differs(settings))
    for job in line.get("existing", []):
        occupancy.put((job["job"], 0), leaf_job(job["type"], job["nodes"], job["annotations"], job["status"]))
    return Scene(table, occupancy, switch_rules(settings, is_single_layer=table.is_single_layer))


def settings_of(line: Line, settings: Settings) -> Settings:
    """Settings of a line."""
    return msgspec.structs.replace(
        settings, nslb_version=VERSIONS.get(line["version"], ""), shared_tor_num=line["shared_tor_num"]
    )


def leaf_job(label: str, nodes: Sequence[str], annotations: Mapping[str, dict[str, str]], status: str) -> LeafJob:
    """A job of a line as leaves see it; ``annotations`` by node."""
    states = bytes(state_of(annotations.get(node, {})) for node in nodes)
    return LeafJob(label, len(nodes), list(nodes), states, phase=STAGES.get(status, JobPhase.DECIDED))


def board_of(scene: Scene, candidates: Sequence[str], *, without: str = "") -> LeafPool:
    """Leaves as a job finds them."""
    table = scene.table
    usable = np.zeros(table.listed.size, np.bool_)
    usable[[table.cell_of[name] for name in candidates if name in table.cell_of]] = True
    return LeafPool(
        table.names,
        usable.reshape(table.listed.shape),
        table.slices,
        scene.occupancy.bits(without=(without, 0)),
        table.places,
    )


def compare_switch(line: Line, settings: Settings) -> Answer:
    """One arriving job."""
    scene = scene_of(line, settings)
    pool = board_of(scene, line["candidates"])
    scenery = scenery_of(line, line["candidates"])
    active = () if settings.reference_parity else book_decisions(line, settings)
    merged = merged_states(line.get("existing", []), scenery)
    expected = line["result_stable_sort"] if line.get("sort_sensitive") else line["result"]
    outcomes = [expected, *line.get("alternatives", [])]
    states = said_of(merged) if active else None
    answers = [compare_job(scene, pool, scenery, line["job"], outcome, states) for outcome in outcomes]
    differences = agreed([answer.differences for answer in answers])
    if differences and not line.get("stable", True) and not active:
        return Answer(hard_differences(answers), skipped=("unstable",))
    if not settings.reference_parity:
        differences += differ("plan", merged, states_known(pool, {}), "states")
    return Answer(differences, active=active, decided=answers[0].decided)


def agreed(outcomes: Sequence[Differences]) -> Differences:
    """Differences from the outcome that agrees best."""
    return min(outcomes, key=len)


def hard_differences(answers: Sequence[Answer]) -> Differences:
    """Of a line with other outcomes: what all of them say alike of the whole line, and what no plan may do."""
    alike = set.intersection(*(set(answer.differences) for answer in answers))
    return tuple(found for found in answers[0].differences if found in alike and found[0] in {"ok", "error", "plan"})


def book_decisions(line: Line, settings: Settings, *, without: str = "") -> tuple[str, ...]:
    """Documented decisions on how jobs count that change the state of some leaf for job ``without``."""
    parity = msgspec.structs.replace(settings, reference_parity=True)
    begun = line | {"existing": [job | {"status": "Running"} for job in line.get("existing", [])]}
    defaults = msgspec.structs.replace(settings, reference_parity=False)
    known, as_if_begun, merged = (
        scene_of(other, its).occupancy.bits(without=(without, 0)).tobytes()
        for other, its in ((line, parity), (begun, parity), (begun, defaults))
    )
    return (
        *(("busy-from-decision",) if known != as_if_begun else ()),
        *(("order-free-merge",) if as_if_begun != merged else ()),
    )


def compare_job(
    scene: Scene,
    pool: LeafPool,
    scenery: Scenery,
    job: Mapping[str, Any],
    expected: Mapping[str, Any],
    states: Said | None = None,
) -> Answer:
    """The plan of one job.

    Args:
        scene: The cluster as production sees it.
        pool: Its leaves with what the job may take.
        scenery: The same, as the line says it.
        job: The job.
        expected: The reference's answer.
        states: What decisions demand of the states of leaves before the plan; None for what the reference says.
    """
    valid = validate(request_of(job), Settings(reference_parity=scene.rules.differs is REFERENCE))
    if isinstance(valid, Refusal):
        return Answer((*differ("ok", expected["ok"], got=False), *differ("error", class_of(expected), valid.field)))
    demand = Demand(valid.chip_pods, valid.chip_pods, label_of(valid.demand))
    found = plan(pool, demand, scene.rules)
    wanted = expected if states is None else {**expected, "switch_before": states}
    active = () if scene.rules.differs is REFERENCE else switch_decisions(pool, demand, scene.rules)
    decided = []
    for name in active:
        before, wanted = wanted, DEMANDS[name](scenery, wanted, demand.replicas)
        decided += [name] if wanted != before else []
    differences = differ("ok", wanted["ok"], isinstance(found, Plan))
    differences += differ("error", class_of(wanted), error_of(found))
    differences += differ("switch_before", states_said(wanted, "switch_before"), states_known(pool, {}))
    if isinstance(found, Plan):
        nodes = [scene.table.node_names[cell] for cell in found.cells]
        words, after = annotations_of(scene, found), states_known(pool, found.after)
        differences += plan_faults(scenery, nodes, job["replicas"]) + word_faults(scenery, words, after)
        if wanted["ok"]:
            differences += differ("chosen_nodes", wanted["chosen_nodes"], nodes)
            differences += differ("pod_annotations", wanted["pod_annotations"], words)
            differences += differ("switch_after", states_said(wanted, "switch_after"), after)
    return Answer(differences, decided=tuple(decided))


def request_of(job: Mapping[str, Any]) -> JobRequest:
    """A job of a line: one pod a node."""
    return JobRequest(
        namespace="ns",
        name=job["name"],
        uid="",
        resource="huawei.com/Ascend910",
        tasks=[Task("worker", job["replicas"], 8)],
        labels={TOR_AFFINITY: job["type"]},
        annotations={ANNOTATION_POLICY: "chip8-node8"},
    )


def class_of(expected: Mapping[str, Any]) -> str:
    """Class of the error that a line expects; empty for none."""
    text: str = expected["error"]
    return next((name for part, name in ERRORS.items() if part in text), text)


def error_of(found: Plan | NoPlan) -> str:
    """Class of what went wrong; empty for nothing."""
    if isinstance(found, Plan):
        return WARNINGS.get(found.missed.rule, "") if found.missed is not None else ""
    if not found.lack.leaves:
        return NO_LEAVES
    return COMMON.get((found.first, found.lack.rule), found.lack.rule)


def annotations_of(scene: Scene, found: Plan) -> dict[str, dict[str, str]]:
    """Annotations of each pod, by its node."""
    if not is_annotated(scene.rules):
        return {}
    table = scene.table
    return {
        table.node_names[cell]: switch_annotations(state, table.names[cell // table.width])
        for cell, state in zip(found.cells, found.states, strict=True)
    }


def states_said(expected: Mapping[str, Any], field: str) -> dict[str, int]:
    """State bytes of the leaves that are not free and healthy, as a line has them."""
    return {name: leaf["isSharedTor"] + UNHEALTHY * leaf["isHealthy"] for name, leaf in expected.get(field, {}).items()}


def said_of(states: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """State bytes of leaves as a line has them."""
    return {name: {"isSharedTor": state & STATE, "isHealthy": state // UNHEALTHY} for name, state in states.items()}


def states_known(pool: LeafPool, after: Mapping[int, int]) -> dict[str, int]:
    """State bytes of the leaves that are not free and healthy."""
    states = {index: int(bits) & (STATE | UNHEALTHY) for index, bits in enumerate(pool.bits)} | dict(after)
    return {pool.names[index]: state for index, state in states.items() if state}


def compare_trace(line: Line, settings: Settings) -> Answer:
    """Jobs that come and go on one cluster, each beside those that are there."""
    scene, scenery = scene_of(line, settings), scenery_of(line, ())
    down: set[str] = set()
    differences: list[tuple[str, str]] = []
    decided: dict[str, None] = {}
    for number, event in enumerate(line["events"]):
        if event["op"] == "node_down":
            down.update(event["nodes"])
        elif event["op"] == "node_up":
            down.difference_update(event["nodes"])
        elif event["op"] == "depart":
            scene.occupancy.drop((event["name"], 0))
        else:
            job, expected = event["job"], event["result"]
            busy = {node for other in scene.occupancy.jobs().values() for node in other.nodes}
            free = [node for node in scene.table.cell_of if node not in down and node not in busy]
            here = scenery._replace(candidates=frozenset(free))
            answer = compare_job(scene, board_of(scene, free), here, job, expected)
            differences += [(field, f"event {number}: {words}") for field, words in answer.differences]
            decided |= dict.fromkeys(answer.decided)
            if expected["ok"]:
                placed = leaf_job(job["type"], expected["chosen_nodes"], expected["pod_annotations"], "Running")
                scene.occupancy.put((job["name"], 0), placed)
    return Answer(tuple(differences), decided=tuple(decided))
