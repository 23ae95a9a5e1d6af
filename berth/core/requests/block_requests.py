"""Requests for blocks in SuperPoDs or for groups of several levels, and their validation.

Source: docs/reference/superpods.md, "Policies of SuperPoDs", "Validation of blocks", "Before the selection" and
"Inference on SuperPoDs"; docs/reference/levels.md, "Configuration of levels".
"""

from typing import Final

import msgspec

from berth.core.parity import differs
from berth.core.topologies.blocks.model import VARIANTS
from berth.core.topologies.blocks.validation import (
    RA_BLOCK,
    SOFT,
    SP_BLOCK,
    SUPER_POD_AFFINITY,
    UB_MEMORY,
    BadBlocks,
    BlockRequest,
    Pods,
    check_blocks,
)
from berth.core.topologies.levels.model import AFFINITY_CONFIG, LevelError, check_sizes, read_sizes
from berth.core.topologies.superpods.inference import IDLEST, SERVICE_LABEL, SP_FIT, inference_of
from berth.products.model import Form
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Settings
from berth.schemas.offers import Blocks
from berth.schemas.refusal import Code, Refusal

SKIP_PLUGIN: Final = "huawei.com/skip-ascend-plugin"
"""Annotation that allows pods without chips; its value is ``enabled``."""
_LEVELS: Final = "levels"
_TRUE: Final = "true"


def mixes_freely(settings: Settings) -> bool:
    """Whether any job may mix pods with and without chips; otherwise only as the rules of its form allow.

    See decision plain-pods.
    """
    return differs(settings).mixed_pods


def requested_blocks(form: Form, request: JobRequest, settings: Settings, *, gang_pods: int) -> Blocks | Refusal:
    """Blocks or groups that the pods with chips of a job request, or the refusal of the job.

    Args:
        form: Form with a variant.
        request: The job; it has pods with chips.
        settings: Only ``super_pod_size`` and what :func:`mixes_freely` reads.
        gang_pods: Number of pods with chips of the whole gang. A part of a gang is placed like a gang.
    """
    found = _levels(form, request) if form.variant == _LEVELS else _superpods(form, request, settings)
    replicas = sum(task.replicas for task in request.tasks if task.chips)
    if gang_pods > replicas and isinstance(found, Refusal):
        part = f"{found.expected}; the request is for {replicas} of the {gang_pods} pods of its gang, in whole blocks"
        return msgspec.structs.replace(found, expected=part)
    return found


def _superpods(form: Form, request: JobRequest, settings: Settings) -> Blocks | Refusal:
    asked = BlockRequest(
        variant=VARIANTS[form.variant],
        node_chips=form.chips_max,
        sp_block=request.annotations.get(SP_BLOCK),
        tasks=[Pods(task.replicas, task.chips, _may_lack_chips(request, task.name)) for task in request.tasks],
        size=settings.super_pod_size,
        ra_block=request.annotations.get(RA_BLOCK),
        ub_memory=request.annotations.get(UB_MEMORY) == _TRUE,
        mixes_freely=mixes_freely(settings),
    )
    found = check_blocks(asked)
    if isinstance(found, BadBlocks):
        return _refused(found)
    inference = inference_of(request.labels, asked.variant)
    return Blocks(
        variant=asked.variant,
        size=found.block,
        count=max(found.replicas // found.block, 1),
        soft=request.labels.get(SUPER_POD_AFFINITY) == SOFT,
        rack_size=found.rack_block,
        memory=asked.ub_memory,
        service=request.labels[SERVICE_LABEL] if inference == "service" else "",
        mindie=inference == "mindie",
        idlest=inference == "mindie" and request.annotations.get(SP_FIT) == IDLEST,
        near=tuple(sorted(request.near.items())) if inference == "mindie" else (),
    )


def _levels(form: Form, request: JobRequest) -> Blocks | Refusal:
    """Groups of several levels. All pods with chips are alike, and each uses a whole node (decision D-11)."""
    chips = next(task.chips for task in request.tasks if task.chips)
    for index, task in enumerate(request.tasks):
        if task.chips > form.chips_max or task.chips not in {0, chips}:
            most = f"1 to {form.chips_max}" if chips > form.chips_max else f"{chips}"
            wanted = f"{most}, the chips of a node, in every pod with chips: each fills a node"
            return Refusal(
                code="invalid-request", field=f"tasks[{index}].chips", value=str(task.chips), expected=wanted
            )
    replicas = sum(task.replicas for task in request.tasks if task.chips)
    try:
        sizes = read_sizes(request.annotations.get(AFFINITY_CONFIG, ""))
        check_sizes(sizes, replicas)
    except LevelError as error:
        field = error.field if error.field.startswith(AFFINITY_CONFIG) else AFFINITY_CONFIG
        return Refusal(
            code="invalid-argument", field=f"annotations.{field}", value=error.value.strip("'"), expected=error.expected
        )
    return Blocks(variant=_LEVELS, size=sizes[0], count=replicas // sizes[0], levels=sizes)


def _may_lack_chips(request: JobRequest, task: str) -> bool:
    return task == "scheduler" or request.annotations.get(SKIP_PLUGIN) == "enabled"


def _refused(bad: BadBlocks) -> Refusal:
    field = {
        "sp-block": f"annotations.{SP_BLOCK}",
        "ra-block": f"annotations.{RA_BLOCK}",
        "super-pod-size": "settings.super_pod_size",
        "pods": "tasks",
        "chips": f"tasks[{bad.task}].chips" if bad.task >= 0 else "tasks",
    }[bad.subject]
    code: Code = "invalid-argument" if bad.reason == "InvalidArgument" else "invalid-request"
    return Refusal(code=code, field=field, value=bad.value, expected=bad.expected)
