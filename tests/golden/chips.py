"""Families ``node_chip`` and ``node_chip_sequences``: which nodes fit, how good each is, which chips are taken."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from berth.core.chips.chip_rules import ChipColumns, ChipRow, ChipRule, compile_rule
from berth.core.chips.form_selection import FormChoice, choose_form
from berth.core.chips.picking import ids_of
from berth.core.requests.job_validation import validate
from berth.products.catalogue import FORMS
from berth.products.model import Form
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings
from berth.schemas.refusal import Refusal
from tests.golden.harness import Answer, Differences, Line, differ
from tests.support.chip_masks import mask_of

STOP_SCORE: Final = 512
"""Raw score of an A3 node at which the reference stops to score."""
HEALTH: Final = 100
"""What an unhealthy chip takes from the raw score of the default policy.

Source: docs/reference/nodes-and-chips.md, "Default rule: fullness and health".
"""
NODE_CHIPS: Final = 8
WEIGHT: Final = 100
"""Factor between raw and final scores.

Source: docs/reference/nodes-and-chips.md, "Scores".
"""


def columns_of(nodes: Sequence[dict[str, Any]]) -> ChipColumns:
    """Columns of a line's nodes."""
    return ChipColumns(
        free=np.array([mask_of(node["free"]) for node in nodes], np.uint64),
        network=np.array([mask_of(node["net_unhealthy"]) for node in nodes], np.uint64),
        network_known=np.array([not node.get("no_net_unhealthy_key", False) for node in nodes], np.bool_),
        unhealthy=np.array([len(node["unhealthy"]) for node in nodes], np.int16),
        allocatable=np.array([node["allocatable"] for node in nodes], np.int16),
        idle=np.array([node["idle"] for node in nodes], np.int16),
        capacity=np.array([node["total"] for node in nodes], np.int16),
        others=np.zeros(len(nodes), np.int16),
        unsettled=np.zeros(len(nodes), np.bool_),
    )


def row_of(columns: ChipColumns, index: int) -> ChipRow:
    """One row as plain numbers."""
    return ChipRow(*(column[index].item() for column in columns))


def compare_node_chip(line: Line, settings: Settings) -> Answer:
    """A job on nodes that are independent of one another."""
    request = JobRequest(
        namespace="ns",
        name="job",
        uid="",
        resource=line["resource"],
        tasks=[Task("worker", line["tasks"], line["request"])],
        labels=line.get("labels", {}),
        annotations=line.get("job_annotations", {}),
        node_selector=line.get("selector", {}),
    )
    valid = validate(request, settings)
    if isinstance(valid, Refusal):
        if valid.code == "job-shape" and not settings.reference_parity and is_misshapen(line):
            return Answer(decided=("strict_job_shape",) if line["error"] != "job_invalid" else ())
        given = [name for name, score in line.get("scores", {}).items() if score is not None]
        return Answer(differ("error", line["error"], "job_invalid") + differ("filtered", given, []))
    form = FORMS[valid.form]
    rule = compile_rule(form, chips=line["request"], distributed=valid.distributed, settings=settings)
    columns = columns_of(line["nodes"])
    reasons, scores = rule.evaluate(columns, _labelled(form, line))
    names = [node["name"] for node in line["nodes"]]
    fitting = {name: int(score) for name, reason, score in zip(names, reasons, scores, strict=True) if not reason}
    differences = differ("error", line["error"], None if fitting else "no_node")
    expected: dict[str, int] = {name: score for name, score in line.get("scores", {}).items() if score is not None}
    differences += differ("filtered", sorted(expected), sorted(fitting))
    differences += differ("chips", sorted(line["chosen_chips"]), sorted(fitting), "nodes with")
    decided: tuple[str, ...] = ()
    if "310p-health-key" in form.decisions and not settings.reference_parity:
        ill = {node["name"]: len(node["unhealthy"]) for node in line["nodes"]}
        decided = ("310p-health-key",) if any(ill[name] for name in expected) else ()
        expected = {name: score - HEALTH * ill[name] for name, score in expected.items()}
    compared, skipped = _names_scored(form, names, expected)
    differences += differ("scores", _only(expected, compared), _only(fitting, compared))
    for index, name in enumerate(names):
        one = rule.evaluate_one(row_of(columns, index), labelled=_is_labelled(form, line))
        differences += differ("one row", (int(reasons[index]), int(scores[index])), one, name)
        if name in fitting:
            differences += _compare_chips(line, name, rule, columns, index)
    return Answer(differences, skipped, form.decisions, decided)


def is_misshapen(line: Line) -> bool:
    """A job that decision ``strict_job_shape`` forbids: up to 8 chips are one pod, more are pods of 8."""
    total = line["tasks"] * line["request"]
    return bool(line["tasks"] != 1 if total <= NODE_CHIPS else line["request"] != NODE_CHIPS)


def _is_labelled(form: Form, line: Line) -> bool:
    labels = line.get("node_labels", {})
    return form.node_label is None or labels.get(form.node_label[0]) == form.node_label[1]


def _labelled(form: Form, line: Line) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    return np.full(len(line["nodes"]), _is_labelled(form, line), np.bool_)


def _only(scores: dict[str, int], names: list[str]) -> dict[str, int]:
    return {name: scores[name] for name in names if name in scores}


def _names_scored(form: Form, names: list[str], expected: dict[str, int]) -> tuple[list[str], tuple[str, ...]]:
    """Nodes whose scores count: all, or those up to the one at which the reference stops to score."""
    if "a3-early-stop" not in form.decisions:
        return names, ()
    stop = next((index for index, name in enumerate(names) if expected.get(name) == STOP_SCORE), len(names))
    left_out = any(name in expected for name in names[stop + 1 :])
    return names[: stop + 1], ("a3-early-stop",) if left_out else ()


def _compare_chips(
    line: Line, name: str, rule: ChipRule, columns: ChipColumns, index: int
) -> tuple[tuple[str, str], ...]:
    free, network = int(columns.free[index]), int(columns.network[index])
    picked = rule.pick(free, network)
    if "a3-pair-choice" in rule.form.decisions:
        usable = ids_of(rule.usable(free, network))
        legal = is_legal_in_pairs(picked, usable, line["request"])
        return () if legal else (("chips", f"{name} {picked} is no legal choice from {usable}"),)
    return differ("chips", line["chosen_chips"].get(name), list(picked), name)


def is_legal_in_pairs(picked: tuple[int, ...], usable: tuple[int, ...], chips: int) -> bool:
    """Legality of a choice in pairs, where the reference's own choice is luck (decision a3-pair-choice)."""
    if len(usable) == chips:
        return picked == usable
    pairs = {chip // 2 for chip in usable if chip ^ 1 in usable}
    if chips == 1:
        halves = {chip for chip in usable if chip // 2 not in pairs}
        return len(picked) == 1 and picked[0] in (halves or {2 * pair for pair in pairs})
    whole = {chip // 2 for chip in picked}
    return len(picked) == len(set(picked)) == chips == 2 * len(whole) and whole <= pairs


def compare_sequence(line: Line, settings: Settings) -> Answer:
    """Pods of one job placed one after another on nodes that remember, and the release of the last one."""
    form = _form_of(line)
    nodes = sorted(line["nodes"], key=lambda node: node["name"])
    columns = columns_of(nodes)
    names = [node["name"] for node in nodes]
    differences: Differences = ()
    last: tuple[int, tuple[int, ...]] | None = None
    for number, step in enumerate(line["steps"]):
        rule = compile_rule(form, chips=step["request"], distributed=line["tasks"] > 1, settings=settings)
        reasons, scores = rule.evaluate(columns)
        final = [None if reason else WEIGHT * int(score) for reason, score in zip(reasons, scores, strict=True)]
        where = f"step {number}"
        differences += differ("final_scores", step["final_scores"], dict(zip(names, final, strict=True)), where)
        ranked = sorted((-score, row) for row, score in enumerate(final) if score is not None)
        differences += differ("node", step["node"], names[ranked[0][1]] if ranked else "", where)
        differences += differ("error", step.get("error"), None if ranked else "no_node", where)
        if not ranked:
            continue
        row = ranked[0][1]
        chips = rule.pick(int(columns.free[row]), int(columns.network[row]))
        columns.free[row] &= ~np.uint64(mask_of(chips))
        columns.idle[row] -= len(chips)
        differences += differ("chips", step["chips"], list(chips), where)
        differences += differ("free", sorted(step["node_free_after"]), free_of(columns, row), where)
        last = (row, chips)
    released = line.get("release_last")
    if released is not None and last is not None:
        row, chips = last
        columns.free[row] |= np.uint64(mask_of(chips))
        differences += differ("release", released["node"], names[row])
        differences += differ("release", sorted(released["node_free_after"]), free_of(columns, row))
    return Answer(differences, active=form.decisions)


def free_of(columns: ChipColumns, row: int) -> list[int]:
    """Free chips of a node."""
    return list(ids_of(int(columns.free[row])))


def _form_of(line: Line) -> Form:
    """Form that a sequence names; where its name is no form, the one that its annotations choose."""
    if line["product"] in FORMS:
        return FORMS[line["product"]]
    choice = choose_form(
        resource="huawei.com/Ascend910",
        labels={},
        annotations=line.get("job_annotations", {}),
        selector=line.get("selector", {}),
    )
    assert isinstance(choice, FormChoice), line["product"]
    return choice.form
