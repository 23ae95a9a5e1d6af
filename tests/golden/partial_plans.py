"""Family ``switch_partial``: where the lost pods of a job go while its others stay below their leaf switches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any, Final, NamedTuple

from berth.core.parity import REFERENCE
from berth.core.placement.replacements import NoPlaces
from berth.core.topologies.switches.annotations import switch_annotations
from berth.core.topologies.switches.occupancy.leaf_table import LeafTable
from berth.core.topologies.switches.placed import SwitchPlacement
from berth.core.topologies.switches.planner import Demand, Plan, is_annotated
from berth.core.topologies.switches.rescheduling import PartialGang, open_places, plan_partial
from berth.formats.ascend.switch_annotations import state_of
from berth.products.model import IS_SHARED
from berth.schemas.ledger import Settings
from tests.golden.harness import DECISIONS, Answer, Differences, Line, differ
from tests.golden.leaf_invariants import (
    OTHER_LEAF,
    Scenery,
    at_lacking_positions,
    below_own_leaf,
    crossed_leaves,
    free_words,
    merged_states,
    plan_faults,
    position_faults,
    scenery_of,
    shared_faults,
    tier_faults,
    word_faults,
)
from tests.golden.live_plans import Damaged, full_table, new_places, rank_states, with_uid
from tests.golden.switches import (
    Scene,
    agreed,
    board_of,
    book_decisions,
    hard_differences,
    request_of,
    said_of,
    scene_of,
    settings_of,
    states_known,
    states_said,
)
from tests.support.placed_parts import the_switch
from tests.support.plan_decisions import replacement_decisions

ERRORS: Final = {
    "": "",
    "no candidate node": "open-places",
    "tor check failed not enough resource for job": "one-leaf",
    "job's task number is bigger than torCount": "leaf-size",
    "shared tor num is over global shared tor num": "shared-limit",
    "not enough tor for fill job restart": "own-leaves",
    "not enough tor for job restart": "idle-and-shared",
}
"""Class of each of the reference's texts: the rule that could not be met."""
REASONS: Final = {
    "check node err by: large model job can not over tor": "whole-gang",
    "node sliceId is not meet task require": "lacking-position",
    "tor check failed node by nslb2.0": "leaf-state",
    OTHER_LEAF: "own-leaf",
}
"""Class of each text that turns a node down."""
PRODUCT: Final = "module910bx8"
LEAVES_SAMPLED: Final = 4
"""Leaves of a job up to which all orders of the reference's hash map are tried."""


class Loss(NamedTuple):
    """A job that lost pods, as its line says it.

    Attributes:
        line: The line, with the job among those that are there.
        own: The job as it stands.
        ranks: Ranks of the lost pods.
        scenery: Leaves and candidates.
    """

    line: Line
    own: Mapping[str, Any]
    ranks: Sequence[int]
    scenery: Scenery

    @property
    def others(self) -> list[Mapping[str, Any]]:
        """Other jobs."""
        return [job for job in self.line["existing"] if job is not self.own]


def loss_of(line: Line) -> Loss:
    """The job of a line."""
    job = line["job"]
    own = {
        "job": job["name"],
        "type": job["type"],
        "status": job["status"],
        "nodes": list(job["bound"].values()),
        "annotations": {node: job.get("bound_annotations", {}).get(rank, {}) for rank, node in job["bound"].items()},
    }
    ranks = [rank for rank in range(job["replicas"]) if str(rank) not in job["bound"]]
    return Loss(line | {"existing": [*line["existing"], own]}, own, ranks, scenery_of(line, line["candidates"]))


def compare_partial(line: Line, settings: Settings) -> Answer:
    """One job that lost pods."""
    loss = loss_of(line)
    got, active = answer_of(loss, settings)
    expected = line["result_stable_sort"] if line["sort_sensitive"] else line["result"]
    outcomes = [expected, *line.get("alternatives", [])]
    faults = faults_of(loss, got)
    if settings.reference_parity:
        answers = [Answer(differences_of(outcome, got) + faults) for outcome in outcomes]
        return luck_of(loss, outcomes, answers, settings)
    book = book_decisions(loss.line, settings, without=loss.own["job"])
    merged = merged_states(loss.line["existing"], loss.scenery)
    faults += differ("plan", merged, got["switch_before"], "states")
    states = {"switch_before": said_of(merged)} if book else {}
    answers = [decided_answer(loss, {**outcome, **states}, got, active) for outcome in outcomes]
    differences = agreed([answer.differences for answer in answers]) + faults
    pardoned = frozenset[str]().union(*(DECISIONS[name] for name in (*book, *active)))
    if not line["stable"] and not pardoned.issuperset(field for field, _ in differences):
        return Answer(hard_differences(answers) + faults, skipped=("unstable",), active=active)
    return Answer(differences, active=(*book, *active), decided=answers[0].decided)


def luck_of(
    loss: Loss,
    outcomes: Sequence[Mapping[str, Any]],
    answers: Sequence[Answer],
    settings: Settings,
) -> Answer:
    """An answer of which at most the order of the reference's hash maps is left out.

    Where nodes differ in their order alone, some order of the job's leaves has to give the expected one.
    """
    differences = agreed([answer.differences for answer in answers])
    if not differences:
        return Answer()
    leaves = loss.scenery.leaves_of(loss.own["nodes"])
    if len(leaves) <= LEAVES_SAMPLED and any(
        not differences_of(outcome, answer_of(other, settings)[0])
        for other in reordered(loss, sorted(leaves))
        for outcome in outcomes
    ):
        return Answer(skipped=("leaf-order",))
    if not loss.line["stable"]:
        return Answer(hard_differences(answers), skipped=("unstable",))
    if len(leaves) > LEAVES_SAMPLED:
        return Answer(hard_differences(answers), skipped=("unsampled-order",))
    return Answer(differences)


def reordered(loss: Loss, leaves: Sequence[int]) -> Iterator[Loss]:
    """The same with the job's leaves in every other order; the reference numbers nodes in the order of a hash map."""
    for order in permutations(leaves):
        topology = list(loss.line["topology"])
        for place, leaf in zip(leaves, order, strict=True):
            topology[place] = loss.line["topology"][leaf]
        yield loss._replace(line=loss.line | {"topology": topology})


def answer_of(loss: Loss, settings: Settings) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What production says, in the words of a line, and the decisions in force."""
    line, own = loss.line, loss.own
    scene = scene_of(line, settings)
    table, rules = scene.table, scene.rules
    pool = board_of(scene, line["candidates"], without=own["job"])
    partial_gang = torn_of(table, own)._replace(ranks=loss.ranks)
    demand = Demand(len(loss.ranks), len(own["nodes"]) + len(loss.ranks), own["type"])
    opened = open_places(pool, demand, rules, partial_gang)
    closed = (pool.usable & ~opened.places).reshape(-1).nonzero()[0].tolist()
    rejected = {table.node_names[cell]: opened.rule for cell in closed}
    rejected |= {node: "unknown" for node in line["candidates"] if node not in table.cell_of}
    found = plan_partial(pool, demand, rules, partial_gang, table.node_names)
    got: dict[str, Any] = {"rejected": rejected, "switch_before": states_known(pool, {})}
    got |= placed_by_round(loss, scene, settings)
    if isinstance(found, Plan):
        got["switch_after"] = states_known(pool, found.after)
    return got, () if rules.differs is REFERENCE else replacement_decisions(demand, rules)


def placed_by_round(loss: Loss, scene: Scene, settings: Settings) -> dict[str, Any]:
    """What a round gives to the lost pods, in the words of a line."""
    line, own, table = loss.line, loss.own, scene.table
    job = line["job"]
    nodes = [job["bound"].get(str(rank), f"lost-{rank}") for rank in range(job["replicas"])]
    states = bytes(state_of(own["annotations"].get(node, {})) for node in nodes)
    free = [name for name in line["candidates"] if name]
    found = new_places(
        Damaged(
            settings_of(line, settings),
            full_table([*filter(None, table.cell_of), *free], free, PRODUCT),
            with_uid(request_of(job), own["job"]),
            nodes,
            loss.ranks,
            loss.ranks,
            switch=SwitchPlacement(own["type"], job["replicas"], states=states, annotated=is_annotated(scene.rules)),
            leaves=(table, scene.occupancy),
        )
    )
    if isinstance(found, NoPlaces):
        lack = found.refusal.switch
        return {"ok": False, "error": lack.rule if lack is not None else found.refusal.code}
    words = {
        node: switch_annotations(state, leaf)
        for node, (leaf, state) in zip(found.names(), rank_states(found), strict=True)
    }
    annotations = words if the_switch(found).annotated else {}
    return {"ok": True, "error": "", "chosen_nodes": found.names(), "pod_annotations": annotations}


def torn_of(table: LeafTable, own: Mapping[str, Any]) -> PartialGang:
    """Pods that live."""
    cells = [table.cell_of.get(node, -1) for node in own["nodes"]]
    return PartialGang(cells, [], any(said.get(IS_SHARED) == "0" for said in own["annotations"].values()))


def differences_of(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Differences:
    """What is not as expected."""
    rejected = {node: REASONS.get(text, "unknown") for node, text in expected.get("rejected", {}).items()}
    differences = differ("ok", expected["ok"], got["ok"])
    differences += differ("error", ERRORS.get(expected["error"], expected["error"]), got["error"])
    differences += differ("rejected", rejected, got["rejected"])
    differences += differ("switch_before", states_said(expected, "switch_before"), got["switch_before"])
    if expected["ok"] and got["ok"]:
        differences += differ("chosen_nodes", list(map(str, expected["chosen_nodes"])), got["chosen_nodes"])
        differences += differ("pod_annotations", expected["pod_annotations"], got["pod_annotations"])
        differences += differ("switch_after", states_said(expected, "switch_after"), got["switch_after"])
    return differences


def faults_of(loss: Loss, got: Mapping[str, Any]) -> Differences:
    """What the reference page forbids, whatever the reference answers."""
    if not got["ok"]:
        return ()
    nodes = got["chosen_nodes"]
    faults = plan_faults(loss.scenery, nodes, len(loss.ranks))
    faults += differ("plan", [], sorted(set(nodes) & {*got["rejected"], *loss.own["nodes"]}), "nodes that are closed")
    faults += word_faults(loss.scenery, got["pod_annotations"], got["switch_after"])
    after, most = got["switch_after"], loss.line["shared_tor_num"]
    return faults + shared_faults(loss.scenery, [*loss.own["nodes"], *nodes], after, most)


def decided_answer(loss: Loss, expected: Mapping[str, Any], got: Mapping[str, Any], active: Sequence[str]) -> Answer:
    """An answer beside what decisions demand in the place of the reference's."""
    wanted = expected
    faults: Differences = ()
    decided = []
    for name in active:
        before = wanted
        wanted, found = DEMANDS[name](loss, wanted, got)
        faults += found
        decided += [name] if wanted != before else []
    return Answer(differences_of(wanted, got) + faults, decided=tuple(decided))


def at_lacking(
    loss: Loss, expected: Mapping[str, Any], got: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Differences]:
    """Nodes at positions that the job lacks: which are open and whether they are enough, and the choice among them."""
    crossed = crossed_leaves(loss.others, loss.scenery)
    room, used, most = at_lacking_positions(loss.scenery, loss.own["nodes"], loss.ranks, crossed)
    nodes = got.get("chosen_nodes", [])
    wanted = free_words(loss.scenery, {**expected, **room, "chosen_nodes": nodes, "switch_after": {}})
    return wanted, position_faults(loss.scenery, room["rejected"], used, most, nodes)


def below_own(loss: Loss, expected: Mapping[str, Any], got: Mapping[str, Any]) -> tuple[Mapping[str, Any], Differences]:
    """The leaf of the pods that live; where the reference stays below it, its answer stands."""
    alive = loss.own["nodes"]
    wanted = {**expected, **below_own_leaf(loss.scenery, expected, alive, loss.ranks)}
    if expected["ok"] and loss.scenery.leaves_of(expected["chosen_nodes"]) <= loss.scenery.leaves_of(alive):
        return wanted, differ("plan", expected["chosen_nodes"], got.get("chosen_nodes"), "below its leaf anyway")
    return wanted, ()


def by_tier(loss: Loss, expected: Mapping[str, Any], got: Mapping[str, Any]) -> tuple[Mapping[str, Any], Differences]:
    """Nodes in the order of their leaves, whatever number the reference gives them."""
    if not got["ok"]:
        return expected, ()
    alive, nodes = loss.own["nodes"], got["chosen_nodes"]
    return expected, tier_faults(loss.scenery, alive, got["switch_after"], nodes, got["rejected"])


DEMANDS: Final[Mapping[str, Callable[..., tuple[Mapping[str, Any], Differences]]]] = {
    "slice-of-lost-pod": at_lacking,
    "survivors-leaf": below_own,
    "deterministic-scores": by_tier,
}
"""What documented decisions demand in the place of an answer of the reference, and what they forbid."""
