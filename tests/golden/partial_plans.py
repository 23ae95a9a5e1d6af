"""Family ``switch_partial``: where the lost pods of a job go while its others stay below their leaf switches."""

from collections.abc import Mapping
from typing import Any, Final

from berth.core.leaves import LeafTable
from berth.core.switch_partial import Torn, decisions_of, open_places, plan_partial
from berth.core.switches import Board, Demand, NoPlan, Rules
from berth.formats.switch_annotations import IS_SHARED
from schemas.ledger import Settings
from tests.golden.harness import Answer, Line, differ
from tests.golden.switches import board_of, book_decisions, scene_of

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
}
"""Class of each text that turns a node down."""
UNORDERED: Final = frozenset({"v2"})
"""Versions whose nodes count as a set."""
LEAVES_SAMPLED: Final = 4
"""Leaves of a job up to which all orders of the reference's hash map were seen."""


def compare_partial(line: Line, settings: Settings) -> Answer:
    """One job that lost pods."""
    job = line["job"]
    own = {
        "job": job["name"],
        "type": job["type"],
        "status": job["status"],
        "nodes": list(job["bound"].values()),
        "annotations": {node: job.get("bound_annotations", {}).get(rank, {}) for rank, node in job["bound"].items()},
    }
    line = line | {"existing": [*line["existing"], own]}
    scene = scene_of(line, settings)
    board = board_of(scene, line["candidates"], without=job["name"])
    expected = line["result_stable_sort"] if line["sort_sensitive"] else line["result"]
    torn = torn_of(scene.table, own)
    torn = torn._replace(ranks=[rank for rank in range(job["replicas"]) if str(rank) not in job["bound"]])
    demand = Demand(len(torn.ranks), job["replicas"], job["type"])
    got = answer_of(scene.table, board, demand, scene.rules, torn)
    got["rejected"] |= {node: "unknown" for node in line["candidates"] if node not in scene.table.cell_of}
    outcomes = [differences_of(line, outcome, got) for outcome in (expected, *line.get("alternatives", []))]
    active = (*decisions_of(demand, scene.rules), *book_decisions(line, settings, without=job["name"]))
    if all(outcomes) and not line["stable"]:
        return Answer(skipped=("unstable",), active=active)
    leaves = {scene.table.leaf_of(node) for node in own["nodes"]}
    if all(outcomes) and line["version"] in UNORDERED and len(leaves) > LEAVES_SAMPLED:
        return Answer(skipped=("unsampled-order",), active=active)
    return Answer(next((() for found in outcomes if not found), outcomes[0]), active=active)


def torn_of(table: LeafTable, own: Mapping[str, Any]) -> Torn:
    """Pods that live."""
    cells = [table.cell_of.get(node, -1) for node in own["nodes"]]
    return Torn(cells, [], any(said.get(IS_SHARED) == "0" for said in own["annotations"].values()))


def answer_of(table: LeafTable, board: Board, demand: Demand, rules: Rules, torn: Torn) -> dict[str, Any]:
    """What production says, in the words of a line."""
    opened = open_places(board, demand, rules, torn)
    closed = (board.usable & ~opened.places).reshape(-1).nonzero()[0].tolist()
    found = plan_partial(board, demand, rules, torn, table.node_names)
    return {
        "ok": not isinstance(found, NoPlan),
        "error": found.lack.rule if isinstance(found, NoPlan) else "",
        "rejected": {table.node_names[cell]: opened.rule for cell in closed},
        "chosen_nodes": [] if isinstance(found, NoPlan) else [table.node_names[cell] for cell in found.cells],
    }


def differences_of(line: Line, expected: Mapping[str, Any], got: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What is not as expected."""
    rejected = {node: REASONS.get(text, "unknown") for node, text in expected.get("rejected", {}).items()}
    differences = [
        *differ("ok", expected["ok"], got["ok"]),
        *differ("error", ERRORS.get(expected["error"], expected["error"]), got["error"]),
        *differ("rejected", rejected, got["rejected"]),
    ]
    if expected["ok"] and got["ok"]:
        order = sorted if line["version"] in UNORDERED else list
        differences += differ("chosen_nodes", order(map(str, expected["chosen_nodes"])), order(got["chosen_nodes"]))
    return tuple(differences)
