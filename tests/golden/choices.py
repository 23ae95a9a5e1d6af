"""Families ``node_chip_handler_select``, ``node_chip_available`` and ``node_chip_softshare``."""

import json
from collections import Counter
from collections.abc import Container, Mapping
from typing import Any, Final

import numpy as np

from berth.core.chips.form_selection import SP_BLOCK, FormChoice, choose_form
from berth.core.chips.soft_share import ShareColumns, evaluate_share, pick_share
from berth.core.chips.soft_share_table import memory_of
from berth.core.cluster.shared_use import CHIP_IDS, POLICY_NUMBERS
from berth.core.requests.job_validation import SHARE_AICORE, SHARE_HBM, SHARE_POLICY, validate
from berth.formats.ascend.device_list import PodChips, available
from berth.products.catalogue import FORMS
from berth.products.model import ANNOTATION_POLICY, LABEL_TYPE
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Settings
from berth.schemas.refusal import Refusal
from tests.golden.harness import Answer, Line, differ
from tests.support.chip_masks import mask_of

CORE: Final = 100
"""Percent of a chip."""
MOST: Final = 200
MIB_OF_G: Final = 1024
SHARE_WEIGHT: Final = 16


def _given(**values: str | None) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}


def compare_form_choice(line: Line, _settings: Settings) -> Answer:
    """Which product form a job gets."""
    choice = choose_form(
        resource=line["resource"],
        labels=line["labels"],
        annotations=_given(**{ANNOTATION_POLICY: line["schedule_policy"], SP_BLOCK: line["sp_block"]}),
        selector=_given(**{LABEL_TYPE: line["accelerator_type"]}),
    )
    form = choice.form if isinstance(choice, FormChoice) else None
    got = (form.chips_max, form.drops_network, list(form.forbidden)) if form is not None else (0, False, [])
    expected = (line["max_per_node"], line["drops_net_unhealthy_when_distributed"], line["forbidden_sizes"])
    return Answer((*differ("handled", line["handled"], form is not None), *differ("form", expected, got)))


def compare_available(line: Line, _settings: Settings) -> Answer:
    """The free chips of a node, from the cluster's texts."""
    infos = json.dumps({name: {} for name in line["base_device_names"]})
    result = available(
        base_device_infos=infos if line["node_has_base_device_infos"] else None,
        device_list=line["configmap_device_list"],
        pods=[PodChips(pod["name"], pod["phase"], pod["annotations"]) for pod in line["pods"]],
        self_maintained=line["self_maintain_available_card"],
        soft_share=line["node_soft_share_label"],
    )
    return Answer(differ("free", _free_sets(line["resulting_device_list"]), _free_sets(result)))


def _free_sets(device_list: dict[str, str]) -> dict[str, list[str]]:
    """Free chips by resource, as sets; keys with a dash say other things."""
    return {key: sorted(set(text.split(","))) for key, text in sorted(device_list.items()) if "-" not in key}


def share_columns(line: Line) -> ShareColumns:
    """Columns of a line's nodes."""
    nodes = line["nodes"]
    core = np.zeros((len(nodes), CHIP_IDS), np.int16)
    hbm = np.zeros((len(nodes), CHIP_IDS), np.int32)
    policy = np.zeros((len(nodes), CHIP_IDS), np.uint8)
    for row, node in enumerate(nodes):
        for use in node["used"]:
            core[row, use["card"]] += use["aicore_quota"]
            hbm[row, use["card"]] += use["hbm_quota_mb"]
            policy[row, use["card"]] = POLICY_NUMBERS[use["policy"]]
    return ShareColumns(
        core=core,
        hbm=hbm,
        policy=policy,
        memory_mib=np.array([memory_of(node["chip_memory_label"]) for node in nodes], np.int32),
        enabled=np.array([node["enabled_label"] for node in nodes], np.bool_),
        free=np.array([mask_of(node["free"]) for node in nodes], np.uint64),
    )


def _filtered(scores: dict[str, int | None]) -> list[str]:
    return sorted(name for name, score in scores.items() if score is None)


def compare_soft_share(line: Line, settings: Settings) -> Answer:
    """A soft-share job on nodes that are independent of one another."""
    quota = _given(
        **{SHARE_AICORE: line["aicore_quota"], SHARE_HBM: line["hbm_quota_mb"], SHARE_POLICY: line["policy"]}
    )
    request = JobRequest(
        namespace="ns",
        name="job",
        uid="",
        resource="huawei.com/Ascend910",
        tasks=[Task("worker", line["tasks"], 1)],
        labels=quota,
        annotations={ANNOTATION_POLICY: line["product"]},
    )
    valid = validate(request, settings)
    if isinstance(valid, Refusal) or valid.share is None:
        return Answer(differ("valid", line["job_valid"], got=False))
    columns = share_columns(line)
    reasons, scores = evaluate_share(columns, valid.share, gang_pods=valid.chip_pods, settings=settings)
    names = [node["name"] for node in line["nodes"]]
    got = {name: None if reasons[row] else int(scores[row]) for row, name in enumerate(names)}
    differences = differ("valid", line["job_valid"], got=True)
    differences += differ("filtered", _filtered(line["scores"]), _filtered(got))
    wanted = dict(line["scores"])
    if not settings.reference_parity:
        wanted |= {
            node["name"]: wanted[node["name"]]
            + score_of(line, node, {line["policy"]})
            - score_of(line, node, POLICY_NUMBERS)
            for node in line["nodes"]
            if wanted.get(node["name"]) is not None
        }
    differences += differ("scores", wanted, got)
    for row, name in enumerate(names):
        if name not in line["chosen_card"]:
            continue
        chip = pick_share(
            valid.share,
            free=int(columns.free[row]),
            core=columns.core[row].tolist(),
            hbm=columns.hbm[row].tolist(),
            policy=columns.policy[row].tolist(),
            memory_mib=int(columns.memory_mib[row]),
        )
        differences += differ("chip", line["chosen_card"][name], chip, name)
    decided = ("softshare-self-compare",) if wanted != line["scores"] else ()
    return Answer(differences, active=FORMS[valid.form].decisions, decided=decided)


def score_of(line: Line, node: Mapping[str, Any], policies: Container[str]) -> int:
    """Score of a node on which chips of some policies can be joined.

    Of those of the job's own alone by decision softshare-self-compare, of all in the reference.

    Source: docs/reference/nodes-and-chips.md, "Soft share".
    """
    quota, share = int(line["aicore_quota"]), int(line["hbm_quota_mb"])
    core, held, policy = Counter[int](), Counter[int](), dict[int, str]()
    for use in node["used"]:
        core[use["card"]] += use["aicore_quota"]
        held[use["card"]] += use["hbm_quota_mb"]
        policy[use["card"]] = use["policy"]
    memory = int(node["chip_memory_label"].removesuffix("G")) * MIB_OF_G
    joined = [
        MOST - (CORE - core[chip] - quota)
        for chip in node["free"]
        if policy.get(chip, "") in policies and core[chip] + quota <= CORE and held[chip] + share <= memory
    ]
    return SHARE_WEIGHT * max(joined, default=len(policy))
