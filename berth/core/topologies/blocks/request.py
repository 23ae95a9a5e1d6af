"""Blocks in SuperPoDs that a job requests, with or without racks, and their validation.

Source: docs/reference/superpods.md, "Policies of SuperPoDs", "Validation of blocks", "Before the selection" and
"Inference on SuperPoDs".
"""

from collections.abc import Collection, Mapping
from typing import Final, Literal

import msgspec

from berth.core.parity import differs
from berth.core.topologies.blocks.demand import VARIANTS, Blocks, Variant
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
from berth.core.topologies.job_topology import Asked, JobTopology
from berth.products.model import SKIP_PLUGIN, Form
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.refusal import Code, Refusal

SERVICE_LABEL: Final = "inferserviceid"
"""Label of a job of an inference service; its value is the id of the service."""
MINDIE_LABELS: Final = ("app", "jobID")
"""Labels of a MindIE job; it has both."""
SP_FIT: Final = "sp-fit"
"""Annotation of a MindIE job: the preferred SuperPoDs."""
IDLEST: Final = "idlest"
"""With this value of :data:`SP_FIT`, SuperPoDs with more free nodes come first; otherwise those with fewer."""
_TRUE: Final = "true"

Inference = Literal["service", "mindie"]
"""Kind of inference job."""


def inference_of(labels: Mapping[str, str], variant: Variant) -> Inference | None:
    """Kind of inference job; None for any other job.

    Source: docs/reference/superpods.md, "Before the selection".

    Args:
        labels: Labels of the job.
        variant: Handler of the product; only A3 supports MindIE.
    """
    if labels.get(SERVICE_LABEL):
        return "service"
    return "mindie" if variant == "a3" and all(name in labels for name in MINDIE_LABELS) else None


class BlockJobs(JobTopology):
    """A topology whose gangs are split into blocks of nodes.

    Attributes:
        variants: Variants of the product forms that use it.
    """

    variants: Collection[str] = ()

    def demand(self, asked: Asked, form: Form, settings: Settings) -> Demand | Refusal | None:
        """Blocks of a job whose form has one of the variants."""
        return requested_blocks(asked, form, settings) if form.variant in self.variants else None


def requested_blocks(asked: Asked, form: Form, settings: Settings) -> Demand | Refusal:
    """Blocks that the pods with chips of a job request, or the refusal of the job.

    Args:
        asked: The job; it has pods with chips.
        form: Form with a variant.
        settings: Only ``super_pod_size`` and the parity are read.
    """
    request = asked.request
    wanted = BlockRequest(
        variant=VARIANTS[form.variant],
        node_chips=form.chips_max,
        sp_block=request.annotations.get(SP_BLOCK),
        tasks=[Pods(task.replicas, task.chips, _may_lack_chips(request, task.name)) for task in request.tasks],
        size=settings.super_pod_size,
        ra_block=request.annotations.get(RA_BLOCK),
        ub_memory=request.annotations.get(UB_MEMORY) == _TRUE,
        mixes_freely=differs(settings).mixed_pods,
    )
    found = check_blocks(wanted)
    if isinstance(found, BadBlocks):
        return of_part(asked, _refused(found))
    inference = inference_of(request.labels, wanted.variant)
    blocks = Blocks(
        variant=wanted.variant,
        size=found.block,
        number=max(found.replicas // found.block, 1),
        soft=request.labels.get(SUPER_POD_AFFINITY) == SOFT,
        rack_size=found.rack_block,
        memory=wanted.ub_memory,
        service=request.labels[SERVICE_LABEL] if inference == "service" else "",
        mindie=inference == "mindie",
        idlest=inference == "mindie" and request.annotations.get(SP_FIT) == IDLEST,
        near=tuple(sorted(request.near.items())) if inference == "mindie" else (),
    )
    return blocks.demand(gang_pods=asked.gang_pods)


def of_part(asked: Asked, refusal: Refusal) -> Refusal:
    """The refusal of a job, with the words for a request that is a part of a gang: a part is placed like a gang."""
    if asked.gang_pods <= asked.chip_pods:
        return refusal
    of_gang = f"the request is for {asked.chip_pods} of the {asked.gang_pods} pods of its gang, in whole blocks"
    return msgspec.structs.replace(refusal, expected=f"{refusal.expected}; {of_gang}")


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
